//! Rotary embedding and RMS norm of heads: `rope_norm.cu`.

use super::{Launch, Params, address, alike, blocks, empty, int, lanes};
use crate::rms_norm::{EPS, Normed};
use candle_core::{DType, Device, Result, Tensor};

/// Threads of a block; as in rope_norm.cu.
const THREADS: usize = 256;

#[repr(C)]
#[derive(Clone, Copy)]
struct Heads {
    along_batch: i64,
    along_time: i64,
    along_heads: i64,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Sizes {
    time: i32,
    heads: i32,
    all: i32,
    width: i32,
    lanes: i32,
}

#[repr(C)]
#[derive(Clone, Copy)]
struct Forward {
    x: u64,
    cos: u64,
    sin: u64,
    y: u64,
    scale: u64,
    at: Heads,
    size: Sizes,
    eps: f32,
}

// SAFETY: as `Forward` in rope_norm.cu.
unsafe impl Params for Forward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Backward {
    y: u64,
    dy: u64,
    cos: u64,
    sin: u64,
    scale: u64,
    dx: u64,
    at: Heads,
    size: Sizes,
}

// SAFETY: as `Backward` in rope_norm.cu.
unsafe impl Params for Backward {}

/// x with heads that are contiguous, and how they lie.
fn heads(x: &Tensor) -> Result<(Tensor, Heads, Sizes)> {
    let (b, time, heads, width) = x.dims4()?;
    let x = if x.stride()[3] == 1 { x.clone() } else { x.contiguous()? };
    let along = |axis: usize| x.stride()[axis] as i64;
    let at = Heads { along_batch: along(0), along_time: along(1), along_heads: along(2) };
    let int = |n| int("rope_norm", n);
    let size = Sizes {
        time: int(time)?,
        heads: int(heads)?,
        all: int(b * time * heads)?,
        width: int(width)?,
        lanes: lanes(width / 2) as i32,
    };
    Ok((x, at, size))
}

fn launch<P: Params>(kernel: &'static str, device: &Device, size: &Sizes, params: &P) -> Result<()> {
    let per_block = THREADS / size.lanes as usize;
    Launch::new(kernel, blocks("rope_norm", size.all as usize, per_block)?, THREADS as u32)
        .run(device, params)
}

/// The tables in bf16, contiguous.
fn tables(cos: &Tensor, sin: &Tensor) -> Result<[Tensor; 2]> {
    let table = |t: &Tensor| t.to_dtype(DType::BF16)?.contiguous();
    Ok([table(cos)?, table(sin)?])
}

pub(crate) fn forward(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Normed> {
    let ((x, at, size), [cos, sin]) = (heads(x)?, tables(cos, sin)?);
    alike("rope_norm", x.device(), DType::BF16, &[&cos, &sin])?;
    let y = empty(x.shape(), DType::BF16, x.device())?;
    let scale = empty(&x.dims()[..3], DType::F32, x.device())?;
    let params = Forward {
        x: address(&x)?,
        cos: address(&cos)?,
        sin: address(&sin)?,
        y: address(&y)?,
        scale: address(&scale)?,
        at,
        size,
        eps: EPS as f32,
    };
    launch("rope_norm_forward", x.device(), &size, &params)?;
    Ok(Normed { y, scale })
}

pub(crate) fn backward(normed: &Normed, cos: &Tensor, sin: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let ((dy, at, size), [cos, sin]) = (heads(dy)?, tables(cos, sin)?);
    let y = normed.y.contiguous()?;
    alike("rope_norm", dy.device(), DType::BF16, &[&y, &cos, &sin])?;
    let scale = normed.scale.contiguous()?;
    alike("rope_norm", dy.device(), DType::F32, &[&scale])?;
    let dx = empty(dy.shape(), DType::BF16, dy.device())?;
    let params = Backward {
        y: address(&y)?,
        dy: address(&dy)?,
        cos: address(&cos)?,
        sin: address(&sin)?,
        scale: address(&scale)?,
        dx: address(&dx)?,
        at,
        size,
    };
    launch("rope_norm_backward", dy.device(), &size, &params)?;
    Ok(dx)
}
