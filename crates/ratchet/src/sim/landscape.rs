//! A formula in place of five minutes of training: settings in, val_bpb out, in microseconds.
//!
//! It has the structure that makes such a search hard, each part for a reason:
//!
//! | part | formula |
//! |---|---|
//! | loss | `E + M·(N/N₀)^−α + D·(T/T₀)^−β + penalties`: capacity and data (Hoffmann et al. 2022, arXiv 2203.15556) |
//! | time | `steps = 300 s / (B / rate + update)`: whatever a token costs more, the budget buys less of |
//! | batch | `T = steps·B / (1 + B/B_crit)`: beyond the critical batch, tokens repeat each other (McCandlish et al. 2018, arXiv 1812.06162) |
//! | learning rate × batch | the best rate grows as √B (Malladi et al. 2022, arXiv 2205.10287) |
//! | β₂ × batch | the second moment's half-life is right in tokens, not in steps (Marek et al. 2025, arXiv 2507.07101) |
//! | decay × learning rate | what shrinks a weight is their product |
//! | depth × aspect | both make the model larger; how tall it should be for its width is a matter of its own |
//! | window × time | a shorter window sees less and costs less |
//! | memory | `rows·width·depth` of activations: beyond 80 GB the run crashes |
//! | chance | normal, of known σ, by the settings and the seed of the run |
//!
//! At the start, one update takes four times as many tokens as it should: the baseline's batch is large, as a prior
//! from larger machines has it. What lies around the start (where each optimum is, and how much it matters) is
//! drawn from the landscape's seed.

use rand::{RngExt, SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};
use statrs::distribution::{ContinuousCDF, Normal};

use super::settings::Settings;

/// Standard deviation of one run: the estimate for val_bpb on one GPU.
pub const SIGMA: f64 = 0.0009;

/// Seconds of training.
const BUDGET_S: f64 = 300.0;
/// Tokens of a row.
const CONTEXT: f64 = 2048.0;
/// Tokens of the vocabulary.
const VOCABULARY: f64 = 8192.0;
/// FLOP a second that a full card does: 40 % of an H100's 989 TFLOP/s.
const FLOPS: f64 = 4.0e14;
/// Rows at which a card is half full.
const HALF_FULL_ROWS: f64 = 2.0;
/// Seconds that one update takes at the start's size, beside its tokens.
const UPDATE_S: f64 = 0.012;
/// Parameters in matrices at the start: 12·depth·width².
const START_PARAMETERS: f64 = 12.0 * 8.0 * 512.0 * 512.0;
/// Useful tokens at the start, rounded; only a unit.
const START_TOKENS: f64 = 3.0e8;
/// The loss that no model and no data remove, and what capacity and data take off at the start, in bpb.
const FLOOR: f64 = 0.575;
const CAPACITY: (f64, f64) = (0.17, 0.34);
const DATA: (f64, f64) = (0.25, 0.28);
/// Bytes of activations for one token of a row in one layer, for each channel.
const ACTIVATION_BYTES: f64 = 70.0;
/// Bytes of one logit: in bf16, and its gradient in f32.
const LOGIT_BYTES: f64 = 6.0;
/// Bytes of one parameter with gradient and optimizer state.
const PARAMETER_BYTES: f64 = 16.0;
/// Memory of the card.
const MEMORY_GB: f64 = 80.0;

/// The run does not fit into memory.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("CUDA out of memory: {needed_gb:.1} GB needed, {MEMORY_GB:.0} GB there")]
pub struct OutOfMemory {
    /// What it would take.
    pub needed_gb: f64,
}

/// One landscape of the family; what is best, and by how much, differs from seed to seed.
#[derive(Clone, Debug, PartialEq)]
pub struct Landscape {
    seed: u64,
    /// Standard deviation of one run.
    sigma: f64,
    /// Tokens of a batch beyond which more of them add little.
    critical_batch: f64,
    /// Where each penalty has its bottom.
    best: Best,
}

/// Bottoms of the penalties. Rates are those for the start's batch.
#[derive(Clone, Debug, PartialEq)]
struct Best {
    matrix_lr: f64,
    embed_lr: f64,
    head_lr: f64,
    /// Learning rate times decay.
    shrink: f64,
    /// Tokens over which the second moment halves.
    half_life: f64,
    warmdown: f64,
    final_lr: f64,
    aspect: f64,
    logit_cap: f64,
}

impl Landscape {
    /// The landscape of this seed, with the usual noise.
    pub fn new(seed: u64) -> Self {
        let mut rng = StdRng::seed_from_u64(seed);
        // times or divided by up to so much
        let mut about = |centre: f64, most: f64| centre * rng.random_range(-most.ln()..most.ln()).exp();
        let best = Best {
            matrix_lr: about(0.04, 1.3),
            embed_lr: about(0.6, 2.0),
            head_lr: about(0.004, 2.0),
            shrink: about(0.04 * 0.2, 2.5),
            half_life: about(5.0e6, 1.5),
            warmdown: about(0.65, 1.2),
            final_lr: about(0.04, 1.5),
            aspect: about(60.0, 1.4),
            logit_cap: about(12.0, 1.6),
        };
        Self { seed, sigma: SIGMA, critical_batch: about(0.86e6, 1.15), best }
    }

