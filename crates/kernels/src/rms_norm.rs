//! RMS norm over the last axis, without a gain: y = x / √(mean x² + eps).

use crate::composed::{fast_or, gradients, widen};
use crate::real::Real;
use crate::rows::{build, dot, fill};
use crate::storage::{elements, tensor};
use candle_core::{D, Result, Tensor};

/// f32's machine epsilon, as `torch.nn.functional.rms_norm` takes for f32 and half-precision inputs.
pub const EPS: f64 = f32::EPSILON as f64;

/// The op as a composition of differentiable candle ops.
///
/// x: (…, C) → (…, C).
pub fn reference(x: &Tensor) -> Result<Tensor> {
    let wide = widen(x)?;
    let rms = (wide.sqr()?.mean_keepdim(D::Minus1)? + EPS)?.sqrt()?;
    wide.broadcast_div(&rms)?.to_dtype(x.dtype())
}

/// x: (…, C) → (…, C).
pub fn forward(x: &Tensor) -> Result<Tensor> {
    fast_or!(x, T => cpu_forward::<T>(x), reference(x))
}

/// dy: gradient of y = forward(x), of x's shape → dx.
pub fn backward(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    fast_or!(x, T => cpu_backward::<T>(x, dy), {
        let [dx] = gradients([x], dy, |[x]| reference(x))?;
        Ok(dx)
    })
}

/// 1 / √(mean x² + eps) of one row.
#[inline(always)]
pub(crate) fn reciprocal_rms<T: Real>(x: &[T]) -> T {
    T::ONE / (dot(x, x) / T::of_f64(x.len() as f64) + T::of_f64(EPS)).root()
}

fn cpu_forward<T: Real>(x: &Tensor) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    let x = x.contiguous()?;
    let xs = elements::<T>("rms_norm", &x)?;
    let xs = &*xs;
    let y = build(
        xs.len(),
        width,
        #[inline(always)]
        |i, out| {
            let x = &xs[i * width..][..width];
            let scale = reciprocal_rms(x);
            fill(out, x.iter().map(|&x| x * scale))
        },
    );
    tensor(y, x.dims())
}

fn cpu_backward<T: Real>(x: &Tensor, dy: &Tensor) -> Result<Tensor> {
    let width = x.dim(D::Minus1)?;
    crate::same_shape("rms_norm backward", x, dy)?;
    let (x, dy) = (x.contiguous()?, dy.contiguous()?);
    let (xs, dys) = (elements::<T>("rms_norm", &x)?, elements::<T>("rms_norm", &dy)?);
    let (xs, dys) = (&*xs, &*dys);
    let dx = build(
        xs.len(),
        width,
        #[inline(always)]
        |i, out| {
            let (x, dy) = (&xs[i * width..][..width], &dys[i * width..][..width]);
            let scale = reciprocal_rms(x);
            // dx = s·dy − s³·x·mean(x·dy), with s = 1/rms
            let along = scale * scale * scale * dot(x, dy) / T::of_f64(width as f64);
            fill(out, x.iter().zip(dy).map(|(&x, &dy)| scale * dy - along * x))
        },
    );
    tensor(dx, x.dims())
}
