//! Scaling in place by a factor that lies on the device: y ← s·y. The host does not wait to learn it.

use crate::composed::dispatch;
use crate::cuda;
use crate::real::Real;
use crate::rows::vectorized;
use crate::storage::{apart, elements, modify, overwrite};
use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

/// Elements per task.
const PART: usize = 1 << 15;

/// y ← s·y in place; y: any shape, contiguous; s: one element. Every view of y's storage sees the change.
///
/// A factor of exactly 1 costs no pass over y.
pub fn assign(y: &Tensor, s: &Tensor) -> Result<()> {
    if s.elem_count() != 1 {
        bail!("scale: the factor must be one element, not {:?}", s.shape())
    }
    if cuda::takes_f32_too(y) {
        return cuda::assign::scale(y, s);
    }
    let s = s.to_dtype(y.dtype())?.reshape(())?;
    dispatch!(y, cpu T: cpu_assign::<T>(y, &s), else: overwrite(y, &y.broadcast_mul(&s)?))
}

fn cpu_assign<T: Real>(y: &Tensor, s: &Tensor) -> Result<()> {
    apart("scale", &[y], &[s])?;
    let s = elements::<T>("scale", s)?[0];
    if s == T::ONE {
        return Ok(());
    }
    modify::<T, _>("scale", y, |ys| {
        ys.par_chunks_mut(PART).for_each(|y| {
            vectorized(
                #[inline(always)]
                || y.iter_mut().for_each(|y| *y *= s),
            )
        });
        Ok(())
    })
}
