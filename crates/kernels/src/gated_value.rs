//! Gated value add: y = v + 2·sigmoid(gate)·ve, one gate per key/value head (ResFormer, arXiv 2410.17897).

use crate::composed::{dispatch, gradients, widen};
use crate::cuda;
use crate::real::Real;
use crate::rows::{build, dot, fill, rows_per_task, vectorized};
use crate::storage::{elements, tensor};
use candle_core::{D, Result, Tensor, bail};
use rayon::prelude::*;

/// Gradients of [`forward`]; the one for v is dy itself.
#[derive(Debug, Clone)]
pub struct Gradients {
    /// (B, T, H, D).
    pub v: Tensor,
    /// (B, T, H).
    pub gate: Tensor,
    /// (B, T, H, D).
    pub ve: Tensor,
}

/// The op as a composition of differentiable candle ops; shapes as in [`forward`].
pub fn reference(v: &Tensor, gate: &Tensor, ve: &Tensor) -> Result<Tensor> {
    let two_sigmoid = ((widen(gate)?.neg()?.exp()? + 1.0)?.recip()? * 2.0)?;
    let add = widen(ve)?.broadcast_mul(&two_sigmoid.unsqueeze(D::Minus1)?)?;
    (widen(v)? + add)?.to_dtype(v.dtype())
}

/// v, ve: (B, T, H, D); gate: (B, T, H), before the sigmoid → (B, T, H, D).
pub fn forward(v: &Tensor, gate: &Tensor, ve: &Tensor) -> Result<Tensor> {
    check(v, gate, ve)?;
    dispatch!(
        v,
        cuda: cuda::gated_value::forward(v, gate, ve),
        cpu T: cpu_forward::<T>(v, gate, ve),
        else: reference(v, gate, ve),
    )
}

/// dy: (B, T, H, D), gradient of y = forward(v, gate, ve).
pub fn backward(v: &Tensor, gate: &Tensor, ve: &Tensor, dy: &Tensor) -> Result<Gradients> {
    check(v, gate, ve)?;
    crate::same_shape("gated_value backward", v, dy)?;
    dispatch!(v, cuda: cuda::gated_value::backward(gate, ve, dy), cpu T: cpu_backward::<T>(gate, ve, dy), else: {
        let [v, gate, ve] = gradients([v, gate, ve], dy, |[v, gate, ve]| reference(v, gate, ve))?;
        Ok(Gradients { v, gate, ve })
    })
}

fn check(v: &Tensor, gate: &Tensor, ve: &Tensor) -> Result<()> {
    crate::same_shape("gated_value", v, ve)?;
    let dims = v.dims();
    if dims.len() != 4 || dims[3] == 0 || gate.dims() != &dims[..3] {
        bail!(
            "gated_value: v of shape {:?} needs a gate of shape (B, T, H), not {:?}",
            v.shape(),
            gate.shape()
        )
    }
    Ok(())
}

fn cpu_forward<T: Real>(v: &Tensor, gate: &Tensor, ve: &Tensor) -> Result<Tensor> {
    let width = v.dim(D::Minus1)?;
    let (v, gate, ve) = (v.contiguous()?, gate.contiguous()?, ve.contiguous()?);
    let (vs, gates, ves) = (
        elements::<T>("gated_value", &v)?,
        elements::<T>("gated_value", &gate)?,
        elements::<T>("gated_value", &ve)?,
    );
    let (vs, gates, ves) = (&*vs, &*gates, &*ves);
    let y = build(
        ves.len(),
        width,
        #[inline(always)]
        |i, out| {
            let (v, ve) = (&vs[i * width..][..width], &ves[i * width..][..width]);
            let scale = T::TWO * gates[i].sigmoid();
            fill(out, v.iter().zip(ve).map(|(&v, &ve)| v + scale * ve))
        },
    );
    tensor(y, v.dims())
}

fn cpu_backward<T: Real>(gate: &Tensor, ve: &Tensor, dy: &Tensor) -> Result<Gradients> {
    let width = ve.dim(D::Minus1)?;
    let (gate, ve, dy) = (gate.contiguous()?, ve.contiguous()?, dy.contiguous()?);
    let (gates, ves, dys) = (
        elements::<T>("gated_value", &gate)?,
        elements::<T>("gated_value", &ve)?,
        elements::<T>("gated_value", &dy)?,
    );
    let (gates, ves, dys) = (&*gates, &*ves, &*dys);
    let d_ve = build(
        ves.len(),
        width,
        #[inline(always)]
        |i, out| {
            let scale = T::TWO * gates[i].sigmoid();
            fill(out, dys[i * width..][..width].iter().map(|&dy| scale * dy))
        },
    );
    let mut d_gate = vec![T::ZERO; gates.len()];
    let per_task = rows_per_task(width);
    d_gate.par_chunks_mut(per_task).enumerate().for_each(|(t, part)| {
        vectorized(
            #[inline(always)]
            || {
                for (k, d) in part.iter_mut().enumerate() {
                    let i = t * per_task + k;
                    let s = gates[i].sigmoid();
                    let slope = T::TWO * s * (T::ONE - s);
                    *d = slope * dot(&ves[i * width..][..width], &dys[i * width..][..width]);
                }
            },
        )
    });
    Ok(Gradients { v: dy.clone(), gate: tensor(d_gate, gate.dims())?, ve: tensor(d_ve, ve.dims())? })
}
