//! Adding: a + b, and y += x in place, for gradients that arrive by several paths.
//!
//! A backward that takes a [`Sum`] adds to it on the way, which saves passes over memory where the device's own
//! kernel does it.

use crate::composed::dispatch;
use crate::cuda;
use crate::real::Real;
use crate::rows::vectorized;
use crate::storage::{apart, elements, modify, overwrite};
use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

/// Elements per task.
const PART: usize = 1 << 15;

/// The gradient that other paths have given so far, to which a backward adds its own.
#[derive(Debug, Clone, Copy)]
pub struct Sum<'a> {
    /// Of the shape and dtype of the gradient.
    pub so_far: &'a Tensor,
    /// Nobody else reads this buffer, so that the result may take its place.
    pub owned: bool,
}

impl Sum<'_> {
    /// made + sum, in whichever buffer is free; `made` is one that its caller has just allocated.
    pub(crate) fn add(sum: Option<Sum>, made: Tensor) -> Result<Tensor> {
        match sum {
            None => Ok(made),
            Some(sum) if sum.owned && sum.so_far.is_contiguous() => {
                add_assign(sum.so_far, &made)?;
                Ok(sum.so_far.clone())
            }
            Some(sum) => {
                add_assign(&made, sum.so_far)?;
                Ok(made)
            }
        }
    }

    /// Errors unless it can be a gradient of this shape, of the type and on the device of `like`.
    pub(crate) fn check(&self, op: &str, shape: &[usize], like: &Tensor) -> Result<()> {
        if self.so_far.dims() != shape {
            bail!("{op}: a sum of shape {:?} for a gradient of {shape:?}", self.so_far.shape())
        }
        cuda::alike(op, like.device(), like.dtype(), &[self.so_far])
    }

    /// For a kernel that adds on the way: what it reads, contiguous, and what it writes, which may be the same.
    pub(crate) fn places(op: &str, sum: Option<Sum>, like: &Tensor) -> Result<(Option<Tensor>, Tensor)> {
        let new = || cuda::empty(like.shape(), like.dtype(), like.device());
        Ok(match sum {
            None => (None, new()?),
            Some(sum @ Sum { so_far, owned }) => {
                sum.check(op, like.dims(), like)?;
                let before = so_far.contiguous()?;
                let after = if owned || !so_far.is_contiguous() { before.clone() } else { new()? };
                (Some(before), after)
            }
        })
    }
}

/// y += x in place; both of one shape and dtype, y contiguous. Every view of y's storage sees the change.
pub fn add_assign(y: &Tensor, x: &Tensor) -> Result<()> {
    crate::same_shape("add_assign", y, x)?;
    if cuda::takes_f32_too(y) {
        return cuda::assign::add(y, x);
    }
    dispatch!(y, cpu T: cpu_add_assign::<T>(y, x), else: overwrite(y, &(y + x)?))
}

/// a + b, both of one shape and dtype.
pub fn add(a: &Tensor, b: &Tensor) -> Result<Tensor> {
    crate::same_shape("add", a, b)?;
    // candle's own kernel reads an element a time
    if cuda::takes_f32_too(a) && a.dtype() == b.dtype() { cuda::assign::sum(a, b) } else { a + b }
}

fn cpu_add_assign<T: Real>(y: &Tensor, x: &Tensor) -> Result<()> {
    let x = x.contiguous()?;
    apart("add_assign", &[y], &[&x])?;
    let xs = elements::<T>("add_assign", &x)?;
    modify::<T, _>("add_assign", y, |ys| {
        ys.par_chunks_mut(PART).zip(xs.par_chunks(PART)).for_each(|(y, x)| {
            vectorized(
                #[inline(always)]
                || y.iter_mut().zip(x).for_each(|(y, &x)| *y += x),
            )
        });
        Ok(())
    })
}