    /// The same with other noise: standard deviation of one run, in bpb.
    pub fn with_sigma(self, sigma: f64) -> Self {
        Self { sigma, ..self }
    }

    /// The val_bpb that runs of these settings scatter around.
    ///
    /// # Errors
    /// [`OutOfMemory`] beyond the ridge.
    pub fn truth(&self, s: &Settings) -> Result<f64, OutOfMemory> {
        self.memory_gb(s)?;
        let useful = self.useful_tokens(s) / START_TOKENS;
        let capacity = CAPACITY.0 * (parameters(s) / START_PARAMETERS).powf(-CAPACITY.1);
        Ok(FLOOR + capacity + DATA.0 * useful.powf(-DATA.1) + self.penalties(s))
    }

    /// What one run measures, the same whenever the same settings are run with the same seed.
    ///
    /// # Errors
    /// [`OutOfMemory`] beyond the ridge.
    pub fn value(&self, s: &Settings, run_seed: u64) -> Result<f64, OutOfMemory> {
        let hash = Sha256::digest(format!("{} {run_seed} {s:?}", self.seed));
        let mut seed = [0; 32];
        seed.copy_from_slice(&hash);
        let luck: f64 = StdRng::from_seed(seed).random_range(f64::EPSILON..1.0);
        Ok(self.truth(s)? + self.sigma * Normal::standard().inverse_cdf(luck))
    }

    /// Peak memory, GB.
    ///
    /// # Errors
    /// [`OutOfMemory`] where the card has less.
    pub fn memory_gb(&self, s: &Settings) -> Result<f64, OutOfMemory> {
        let tokens = rows(s) * CONTEXT;
        let activations = tokens * width(s) * s.depth * ACTIVATION_BYTES;
        let bytes = activations
            + tokens * VOCABULARY * LOGIT_BYTES
            + (parameters(s) + 2.0 * VOCABULARY * width(s)) * PARAMETER_BYTES;
        let needed_gb = bytes / 1e9;
        if needed_gb > MEMORY_GB { Err(OutOfMemory { needed_gb }) } else { Ok(needed_gb) }
    }

    /// Tokens that count: those trained on, less what a batch beyond the critical one wastes.
    fn useful_tokens(&self, s: &Settings) -> f64 {
        // windows SSSL; attention is causal: half of a window on average
        let window = CONTEXT * (3.0 * s.short_window + 1.0) / 4.0;
        let flop = 6.0 * (parameters(s) + VOCABULARY * width(s)) + 12.0 * s.depth * width(s) * window;
        let rate = FLOPS / flop * rows(s) / (rows(s) + HALF_FULL_ROWS);
        let update_s = UPDATE_S * parameters(s) / START_PARAMETERS;
        let steps = BUDGET_S / (s.step_tokens / rate + update_s);
        steps * s.step_tokens / (1.0 + s.step_tokens / self.critical_batch)
    }

    /// What settings away from their best cost, in bpb.
    fn penalties(&self, s: &Settings) -> f64 {
        let best = &self.best;
        let off = |value: f64, best: f64| (value / best).ln().powi(2);
        let start_batch = 524_288.0;
        let matrix_lr = best.matrix_lr * (s.step_tokens / start_batch).sqrt();
        let half_life = s.step_tokens * 2f64.ln() / -s.beta2.ln();
        let too_fast = s.matrix_lr / matrix_lr * (-s.warmup / 0.02).exp();
        0.006 * off(s.matrix_lr, matrix_lr)
            + 0.0015 * off(s.embed_lr, best.embed_lr)
            + 0.0012 * off(s.head_lr, best.head_lr)
            + 0.0008 * off(s.matrix_lr * s.matrix_decay, best.shrink)
            + 0.0008 * off(half_life, best.half_life)
            + 0.004 * off(s.logit_cap, best.logit_cap)
            + 0.006 * off(s.aspect, best.aspect)
            + 0.002 * off(s.short_window, 1.0)
            + 0.03 * (s.warmdown - best.warmdown).powi(2)
            + 0.1 * (s.final_lr - best.final_lr).powi(2)
            + 0.0008 * too_fast
            + 0.012 * s.warmup
    }
}

fn width(s: &Settings) -> f64 {
    s.depth * s.aspect
}

/// Parameters in matrices.
fn parameters(s: &Settings) -> f64 {
    12.0 * s.depth * width(s).powi(2)
}

/// Rows of one pass: an update of fewer tokens is one pass.
fn rows(s: &Settings) -> f64 {
    s.micro_rows.min(s.step_tokens / CONTEXT)
}

#[cfg(test)]
mod tests;
