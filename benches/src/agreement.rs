//! Whether the losses of one model on two devices are the same up to rounding.

use anyhow::{Result, ensure};

/// How far the loss of a GPU, in bf16, may be from a CPU's, in f32, as a share of the CPU's.
///
/// Both start from the same small random projections and see the same text, so that only rounding parts them: ten
/// steps in emulated bf16 stayed within 0.004. Twenty steps let it grow, and another device sums in another order.
/// This finds what is grossly wrong in the whole; the tests of each kernel are tighter.
pub const TOLERANCE: f64 = 0.03;

/// The largest distance in nats of steps' (CPU's, GPU's) mean losses.
///
/// Errors: there is no step, or one whose losses are no numbers or further apart than [`TOLERANCE`].
pub fn apart(losses: &[(f64, f64)]) -> Result<f64> {
    ensure!(!losses.is_empty(), "no step was made");
    let mut most = 0f64;
    for (step, &(cpu, gpu)) in losses.iter().enumerate() {
        let (step, apart) = (step + 1, (cpu - gpu).abs());
        ensure!(
            cpu.is_finite() && gpu.is_finite(),
            "step {step}: the loss is {cpu} on the CPU, {gpu} on the GPU"
        );
        ensure!(
            apart <= TOLERANCE * cpu.abs(),
            "step {step}: the loss is {cpu:.4} on the CPU and {gpu:.4} on the GPU, more than {} % apart",
            TOLERANCE * 100.0
        );
        most = most.max(apart);
    }
    Ok(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_distance_of_any_step_is_reported() {
        let most = apart(&[(10.0, 10.0), (9.0, 9.25), (8.0, 7.9)]).unwrap();
        assert!((most - 0.25).abs() < 1e-12, "{most}");
    }

    #[test]
    fn a_loss_that_is_no_number_never_agrees() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            for losses in [[(9.0, 9.0), (8.0, bad)], [(bad, 9.0), (8.0, 8.0)], [(bad, bad), (8.0, 8.0)]] {
                assert!(apart(&losses).is_err(), "{losses:?}");
            }
        }
        assert!(apart(&[]).is_err(), "nothing was compared");
    }

    #[test]
    fn one_step_beyond_the_tolerance_is_enough() {
        let error = apart(&[(10.0, 10.0), (10.0, 10.31), (10.0, 10.0)]).unwrap_err().to_string();
        assert!(error.contains("step 2") && error.contains("10.3100"), "{error}");
        assert!(apart(&[(10.0, 10.29)]).is_ok() && apart(&[(10.0, 9.69)]).is_err());
    }
}
