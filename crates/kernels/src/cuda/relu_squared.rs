//! relu²: `relu_squared.cu`.

use super::{Params, address, alike, empty, map};
use candle_core::{DType, Result, Tensor};

#[repr(C)]
#[derive(Clone, Copy)]
struct Forward {
    x: u64,
    y: u64,
    n: i64,
}

// SAFETY: as `Forward` in relu_squared.cu.
unsafe impl Params for Forward {}

#[repr(C)]
#[derive(Clone, Copy)]
struct Backward {
    y: u64,
    dy: u64,
    dx: u64,
    n: i64,
}

// SAFETY: as `Backward` in relu_squared.cu.
unsafe impl Params for Backward {}

pub(crate) fn forward(x: &Tensor) -> Result<Tensor> {
    let (x, n) = (x.contiguous()?, x.elem_count());
    let y = empty(x.shape(), DType::BF16, x.device())?;
    let params = Forward { x: address(&x)?, y: address(&y)?, n: n as i64 };
    map("relu_squared_forward", n, x.device(), &params)?;
    Ok(y)
}

pub(crate) fn backward(y: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (y, dy, n) = (y.contiguous()?, dy.contiguous()?, y.elem_count());
    alike("relu_squared", dy.device(), DType::BF16, &[&y])?;
    let dx = empty(y.shape(), DType::BF16, y.device())?;
    let params = Backward { y: address(&y)?, dy: address(&dy)?, dx: address(&dx)?, n: n as i64 };
    map("relu_squared_backward", n, y.device(), &params)?;
    Ok(dx)
}
