//! Soft cap of logits in place: z ← cap·tanh(z/cap), for scoring; training has it inside [`crate::head`].

use crate::composed::dispatch;
use crate::cuda;
use crate::real::Real;
use crate::rows::vectorized;
use crate::storage::{modify, overwrite};
use candle_core::{Result, Tensor};
use rayon::prelude::*;

/// Elements per task.
const PART: usize = 1 << 14;

/// The capped logits as a composition of candle ops. z: any shape.
pub fn reference(z: &Tensor, cap: f64) -> Result<Tensor> {
    (z / cap)?.tanh()? * cap
}

/// z ← cap·tanh(z/cap) in place; z contiguous, cap > 0. Every view of z's storage sees the change.
pub fn assign(z: &Tensor, cap: f64) -> Result<()> {
    if cuda::takes_f32_too(z) {
        return cuda::assign::soft_cap(z, cap);
    }
    dispatch!(z, cpu T: cpu_assign::<T>(z, cap), else: overwrite(z, &reference(z, cap)?))
}

fn cpu_assign<T: Real>(z: &Tensor, cap: f64) -> Result<()> {
    let (cap, inverse) = (T::of_f64(cap), T::of_f64(1.0 / cap));
    modify::<T, _>("soft_cap", z, |zs| {
        zs.par_chunks_mut(PART).for_each(|z| {
            vectorized(
                #[inline(always)]
                || z.iter_mut().for_each(|z| *z = cap * (*z * inverse).hyperbolic_tangent()),
            )
        });
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::{DType, Device};

    #[test]
    fn soft_cap_matches_the_reference_in_f64_on_odd_sizes_and_views() {
        let z = Tensor::randn(0f32, 40.0, (3, 16_411), &Device::Cpu).unwrap();
        let wanted = reference(&z.to_dtype(DType::F64).unwrap(), 15.0).unwrap().narrow(0, 1, 2).unwrap();
        let part = z.narrow(0, 1, 2).unwrap();
        assign(&part, 15.0).unwrap();
        let error = (part.to_dtype(DType::F64).unwrap() - wanted).unwrap().abs().unwrap();
        let worst = error.flatten_all().unwrap().max(0).unwrap().to_scalar::<f64>().unwrap();
        assert!(worst < 1e-5, "{worst:e}");
        let first: Vec<f32> = z.get(0).unwrap().to_vec1().unwrap();
        assert!(first.iter().any(|z| z.abs() > 15.0), "rows beside the view are left alone");
    }
}
