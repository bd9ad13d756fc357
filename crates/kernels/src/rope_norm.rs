//! Rotary embedding, then RMS norm, of the heads of q or k, in one pass.
//!
//! With (x1, x2) the halves of a head: y1 = x1·cos + x2·sin, y2 = x2·cos − x1·sin, then y / rms(y). A rotation
//! keeps the length of each pair, so rms(y) = rms(x). QK-norm: arXiv 2010.04245.

use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::real::Real;
use crate::rms_norm::{self, Normed, reciprocal_rms};
use crate::rows::{build, build_noting, dot};
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

/// x: (B, T, H, D), D even; cos, sin: (T, D/2) → y: (B, T, H, D), scale: (B, T, H).
pub fn forward(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Normed> {
    check(x, cos, sin)?;
    dispatch!(x, cuda: cuda::rope_norm::forward(x, cos, sin), cpu T: cpu_forward::<T>(x, cos, sin), else: {
        let scale = (widen(x)?.sqr()?.mean(D::Minus1)? + rms_norm::EPS)?.sqrt()?.recip()?;
        Ok(Normed { y: reference(x, cos, sin)?, scale })
    })
}

/// dy: gradient of `normed`'s y, made by [`forward`] → dx: (B, T, H, D). The tables get none.
///
/// dx = s·Rᵀ(dy − y·mean(y·dy)), where Rᵀ turns back.
pub fn backward(normed: &Normed, cos: &Tensor, sin: &Tensor, dy: &Tensor) -> Result<Tensor> {
    check(dy, cos, sin)?;
    normed.check("rope_norm backward", dy)?;
    dispatch!(
        dy,
        cuda: cuda::rope_norm::backward(normed, cos, sin, dy),
        cpu T: cpu_backward::<T>(normed, cos, sin, dy),
        else: composed(normed, cos, sin, dy),
    )
}

fn composed(normed: &Normed, cos: &Tensor, sin: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let turned = rms_norm::backward(normed, dy, None)?;
    let (_, t, _, d) = dy.dims4()?;
    let wide = widen(&turned)?;
    let table = |s: &Tensor| s.to_dtype(wide.dtype())?.reshape((1, t, 1, d / 2));
    let (cos, sin) = (table(cos)?, table(sin)?);
    let (g1, g2) = (wide.narrow(D::Minus1, 0, d / 2)?, wide.narrow(D::Minus1, d / 2, d / 2)?);
    let x1 = g1.broadcast_mul(&cos)?.sub(&g2.broadcast_mul(&sin)?)?;
    let x2 = g1.broadcast_mul(&sin)?.add(&g2.broadcast_mul(&cos)?)?;
    Tensor::cat(&[x1, x2], D::Minus1)?.to_dtype(dy.dtype())
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

fn cpu_forward<T: Real>(x: &Tensor, cos: &Tensor, sin: &Tensor) -> Result<Normed> {
    let (b, t, h, d) = x.dims4()?;
    let (x, cos, sin) = (x.contiguous()?, cos.contiguous()?, sin.contiguous()?);
    let (xs, coss, sins) = (
        elements::<T>("rope_norm", &x)?,
        elements::<T>("rope_norm", &cos)?,
        elements::<T>("rope_norm", &sin)?,
    );
    let (xs, coss, sins) = (&*xs, &*coss, &*sins);
    let half = d / 2;
    let (y, scale) = build_noting(
        xs.len(),
        d,
        #[inline(always)]
        |i, out| {
            let x = &xs[i * d..][..d];
            let (x1, x2) = x.split_at(half);
            let at = (i / h) % t * half;
            let (cos, sin) = (&coss[at..][..half], &sins[at..][..half]);
            let s = reciprocal_rms(x);
            let y = fill_halves(
                out,
                #[inline(always)]
                |i| ((x1[i] * cos[i] + x2[i] * sin[i]) * s, (x2[i] * cos[i] - x1[i] * sin[i]) * s),
            );
            (y, s)
        },
    );
    Ok(Normed { y: tensor(y, x.dims())?, scale: tensor(scale, &[b, t, h])? })
}

fn cpu_backward<T: Real>(normed: &Normed, cos: &Tensor, sin: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let (_, t, h, d) = dy.dims4()?;
    let (y, scale) = (normed.y.contiguous()?, normed.scale.contiguous()?);
    let (cos, sin, dy) = (cos.contiguous()?, sin.contiguous()?, dy.contiguous()?);
    let (ys, scales) = (elements::<T>("rope_norm", &y)?, elements::<T>("rope_norm", &scale)?);
    let (coss, sins) = (elements::<T>("rope_norm", &cos)?, elements::<T>("rope_norm", &sin)?);
    let dys = elements::<T>("rope_norm", &dy)?;
    let (ys, scales, dys, coss, sins) = (&*ys, &*scales, &*dys, &*coss, &*sins);
    let half = d / 2;
    let dx = build(
        dys.len(),
        d,
        #[inline(always)]
        |i, out| {
            let (y, dy) = (&ys[i * d..][..d], &dys[i * d..][..d]);
            let along = dot(y, dy) / T::of_f64(d as f64);
            let ((y1, y2), (dy1, dy2)) = (y.split_at(half), dy.split_at(half));
            let at = (i / h) % t * half;
            let (cos, sin) = (&coss[at..][..half], &sins[at..][..half]);
            let s = scales[i];
            fill_halves(
                out,
                #[inline(always)]
                |i| {
                    let (g1, g2) = (s * (dy1[i] - y1[i] * along), s * (dy2[i] - y2[i] * along));
                    (g1 * cos[i] - g2 * sin[i], g1 * sin[i] + g2 * cos[i])
                },
            )
        },
    );
    tensor(dx, dy.dims())
}
