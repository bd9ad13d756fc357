//! The contestant: a GPT (`model.rs`) trained with Muon and AdamW (`optim.rs`) until the budget is spent.

pub mod model;
pub mod optim;

use candle_core::{Device, Result, Tensor};
use prepare::{Batch, Checkpoint, Contestant, Trial};
use tape::{Tape, check};

use model::{Config, Gpt, MLP_RATIO, PerProfile, compute_dtype};
use optim::Optimizer;

#[rustfmt::skip]
mod knobs {
    use super::PerProfile;

    pub const STEP_TOKENS: PerProfile<usize> = PerProfile { full: 524288, laptop: 2048, smoke: 1024 }; // knob: pow2 512..1048576; tokens between two updates
    pub const MICRO_ROWS: PerProfile<usize> = PerProfile { full: 64, laptop: 16, smoke: 8 }; // knob: pow2 1..256; rows of one forward and backward, where memory allows; changes speed, not what is learnt
}
use knobs::*;

fn main() -> std::process::ExitCode {
    prepare::contest::<Gpt>()
}

impl Contestant for Gpt {
    fn fit(trial: &mut Trial) -> Result<Self> {
        let profile = trial.profile();
        let config = Config::new(profile);
        let (rows, micro_steps) = micro_batch(
            (STEP_TOKENS.get(profile) / config.context).max(1),
            MICRO_ROWS.get(profile),
            trial.available_memory().map_or(usize::MAX, |free| rows_in(&config, trial.device(), free)),
        );
        let context = config.context;
        let model = Gpt::new(config, trial.device(), trial.seed())?;
        let mut optimizer = Optimizer::new(&model)?;
        trial.describe(model.describe());

        let mut first = true;
        while !trial.done() {
            let mut losses = Vec::with_capacity(micro_steps);
            for _ in 0..micro_steps {
                let Batch { x, y } = trial.batch(rows, context)?;
                // the first pass holds what candle differentiates against finite differences
                let tape = if first { Tape::checked() } else { Tape::new() };
                let micro = (model.loss(&tape, &x, &y)? / micro_steps as f64)?;
                losses.push(micro.value().clone());
                micro.backward()?;
                if std::mem::take(&mut first) {
                    check::every_gradient(model.params())?;
                }
            }
            optimizer.step(trial.progress())?;
            // read last: this waits until a GPU has done all of the above
            let losses = losses.iter().map(Tensor::to_scalar::<f32>).collect::<Result<Vec<_>>>()?;
            trial.step(losses.into_iter().map(f64::from).sum())?;
        }
        Ok(model)
    }

    fn save(&self) -> Result<Checkpoint> {
        self.checkpoint()
    }

    fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Self> {
        Gpt::from_checkpoint(checkpoint, device)
    }

    fn logits(&self, x: &Tensor) -> Result<Tensor> {
        self.forward(x)
    }
}

/// Rows of a micro-step and their number: at most `wanted` rows and `fitting` in memory, `step_rows` in all.
pub fn micro_batch(step_rows: usize, wanted: usize, fitting: usize) -> (usize, usize) {
    let limit = wanted.min(fitting).clamp(1, step_rows);
    let rows = (1..=limit).rev().find(|&rows| step_rows.is_multiple_of(rows)).unwrap_or(1);
    (rows, step_rows / rows)
}

/// Rows whose activations fit in `free` bytes beside the weights, about.
pub fn rows_in(c: &Config, device: &Device, free: u64) -> usize {
    let tables = 2 + c.depth().div_ceil(model::VALUE_EVERY);
    let weights = c.width * (tables * c.vocab + c.depth() * c.width * (4 + 2 * MLP_RATIO));
    // kept per token: of each layer the stream, two normed inputs, q, k, v, value embedding, attention, the MLP's hidden
    // values; of one layer at a time the gradients (measured on a CPU: 127 C a token at depth 8)
    let kept = c.width * (c.depth() * (8 + MLP_RATIO) + 4 * MLP_RATIO + 16);
    let row_bytes = (c.context * kept * compute_dtype(device).size_in_bytes()) as u64;
    // master, copy, gradient and two moments; a tenth for what else the device holds
    ((free / 10 * 9).saturating_sub(20 * weights as u64) / row_bytes) as usize
}
