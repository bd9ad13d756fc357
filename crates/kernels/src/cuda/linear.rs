//! Linear: products alone, no kernel of its own.

use super::product::{Operand, multiply};
use super::{alike, empty, together};
use crate::accumulate::Sum;
use crate::storage::apart;
use candle_core::{D, DType, Result, Tensor};

/// x: (…, last) as a matrix whose rows are contiguous. A view that narrows the last axis stays one.
fn matrix(x: &Tensor) -> Result<Tensor> {
    let last = x.dim(D::Minus1)?;
    let (dims, strides) = (x.dims(), x.stride());
    let n = dims.len();
    // rows of one stride, whatever it is: what narrow on the last axis leaves
    let row = if n > 1 { strides[n - 2] } else { last };
    let even = (0..n.saturating_sub(2)).all(|i| strides[i] == strides[i + 1] * dims[i + 1]);
    if n == 2 && strides[1] == 1 && row >= last {
        return Ok(x.clone());
    }
    if n > 2 && even && strides[n - 1] == 1 && row >= last {
        return x.flatten(0, n - 2);
    }
    x.contiguous()?.reshape(((), last))
}

fn with_last(x: &Tensor, last: usize) -> Vec<usize> {
    let mut shape = x.dims().to_vec();
    *shape.last_mut().expect("x has a last axis: `matrix` has read it") = last;
    shape
}

pub(crate) fn forward(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (rows, w) = (matrix(x)?, w.contiguous()?);
    alike("linear", x.device(), DType::BF16, &[&w])?;
    let y = empty((rows.dim(0)?, w.dim(0)?), DType::BF16, x.device())?;
    multiply(x.device(), 1.0, Operand::of(&rows)?, Operand::of(&w)?.t(), 0.0, Operand::of(&y)?)?;
    y.reshape(with_last(x, w.dim(0)?))
}

pub(crate) fn backward_input(dy: &Tensor, w: &Tensor, sum: Option<Sum>) -> Result<Tensor> {
    let (rows, w) = (matrix(dy)?, w.contiguous()?);
    let last = w.dim(1)?;
    let shape = with_last(dy, last);
    alike("linear", dy.device(), DType::BF16, &[&w])?;
    if let Some(sum) = sum {
        sum.check("linear", &shape, dy)?;
        apart("linear", &[sum.so_far], &[dy, &w])?;
    }
    // cuBLAS adds in place only
    let (dx, beta) = match sum {
        None => (empty(shape, DType::BF16, dy.device())?, 0.0),
        Some(sum) if sum.owned => (sum.so_far.contiguous()?, 1.0),
        Some(sum) => (sum.so_far.copy()?.contiguous()?, 1.0),
    };
    let flat = dx.reshape(((), last))?;
    multiply(dy.device(), 1.0, Operand::of(&rows)?, Operand::of(&w)?, beta, Operand::of(&flat)?)?;
    Ok(dx)
}

pub(crate) fn backward_weight(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let dw = empty((dy.dim(D::Minus1)?, x.dim(D::Minus1)?), DType::BF16, x.device())?;
    weight(0.0, &dw, x, dy)?;
    Ok(dw)
}

pub(crate) fn add_backward_weight(dw: &Tensor, x: &Tensor, dy: &Tensor) -> Result<()> {
    weight(1.0, dw, x, dy)
}

fn weight(beta: f32, dw: &Tensor, x: &Tensor, dy: &Tensor) -> Result<()> {
    let (x, dy) = (matrix(x)?, matrix(dy)?);
    alike("linear", x.device(), DType::BF16, &[&dy])?;
    together("linear", x.device(), &[dw])?;
    apart("linear", &[dw], &[&x, &dy])?;
    multiply(x.device(), 1.0, Operand::of(&dy)?.t(), Operand::of(&x)?, beta, Operand::of(dw)?)
}
