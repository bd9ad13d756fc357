//! Adding in place: y += x, for gradients that arrive by several paths.

use crate::composed::fast_or;
use crate::real::Real;
use crate::rows::vectorized;
use crate::storage::{apart, elements, modify, overwrite};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Elements per task.
const PART: usize = 1 << 15;

/// y += x in place; both of one shape and dtype, y contiguous. Every view of y's storage sees the change.
pub fn add_assign(y: &Tensor, x: &Tensor) -> Result<()> {
    crate::same_shape("add_assign", y, x)?;
    fast_or!(y, T => cpu_add_assign::<T>(y, x), overwrite(y, &(y + x)?))
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
