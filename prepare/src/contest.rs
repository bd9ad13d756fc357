//! The contest protocol: `fit` and `score` as separate processes.

use std::process::ExitCode;

use candle_core::{Device, Result, Tensor};

pub use crate::checkpoint::Checkpoint;
pub use crate::trial::{Batch, Description, Trial};

/// A model that can be trained, stored, and asked for logits. All that a contestant implements.
pub trait Contestant: Sized {
    /// Trains until `trial.done()`; everything in here is inside the budget.
    fn fit(trial: &mut Trial) -> Result<Self>;

    /// Named tensors and a JSON config, enough to rebuild the model. Inside the budget as well.
    fn save(&self) -> Result<Checkpoint>;

    /// The model again, on `device`; called in another process than `fit`.
    fn load(checkpoint: &Checkpoint, device: &Device) -> Result<Self>;

    /// x: (B, T) u32 token ids → logits (B, T, vocab), f32 or bf16, before any softmax.
    /// Row b, position t may depend on `x[b][0..=t]` and on nothing else.
    fn logits(&self, x: &Tensor) -> Result<Tensor>;
}

/// The whole `main` of a contestant: `fn main() -> ExitCode { prepare::contest::<Gpt>() }`.
pub fn contest<C: Contestant>() -> ExitCode {
    let _ = (C::fit, C::save, C::load, C::logits);
    ExitCode::FAILURE
}
