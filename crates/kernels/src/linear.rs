//! Linear: y = x·Wᵀ with W stored (out, in), and its gradients, which may be added in place to what is there.

use crate::accumulate::Sum;
use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::gemm::{ALL_THREADS, Matrix, add_product, product};
use crate::panel::Panel;
use crate::real::Real;
use crate::storage::{apart, elements, modify, overwrite, tensor};
use candle_core::{D, Result, Tensor, bail};

/// The op as a composition of differentiable candle ops; shapes as in [`forward`].
pub fn reference(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    let (rows, shape) = flat(x, w.dim(0)?)?;
    rows.matmul(&w.t()?)?.reshape(shape)
}

/// x: (…, in), w: (out, in) → (…, out).
pub fn forward(x: &Tensor, w: &Tensor) -> Result<Tensor> {
    check(x, w, D::Minus1)?;
    dispatch!(x, cuda: cuda::linear::forward(x, w), cpu T: cpu_product::<T>(x, w, true), else: reference(x, w))
}

/// dy: (…, out), w: (out, in) → sum + dx, dx = dy·W: (…, in).
pub fn backward_input(dy: &Tensor, w: &Tensor, sum: Option<Sum>) -> Result<Tensor> {
    check(dy, w, D::Minus2)?;
    dispatch!(dy, cuda: cuda::linear::backward_input(dy, w, sum), cpu T: cpu_backward_input::<T>(dy, w, sum), else: {
        let (rows, shape) = flat(dy, w.dim(1)?)?;
        Sum::add(sum, rows.matmul(w)?.reshape(shape)?)
    })
}

/// x: (…, in), dy: (…, out) → dW = dyᵀ·x: (out, in).
pub fn backward_weight(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    check_rows(x, dy)?;
    dispatch!(x, cuda: cuda::linear::backward_weight(x, dy), cpu T: cpu_weight::<T>(x, dy), else: {
        let ((x, _), (dy, _)) = (flat(x, 1)?, flat(dy, 1)?);
        dy.t()?.matmul(&x)
    })
}

/// dW += dyᵀ·x in place; dW: (out, in).
pub fn add_backward_weight(dw: &Tensor, x: &Tensor, dy: &Tensor) -> Result<()> {
    check_rows(x, dy)?;
    if dw.dims() != [dy.dim(D::Minus1)?, x.dim(D::Minus1)?] {
        bail!("linear: dW of shape {:?} does not fit x {:?} and dy {:?}", dw.shape(), x.shape(), dy.shape())
    }
    dispatch!(x, cuda: cuda::linear::add_backward_weight(dw, x, dy), cpu T: cpu_add_weight::<T>(dw, x, dy), else: {
        overwrite(dw, &(dw + widen(&backward_weight(x, dy)?)?.to_dtype(dw.dtype())?)?)
    })
}

/// x as a matrix (rows, last), and its shape with `last` for the last axis.
fn flat(x: &Tensor, last: usize) -> Result<(Tensor, Vec<usize>)> {
    let mut shape = x.dims().to_vec();
    let rows = x.reshape(((), x.dim(D::Minus1)?))?;
    *shape.last_mut().expect("x has a last axis: dim succeeded") = last;
    Ok((rows, shape))
}

fn check(x: &Tensor, w: &Tensor, axis: D) -> Result<()> {
    w.dims2()?;
    if x.dim(D::Minus1)? != w.dim(axis)? {
        bail!("linear: {:?} does not fit weights of shape {:?}", x.shape(), w.shape())
    }
    Ok(())
}

fn check_rows(x: &Tensor, dy: &Tensor) -> Result<()> {
    let leading = |t: &Tensor| t.rank().checked_sub(1).map(|r| t.dims()[..r].to_vec());
    if leading(x).is_none() || leading(x) != leading(dy) {
        bail!("linear: x {:?} and dy {:?} differ in more than their last axis", x.shape(), dy.shape())
    }
    Ok(())
}

/// x·Wᵀ when `transposed`, else x·W.
fn cpu_product<T: Real>(x: &Tensor, w: &Tensor, transposed: bool) -> Result<Tensor> {
    let (x, w) = (x.contiguous()?, w.contiguous()?);
    let (xs, ws) = (elements::<T>("linear", &x)?, elements::<T>("linear", &w)?);
    let (out, inner) = w.dims2()?;
    let w = Matrix::new(&ws, out, inner);
    let (w, inner, last) = if transposed { (w.t(), inner, out) } else { (w, out, inner) };
    let rows = xs.len() / inner.max(1);
    let mut shape = x.dims().to_vec();
    *shape.last_mut().expect("checked") = last;
    tensor(product(Matrix::new(&xs, rows, inner), w, ALL_THREADS), &shape)
}

fn cpu_backward_input<T: Real>(dy: &Tensor, w: &Tensor, sum: Option<Sum>) -> Result<Tensor> {
    let Some(Sum { so_far, .. }) = sum.filter(|sum| sum.owned && sum.so_far.is_contiguous()) else {
        return Sum::add(sum, cpu_product::<T>(dy, w, false)?);
    };
    let (dy, w) = (dy.contiguous()?, w.contiguous()?);
    apart("linear", &[so_far], &[&dy, &w])?;
    let (dys, ws) = (elements::<T>("linear", &dy)?, elements::<T>("linear", &w)?);
    let (out, inner) = w.dims2()?;
    let rows = dys.len() / out.max(1);
    modify::<T, _>("linear", so_far, |dx| {
        let (dy, w) = (Matrix::new(&dys, rows, out), Matrix::new(&ws, out, inner));
        add_product(Panel::new(dx, inner), T::ONE, T::ONE, dy, w, ALL_THREADS);
        Ok(())
    })?;
    Ok(so_far.clone())
}

fn cpu_weight<T: Real>(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (x, dy) = (x.contiguous()?, dy.contiguous()?);
    let (xs, dys) = (elements::<T>("linear", &x)?, elements::<T>("linear", &dy)?);
    let (inner, out) = (x.dim(D::Minus1)?, dy.dim(D::Minus1)?);
    let rows = xs.len() / inner.max(1);
    let dw = product(Matrix::new(&dys, rows, out).t(), Matrix::new(&xs, rows, inner), ALL_THREADS);
    tensor(dw, &[out, inner])
}

fn cpu_add_weight<T: Real>(dw: &Tensor, x: &Tensor, dy: &Tensor) -> Result<()> {
    let (x, dy) = (x.contiguous()?, dy.contiguous()?);
    apart("linear", &[dw], &[&x, &dy])?;
    let (xs, dys) = (elements::<T>("linear", &x)?, elements::<T>("linear", &dy)?);
    let (inner, out) = (x.dim(D::Minus1)?, dy.dim(D::Minus1)?);
    let rows = xs.len() / inner.max(1);
    modify::<T, _>("linear", dw, |dw| {
        let (dy, x) = (Matrix::new(&dys, rows, out), Matrix::new(&xs, rows, inner));
        add_product(Panel::new(dw, inner), T::ONE, T::ONE, dy.t(), x, ALL_THREADS);
        Ok(())
    })
}
