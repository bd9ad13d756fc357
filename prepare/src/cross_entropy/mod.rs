//! Cross-entropy of logits in f32, a position at a time, and whether they are numbers at all.
//!
//! One pass per position finds the maximum, a second sums exp(logit − max); no softmax is ever stored. On a GPU it
//! is one kernel: by candle's ops the exam would take longer than anything else in a trial but training.

#[cfg(feature = "cuda")]
mod cuda;

use candle_core::{CpuStorage, D, DType, Result, Storage, Tensor};
use rayon::prelude::*;

/// Lanes of the inner loops: whatever vectors the machine has, several of them.
const LANES: usize = 16;

/// Nats of each target under `softmax(logits)`, or `None` when a logit is NaN or infinite.
///
/// logits: (B, T, V) f32, bf16 or f16; targets: (B·T) ids below V → (B·T).
pub fn nats(logits: &Tensor, targets: &[u32]) -> Result<Option<Vec<f32>>> {
    let vocab = logits.dim(D::Minus1)?;
    if let Some(id) = targets.iter().find(|&&id| id as usize >= vocab) {
        candle_core::bail!("target {id} is outside a vocabulary of {vocab}")
    }
    #[cfg(feature = "cuda")]
    if logits.device().is_cuda() {
        let nats = cuda::nats(logits, targets)?;
        return Ok((!nats.iter().any(|nats| nats.is_nan())).then_some(nats));
    }
    let logits = logits.to_dtype(DType::F32)?.contiguous()?;
    let (storage, layout) = logits.storage_and_layout();
    let (Storage::Cpu(CpuStorage::F32(values)), Some((start, end))) =
        (&*storage, layout.contiguous_offsets())
    else {
        candle_core::bail!("logits are neither contiguous nor f32 after conversion");
    };
    let positions = values[start..end].par_chunks_exact(vocab).zip(targets.par_iter());
    Ok(positions.map(|(row, &target)| position_nats(row, target as usize)).collect())
}

/// Whether no value is NaN or infinite.
pub fn all_finite(values: &Tensor) -> Result<bool> {
    // 0 · x is 0 for every number, and NaN for NaN and infinities; in two steps, as a GPU makes one sum on one block
    let zeros = values.to_dtype(DType::F32)?.affine(0.0, 0.0)?;
    let sum = zeros.sum(D::Minus1)?.sum_all()?.to_scalar::<f32>()?;
    Ok(!sum.is_nan())
}

/// −ln softmax(logits)[target], or `None` when a logit is NaN or infinite.
fn position_nats(logits: &[f32], target: usize) -> Option<f32> {
    let mut max = [f32::NEG_INFINITY; LANES];
    let mut zero = [0.0f32; LANES];
    let (chunks, rest) = logits.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            max[lane] = if chunk[lane] > max[lane] { chunk[lane] } else { max[lane] };
            zero[lane] += chunk[lane] * 0.0; // NaN once and for all if one is not finite
        }
    }
    let max = max.iter().chain(rest).copied().fold(f32::NEG_INFINITY, f32::max);
    if zero.iter().sum::<f32>().is_nan() || rest.iter().any(|v| !v.is_finite()) {
        return None;
    }
    let mut sums = [0.0f32; LANES];
    for chunk in chunks {
        for lane in 0..LANES {
            sums[lane] += exp(chunk[lane] - max);
        }
    }
    let total: f64 = sums.iter().map(|&s| f64::from(s)).sum::<f64>()
        + rest.iter().map(|&v| f64::from(exp(v - max))).sum::<f64>();
    Some((f64::from(max) - f64::from(logits[target]) + total.ln()) as f32)
}

/// e^x for x ≤ 0 within 3e-7 of its value, without a branch or a call, so that loops over it vectorise.
///
/// x = n·ln 2 + r, |r| ≤ ln 2 / 2; the polynomial in r is that of Cephes' `expf` (S. Moshier). Results
/// below 1e-37 come out as about 1e-38, which is nothing beside the 1 of the largest logit.
#[inline(always)]
fn exp(x: f32) -> f32 {
    const ROUND: f32 = 12_582_912.0; // 1.5 · 2²³: adding it leaves the integer in the mantissa
    let x = if x < -87.0 { -87.0 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * 0.693_359_4 + n * 2.121_944_4e-4; // ln 2 in two parts, the first exact in few bits
    let mut p = 1.987_569_1e-4;
    for c in [1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5] {
        p = p * r + c;
    }
    let exponent = shifted.to_bits().wrapping_sub(ROUND.to_bits()).wrapping_add(127) << 23;
    (p * r * r + r + 1.0) * f32::from_bits(exponent)
}

#[cfg(test)]
mod tests {
    use super::exp;

    /// Oracle: the standard library in f64.
    #[test]
    fn exp_is_within_3e_7_of_f64() {
        for i in 0..=870_000 {
            let x = -(i as f32) * 1e-4;
            let (ours, right) = (f64::from(exp(x)), f64::from(x).exp());
            assert!((ours / right - 1.0).abs() < 3e-7, "exp({x}) = {ours}, not {right}");
        }
        assert_eq!(exp(0.0), 1.0);
        assert!(exp(-1e30) < 2e-38);
    }
}
