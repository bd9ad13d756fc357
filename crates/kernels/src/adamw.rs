//! AdamW in one pass over weights, gradients and both moments, in place.

use crate::cast;
use crate::composed::{dispatch, widen};
use crate::cuda;
use crate::real::Real;
use crate::rows::vectorized;
use crate::storage::{apart, elements, modify, overwrite};
use candle_core::{Result, Tensor, bail};
use rayon::prelude::*;

/// Elements per task.
const PART: usize = 1 << 14;

/// Hyperparameters of one step.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct AdamW {
    /// Learning rate, schedule included.
    pub lr: f64,
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to the root of the second moment.
    pub eps: f64,
    /// Decoupled decay: w ← w·(1 − lr·weight_decay) before the step.
    pub weight_decay: f64,
    /// Number of this step, from 1, for the bias corrections 1 − betaᵗ.
    pub step: u32,
}

/// One tensor's part of a step.
#[derive(Debug, Clone)]
pub struct Update {
    /// The weight, contiguous.
    pub w: Tensor,
    /// Its gradient, which may be wider than the weight.
    pub g: Tensor,
    /// First moment, contiguous.
    pub m: Tensor,
    /// Second moment, contiguous.
    pub v: Tensor,
    /// Gets the new weight in another dtype: what is computed with, where that is not the weight itself.
    pub copy: Option<Tensor>,
    /// The constants.
    pub with: AdamW,
}

/// m ← lerp(m, g, 1−β1); v ← lerp(v, g², 1−β2); w −= lr/(1−β1ᵗ) · m / (√(v/(1−β2ᵗ)) + eps); copy ← w, in place, for
/// each of the updates.
///
/// The tensors of an update have one shape, and all that is changed has a storage of its own. Half-precision tensors
/// are computed in f32 and rounded back.
pub fn step(updates: &[Update]) -> Result<()> {
    for u in updates {
        u.check()?;
    }
    let (kernels, others): (Vec<_>, Vec<_>) = updates.iter().partition(|u| cuda::adamw::takes(u));
    cuda::adamw::step(&kernels)?;
    for u in others {
        dispatch!(&u.w, cpu T: cpu_step::<T>(u), else: composed(u))?;
        if let Some(copy) = &u.copy {
            cast::assign(copy, &u.w)?;
        }
    }
    Ok(())
}

impl Update {
    fn check(&self) -> Result<()> {
        for t in [&self.g, &self.m, &self.v].into_iter().chain(&self.copy) {
            crate::same_shape("adamw", &self.w, t)?;
        }
        if self.with.step == 0 {
            bail!("adamw: steps count from 1")
        }
        let changed: Vec<&Tensor> = [&self.w, &self.m, &self.v].into_iter().chain(&self.copy).collect();
        apart("adamw", &changed, &[&self.g])
    }
}

/// 1 − βᵗ.
fn correction(beta: f64, step: u32) -> f64 {
    1.0 - beta.powf(f64::from(step))
}

fn composed(Update { w, g, m, v, with, .. }: &Update) -> Result<()> {
    let (wide_w, wide_g) = (widen(w)?, widen(g)?);
    let lerp = |from: &Tensor, to: &Tensor, by: f64| -> Result<Tensor> {
        let from = widen(from)?;
        &from + ((to - &from)? * by)?
    };
    let new_m = lerp(m, &wide_g, 1.0 - with.beta1)?;
    let new_v = lerp(v, &wide_g.sqr()?, 1.0 - with.beta2)?;
    let root = ((&new_v / correction(with.beta2, with.step))?.sqrt()? + with.eps)?;
    let change = ((&new_m / root)? * (with.lr / correction(with.beta1, with.step)))?;
    let new_w = ((wide_w * (1.0 - with.lr * with.weight_decay))? - change)?;
    for (t, new) in [(m, new_m), (v, new_v), (w, new_w)] {
        overwrite(t, &new.to_dtype(t.dtype())?)?;
    }
    Ok(())
}

fn cpu_step<T: Real>(Update { w, g, m, v, with, .. }: &Update) -> Result<()> {
    let g = g.contiguous()?;
    let gs = elements::<T>("adamw", &g)?;
    let f = Factors::<T>::of(with);
    modify::<T, _>("adamw", w, |w| {
        modify::<T, _>("adamw", m, |m| {
            modify::<T, _>("adamw", v, |v| {
                let state = m.par_chunks_mut(PART).zip(v.par_chunks_mut(PART));
                let parts = w.par_chunks_mut(PART).zip(gs.par_chunks(PART)).zip(state);
                parts.for_each(|((w, g), (m, v))| f.apply(w, g, m, v));
                Ok(())
            })
        })
    })
}

/// The step's constants, rounded once.
pub(crate) struct Factors<T> {
    pub(crate) to_g: T,
    pub(crate) to_square: T,
    pub(crate) keep: T,
    pub(crate) rate: T,
    pub(crate) root_scale: T,
    pub(crate) eps: T,
}

impl<T: Real> Factors<T> {
    pub(crate) fn of(with: &AdamW) -> Self {
        Factors {
            to_g: T::of_f64(1.0 - with.beta1),
            to_square: T::of_f64(1.0 - with.beta2),
            keep: T::of_f64(1.0 - with.lr * with.weight_decay),
            rate: T::of_f64(with.lr / correction(with.beta1, with.step)),
            root_scale: T::of_f64(1.0 / correction(with.beta2, with.step)),
            eps: T::of_f64(with.eps),
        }
    }

    fn apply(&self, w: &mut [T], g: &[T], m: &mut [T], v: &mut [T]) {
        vectorized(
            #[inline(always)]
            || {
                for (((w, &g), m), v) in w.iter_mut().zip(g).zip(m).zip(v) {
                    *m += self.to_g * (g - *m);
                    *v += self.to_square * (g * g - *v);
                    *w = *w * self.keep - self.rate * *m / ((*v * self.root_scale).root() + self.eps);
                }
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use candle_core::Device;

    #[test]
    fn the_composition_and_the_fast_step_agree() {
        let t = |seed: f64| (Tensor::arange(0.0, 35.0, &Device::Cpu).unwrap() * seed).unwrap().sin().unwrap();
        let state = || Update {
            w: t(0.3),
            g: t(0.7),
            m: t(1.1),
            v: t(1.3).sqr().unwrap(),
            copy: None,
            with: AdamW { lr: 0.1, beta1: 0.8, beta2: 0.9, eps: 1e-8, weight_decay: 0.1, step: 3 },
        };
        let (a, b) = (state(), state());
        composed(&a).unwrap();
        step(std::slice::from_ref(&b)).unwrap();
        for (a, b) in [(a.w, b.w), (a.m, b.m), (a.v, b.v)] {
            let error = (a - b).unwrap().abs().unwrap().max(0).unwrap().to_scalar::<f64>().unwrap();
            assert!(error < 1e-14, "{error:e}");
        }
    }
}
