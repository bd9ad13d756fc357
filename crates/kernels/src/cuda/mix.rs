//! Residual mix: `mix.cu`.

use super::{Launch, Params, address, address_or_null, alike, blocks, empty, map};
use crate::accumulate::Sum;
use crate::mix::Gradients;
use candle_core::{DType, Result, Tensor};

/// Elements of a block of the backward; as in mix.cu.
const PART: usize = 16384;

/// Threads of its block.
const THREADS: u32 = 256;

/// Shared memory of a sum over a block, bytes.
const ROOM: usize = 32 * size_of::<f32>();

#[repr(C)]
#[derive(Clone, Copy)]
struct Forward {
    x: u64,
    x0: u64,
    r: u64,
    z: u64,
    y: u64,
    n: i64,
}

// SAFETY: as `Forward` in mix.cu.
unsafe impl Params for Forward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Backward {
    x: u64,
    x0: u64,
    dy: u64,
    sum: u64,
    sum0: u64,
    r: u64,
    z: u64,
    dx: u64,
    dx0: u64,
    parts: u64,
    n: i64,
}

// SAFETY: as `Backward` in mix.cu.
unsafe impl Params for Backward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Finish {
    parts: u64,
    dr: u64,
    dz: u64,
    blocks: i32,
}

// SAFETY: as `Finish` in mix.cu.
unsafe impl Params for Finish {}

pub(crate) fn forward(x: &Tensor, x0: &Tensor, r: &Tensor, z: &Tensor) -> Result<Tensor> {
    let (x, x0, n) = (x.contiguous()?, x0.contiguous()?, x.elem_count());
    let (r, z) = (r.to_dtype(DType::F32)?, z.to_dtype(DType::F32)?);
    alike("mix", x.device(), DType::BF16, &[&x0])?;
    alike("mix", x.device(), DType::F32, &[&r, &z])?;
    let y = empty(x.shape(), DType::BF16, x.device())?;
    let params = Forward {
        x: address(&x)?,
        x0: address(&x0)?,
        r: address(&r)?,
        z: address(&z)?,
        y: address(&y)?,
        n: n as i64,
    };
    map("mix_forward", n, x.device(), &params)?;
    Ok(y)
}

pub(crate) fn backward(
    x: &Tensor,
    x0: &Tensor,
    r: &Tensor,
    z: &Tensor,
    dy: &Tensor,
    [sum, sum0]: [Option<Sum>; 2],
) -> Result<Gradients> {
    let (x, x0, dy, n) = (x.contiguous()?, x0.contiguous()?, dy.contiguous()?, x.elem_count());
    let (wide_r, wide_z) = (r.to_dtype(DType::F32)?, z.to_dtype(DType::F32)?);
    alike("mix", x.device(), DType::BF16, &[&x0, &dy])?;
    alike("mix", x.device(), DType::F32, &[&wide_r, &wide_z])?;
    let ((sum, dx), (sum0, dx0)) = (Sum::places("mix", sum, &x)?, Sum::places("mix", sum0, &x)?);
    let blocks = blocks("mix", n, PART)?;
    let device = x.device();
    let parts = empty((blocks as usize, 2), DType::F32, device)?;
    let params = Backward {
        x: address(&x)?,
        x0: address(&x0)?,
        dy: address(&dy)?,
        sum: address_or_null(sum.as_ref())?,
        sum0: address_or_null(sum0.as_ref())?,
        r: address(&wide_r)?,
        z: address(&wide_z)?,
        dx: address(&dx)?,
        dx0: address(&dx0)?,
        parts: address(&parts)?,
        n: n as i64,
    };
    Launch { shared: ROOM, ..Launch::new("mix_backward", blocks, THREADS) }.run(device, &params)?;
    let (dr, dz) = (empty(r.shape(), DType::F32, device)?, empty(z.shape(), DType::F32, device)?);
    let params =
        Finish { parts: address(&parts)?, dr: address(&dr)?, dz: address(&dz)?, blocks: blocks as i32 };
    Launch { shared: ROOM, ..Launch::new("mix_finish", 1, THREADS) }.run(device, &params)?;
    Ok(Gradients { x: dx, x0: dx0, r: dr.to_dtype(r.dtype())?, z: dz.to_dtype(z.dtype())? })
}
