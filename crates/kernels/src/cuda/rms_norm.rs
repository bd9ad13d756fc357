//! RMS norm: `rms_norm.cu`.

use super::{Launch, Params, address, address_or_null, alike, blocks, empty, int};
use crate::accumulate::Sum;
use crate::rms_norm::{EPS, Normed};
use candle_core::{D, DType, Device, Result, Tensor};

/// Rows of a block, one for each warp.
const ROWS: usize = 8;

#[repr(C)]
#[derive(Clone, Copy)]
struct Forward {
    x: u64,
    y: u64,
    scale: u64,
    rows: i64,
    width: i32,
    eps: f32,
}

// SAFETY: as `Forward` in rms_norm.cu.
unsafe impl Params for Forward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Backward {
    y: u64,
    scale: u64,
    dy: u64,
    sum: u64,
    dx: u64,
    rows: i64,
    width: i32,
}

// SAFETY: as `Backward` in rms_norm.cu.
unsafe impl Params for Backward {}

fn launch<P: Params>(kernel: &'static str, device: &Device, rows: usize, params: &P) -> Result<()> {
    Launch::new(kernel, blocks("rms_norm", rows, ROWS)?, 32 * ROWS as u32).run(device, params)
}

pub(crate) fn forward(x: &Tensor) -> Result<Normed> {
    let (x, width) = (x.contiguous()?, x.dim(D::Minus1)?);
    let rows = x.elem_count() / width.max(1);
    let leading = &x.dims()[..x.rank() - 1];
    let y = empty(x.shape(), DType::BF16, x.device())?;
    let scale = empty(leading, DType::F32, x.device())?;
    let params = Forward {
        x: address(&x)?,
        y: address(&y)?,
        scale: address(&scale)?,
        rows: rows as i64,
        width: int("rms_norm", width)?,
        eps: EPS as f32,
    };
    launch("rms_norm_forward", x.device(), rows, &params)?;
    Ok(Normed { y, scale })
}

pub(crate) fn backward(normed: &Normed, dy: &Tensor, sum: Option<Sum>) -> Result<Tensor> {
    let (y, dy, width) = (normed.y.contiguous()?, dy.contiguous()?, dy.dim(D::Minus1)?);
    let rows = y.elem_count() / width.max(1);
    alike("rms_norm", dy.device(), DType::BF16, &[&y])?;
    let scale = normed.scale.contiguous()?;
    alike("rms_norm", dy.device(), DType::F32, &[&scale])?;
    let (before, dx) = Sum::places("rms_norm", sum, &dy)?;
    let params = Backward {
        y: address(&y)?,
        scale: address(&scale)?,
        dy: address(&dy)?,
        sum: address_or_null(before.as_ref())?,
        dx: address(&dx)?,
        rows: rows as i64,
        width: int("rms_norm", width)?,
    };
    launch("rms_norm_backward", y.device(), rows, &params)?;
    Ok(dx)
}
