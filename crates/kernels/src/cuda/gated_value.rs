//! Gated value add: `gated_value.cu`.

use super::{Launch, Params, address, alike, blocks, empty, int, lanes};
use crate::gated_value::Gradients;
use candle_core::{DType, Device, Result, Tensor};

/// Threads of a block; as in gated_value.cu.
const THREADS: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
struct Forward {
    v: u64,
    gate: u64,
    ve: u64,
    y: u64,
    heads: i64,
    width: i32,
    lanes: i32,
}

// SAFETY: as `Forward` in gated_value.cu.
unsafe impl Params for Forward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Backward {
    gate: u64,
    ve: u64,
    dy: u64,
    dgate: u64,
    dve: u64,
    heads: i64,
    width: i32,
    lanes: i32,
}

// SAFETY: as `Backward` in gated_value.cu.
unsafe impl Params for Backward {}

fn launch<P: Params>(
    kernel: &'static str,
    device: &Device,
    heads: usize,
    width: usize,
    params: &P,
) -> Result<()> {
    Launch::new(kernel, blocks("gated_value", heads, THREADS / lanes(width))?, THREADS as u32)
        .run(device, params)
}

pub(crate) fn forward(v: &Tensor, gate: &Tensor, ve: &Tensor) -> Result<Tensor> {
    let (v, gate, ve) = (v.contiguous()?, gate.contiguous()?, ve.contiguous()?);
    let (heads, width) = (gate.elem_count(), v.dim(3)?);
    alike("gated_value", v.device(), DType::BF16, &[&gate, &ve])?;
    let y = empty(v.shape(), DType::BF16, v.device())?;
    let params = Forward {
        v: address(&v)?,
        gate: address(&gate)?,
        ve: address(&ve)?,
        y: address(&y)?,
        heads: heads as i64,
        width: int("gated_value", width)?,
        lanes: lanes(width) as i32,
    };
    launch("gated_value_forward", v.device(), heads, width, &params)?;
    Ok(y)
}

pub(crate) fn backward(gate: &Tensor, ve: &Tensor, dy: &Tensor) -> Result<Gradients> {
    let (gate, ve) = (gate.contiguous()?, ve.contiguous()?);
    let (heads, width, rows) = (gate.elem_count(), ve.dim(3)?, dy.contiguous()?);
    alike("gated_value", dy.device(), DType::BF16, &[&gate, &ve, dy])?;
    let dgate = empty(gate.shape(), DType::BF16, gate.device())?;
    let dve = empty(ve.shape(), DType::BF16, ve.device())?;
    let params = Backward {
        gate: address(&gate)?,
        ve: address(&ve)?,
        dy: address(&rows)?,
        dgate: address(&dgate)?,
        dve: address(&dve)?,
        heads: heads as i64,
        width: int("gated_value", width)?,
        lanes: lanes(width) as i32,
    };
    launch("gated_value_backward", ve.device(), heads, width, &params)?;
    Ok(Gradients { v: dy.clone(), gate: dgate, ve: dve })
}
