//! RMS norm over the last axis, without a gain: y = x·s, s = 1 / √(mean x² + eps).

use crate::accumulate::Sum;
use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::real::Real;
use crate::rows::{build, build_noting, dot, fill};
use crate::storage::{elements, tensor};
use candle_core::{D, Result, Tensor, bail};

/// f32's machine epsilon, as `torch.nn.functional.rms_norm` takes for f32 and half-precision inputs.
pub const EPS: f64 = f32::EPSILON as f64;

/// What [`forward`] returns, and all that [`backward`] needs: the input itself need not be kept.
#[derive(Debug, Clone)]
pub struct Normed {
    /// The result, (…, C).
    pub y: Tensor,
    /// s of each row, (…): f32 (f64 for f64 inputs).
    pub scale: Tensor,
}

impl Normed {
    /// Errors unless `dy` can be the gradient of its y.
    pub(crate) fn check(&self, op: &str, dy: &Tensor) -> Result<()> {
        crate::same_shape(op, &self.y, dy)?;
        let leading = &dy.dims()[..dy.rank().saturating_sub(1)];
        if self.scale.dims() != leading {
            let rows: usize = leading.iter().product();
            bail!("{op}: scale of shape {:?} for {rows} rows", self.scale.shape())
        }
        Ok(())
    }
}

/// The op as a composition of differentiable candle ops.
///
/// x: (…, C) → (…, C).
pub fn reference(x: &Tensor) -> Result<Tensor> {
    let wide = widen(x)?;
    let rms = (wide.sqr()?.mean_keepdim(D::Minus1)? + EPS)?.sqrt()?;
    wide.broadcast_div(&rms)?.to_dtype(x.dtype())
}

/// x: (…, C).
pub fn forward(x: &Tensor) -> Result<Normed> {
    dispatch!(x, cuda: cuda::rms_norm::forward(x), cpu T: cpu_forward::<T>(x), else: {
        let scale = (widen(x)?.sqr()?.mean(D::Minus1)? + EPS)?.sqrt()?.recip()?;
        Ok(Normed { y: reference(x)?, scale })
    })
}

/// dy: gradient of y, of its shape → sum + dx, dx = s·(dy − y·mean(y·dy)).
pub fn backward(normed: &Normed, dy: &Tensor, sum: Option<Sum>) -> Result<Tensor> {
    normed.check("rms_norm backward", dy)?;
    dispatch!(
        dy,
        cuda: cuda::rms_norm::backward(normed, dy, sum),
        cpu T: Sum::add(sum, cpu_backward::<T>(normed, dy)?),
        else: Sum::add(sum, composed(normed, dy)?),
    )
}

fn composed(Normed { y, scale }: &Normed, dy: &Tensor) -> Result<Tensor> {
    let (y, wide) = (widen(y)?, widen(dy)?);
    let along = (&y * &wide)?.mean_keepdim(D::Minus1)?;
    let dx = (&wide - y.broadcast_mul(&along)?)?.broadcast_mul(&scale.unsqueeze(D::Minus1)?)?;
    dx.to_dtype(dy.dtype())
}

/// 1 / √(mean x² + eps) of one row.
#[inline(always)]
pub(crate) fn reciprocal_rms<T: Real>(x: &[T]) -> T {
    T::ONE / (dot(x, x) / T::of_f64(x.len() as f64) + T::of_f64(EPS)).root()
}

fn cpu_forward<T: Real>(x: &Tensor) -> Result<Normed> {
    let width = x.dim(D::Minus1)?;
    let x = x.contiguous()?;
    let xs = elements::<T>("rms_norm", &x)?;
    let xs = &*xs;
    let (y, scale) = build_noting(
        xs.len(),
        width,
        #[inline(always)]
        |i, out| {
            let x = &xs[i * width..][..width];
            let scale = reciprocal_rms(x);
            (fill(out, x.iter().map(|&x| x * scale)), scale)
        },
    );
    let leading = &x.dims()[..x.rank() - 1];
    Ok(Normed { y: tensor(y, x.dims())?, scale: tensor(scale, leading)? })
}

fn cpu_backward<T: Real>(Normed { y, scale }: &Normed, dy: &Tensor) -> Result<Tensor> {
    let width = y.dim(D::Minus1)?;
    let (y, scale, dy) = (y.contiguous()?, scale.contiguous()?, dy.contiguous()?);
    let (ys, dys) = (elements::<T>("rms_norm", &y)?, elements::<T>("rms_norm", &dy)?);
    let scales = elements::<T>("rms_norm", &scale)?;
    let (ys, dys, scales) = (&*ys, &*dys, &*scales);
    let dx = build(
        ys.len(),
        width,
        #[inline(always)]
        |i, out| {
            let (y, dy) = (&ys[i * width..][..width], &dys[i * width..][..width]);
            let scale = scales[i];
            let along = dot(y, dy) / T::of_f64(width as f64);
            fill(out, y.iter().zip(dy).map(|(&y, &dy)| scale * (dy - y * along)))
        },
    );
    tensor(dx, y.dims())
}
