//! Rotary embedding, then RMS norm, of the heads of q or k, in one pass.
//!
//! With (x1, x2) the halves of a head: y1 = x1·cos + x2·sin, y2 = x2·cos − x1·sin, then y / rms(y). A rotation
//! keeps the length of each pair, so rms(y) = rms(x). QK-norm: arXiv 2010.04245.

use crate::composed::{fast_or, gradients, widen};
use crate::real::Real;
use crate::rms_norm::{self, reciprocal_rms};
use crate::rows::{build, sum_of};
use crate::storage::{elements, tensor};
use candle_core::{D, Result, Tensor, bail};
use std::mem::MaybeUninit;

/// The op as a composition of differentiable candle ops; shapes as in [`forward`].
pub fn reference(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (_, t, _, d) = x.dims4()?;
    let wide = widen(x)?;
    let table = |s: &Tensor| s.to_dtype(wide.dtype())?.reshape((1, t, 1, d / 2));
    let (cos, sin) = (table(cos)?, table(sin)?);
    let (x1, x2) = (wide.narrow(D::Minus1, 0, d / 2)?, wide.narrow(D::Minus1, d / 2, d / 2)?);
    let y1 = x1.broadcast_mul(&cos)?.add(&x2.broadcast_mul(&sin)?)?;
    let y2 = x2.broadcast_mul(&cos)?.sub(&x1.broadcast_mul(&sin)?)?;
    rms_norm::reference(&Tensor::cat(&[y1, y2], D::Minus1)?)?.to_dtype(x.dtype())
}

/// x: (B, T, H, D), D even; cos, sin: (T, D/2) → (B, T, H, D).
pub fn forward(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    check(x, cos, sin)?;
    fast_or!(x, T => cpu_forward::<T>(x, cos, sin), reference(x, cos, sin))
}

/// dy: gradient of y = forward(x, cos, sin) → dx: (B, T, H, D). The tables get none.
pub fn backward(x: &Tensor, cos: &Tensor, sin: &Tensor, dy: &Tensor) -> Result<Tensor> {
    check(x, cos, sin)?;
    crate::same_shape("rope_norm backward", x, dy)?;
    fast_or!(x, T => cpu_backward::<T>(x, cos, sin, dy), {
        let [dx] = gradients([x], dy, |[x]| reference(x, cos, sin))?;
        Ok(dx)
    })
}

fn check(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<()> {
    let (_, t, _, d) = x.dims4()?;
    if d == 0 || d % 2 != 0 || cos.dims() != [t, d / 2] || sin.dims() != [t, d / 2] {
        bail!(
            "rope_norm: x of shape {:?} needs cos and sin of shape (T, D/2), not {:?} and {:?}",
            x.shape(),
            cos.shape(),
            sin.shape()
        )
    }
    Ok(())
}

/// Writes f(i) and g(i) for i < D/2 into the two halves of `out`.
#[inline(always)]
fn fill_halves<T: Real>(out: &mut [MaybeUninit<T>], values: impl Fn(usize) -> (T, T)) -> &mut [T] {
    let half = out.len() / 2;
    let (first, second) = out.split_at_mut(half);
    let second = &mut second[..half];
    for i in 0..half {
        let (a, b) = values(i);
        first[i].write(a);
        second[i].write(b);
    }
    assert!(out.len() == 2 * half, "a head of odd width");
    // SAFETY: the loop wrote every place of both halves, and they make up the whole.
    unsafe { &mut *(std::ptr::from_mut(out) as *mut [T]) }
}

fn cpu_forward<T: Real>(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Tensor> {
    let (_, t, h, d) = x.dims4()?;
    let (x, cos, sin) = (x.contiguous()?, cos.contiguous()?, sin.contiguous()?);
    let (xs, coss, sins) = (
        elements::<T>("rope_norm", &x)?,
        elements::<T>("rope_norm", &cos)?,
        elements::<T>("rope_norm", &sin)?,
    );
    let (xs, coss, sins) = (&*xs, &*coss, &*sins);
    let half = d / 2;
    let y = build(
        xs.len(),
        d,
        #[inline(always)]
        |i, out| {
            let x = &xs[i * d..][..d];
            let (x1, x2) = x.split_at(half);
            let at = (i / h) % t * half;
            let (cos, sin) = (&coss[at..][..half], &sins[at..][..half]);
            let s = reciprocal_rms(x);
            fill_halves(
                out,
                #[inline(always)]
                |i| ((x1[i] * cos[i] + x2[i] * sin[i]) * s, (x2[i] * cos[i] - x1[i] * sin[i]) * s),
            )
        },
    );
    tensor(y, x.dims())
}

fn cpu_backward<T: Real>(x: &Tensor, cos: &Tensor, sin: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (_, t, h, d) = x.dims4()?;
    let (x, cos, sin, dy) = (x.contiguous()?, cos.contiguous()?, sin.contiguous()?, dy.contiguous()?);
    let (xs, dys) = (elements::<T>("rope_norm", &x)?, elements::<T>("rope_norm", &dy)?);
    let (coss, sins) = (elements::<T>("rope_norm", &cos)?, elements::<T>("rope_norm", &sin)?);
    let (xs, dys, coss, sins) = (&*xs, &*dys, &*coss, &*sins);
    let half = d / 2;
    let dx = build(
        xs.len(),
        d,
        #[inline(always)]
        |i, out| {
            let (x, dy) = (&xs[i * d..][..d], &dys[i * d..][..d]);
            let (x1, x2) = x.split_at(half);
            let (dy1, dy2) = dy.split_at(half);
            let at = (i / h) % t * half;
            let (cos, sin) = (&coss[at..][..half], &sins[at..][..half]);
            let s = reciprocal_rms(x);
            // Rᵀdy, the gradient turned back; then the norm's backward, which commutes with the rotation:
            // dx = s·Rᵀdy − s³·x·mean(x·Rᵀdy), where x·Rᵀdy = (Rx)·dy
            let along = sum_of(
                half,
                #[inline(always)]
                |i| (x1[i] * cos[i] + x2[i] * sin[i]) * dy1[i] + (x2[i] * cos[i] - x1[i] * sin[i]) * dy2[i],
            );
            let along = s * s * s * along / T::of_f64(d as f64);
            fill_halves(
                out,
                #[inline(always)]
                |i| {
                    let (t1, t2) = (dy1[i] * cos[i] - dy2[i] * sin[i], dy1[i] * sin[i] + dy2[i] * cos[i]);
                    (s * t1 - along * x1[i], s * t2 - along * x2[i])
                },
            )
        },
    );
    tensor(dx, x.dims())
}
