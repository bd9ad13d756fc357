//! What a contestant trains with: batches, clock, seed, device.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::path::Path;

use candle_core::{Device, Error, Result, Tensor};
use serde::{Deserialize, Serialize};

use crate::clock::{Budget, Clock};
use crate::device;
use crate::loader::Loader;
use crate::profile::Profile;

/// A loss above this (nats) means that training has left the rails.
pub const MAX_LOSS: f64 = 100.0;

/// Training tokens: `y[b][t]` is the token that follows `x[b][0..=t]`.
#[derive(Debug, Clone)]
pub struct Batch {
    /// (B, T) u32, inputs; every row starts with BOS.
    pub x: Tensor,
    /// (B, T) u32, targets.
    pub y: Tensor,
}

/// What the contestant says of its model; reported, never judged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Description {
    /// Number of layers.
    pub depth: usize,
    /// Number of trainable parameters.
    pub num_params: u64,
    /// Floating-point operations a training token costs, forward and backward; for MFU.
    pub flops_per_token: f64,
}

/// One training run, inside its budget from before `Contestant::fit` is called.
///
/// ```text
/// while !trial.done() {
///     let Batch { x, y } = trial.batch(b, t)?;
///     // forward, backward, update with trial.progress() for the schedule
///     trial.step(loss)?;
/// }
/// ```
pub struct Trial {
    profile: Profile,
    device: Device,
    seed: u64,
    pub(crate) clock: Clock,
    pub(crate) loader: Loader,
    pub(crate) curve: Curve,
    pub(crate) description: Option<Description>,
    pub(crate) tokens: u64,
}

impl Trial {
    /// Starts the clock.
    pub(crate) fn start(profile: Profile, device: Device, seed: u64, data: Data, budget: Budget) -> Trial {
        let Data { loader, curve } = data;
        let clock = Clock::start(budget);
        Trial { clock, loader, curve, description: None, device, seed, profile, tokens: 0 }
    }

    /// The profile; constants that differ by profile are chosen by it.
    pub fn profile(&self) -> Profile {
        self.profile
    }

    /// Context of the exam: rows of this many inputs are what the model is scored on.
    pub fn context(&self) -> usize {
        self.profile.spec().context
    }

    /// Number of token ids; logits have this many columns.
    pub fn vocab(&self) -> usize {
        self.profile.spec().vocab
    }

    /// Where batches are made and the model is scored.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Seeds the model's initial weights and whatever else is random. It belongs to the harness.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The next `b` rows of `t` inputs and their targets. Any sizes, changed at any time.
    pub fn batch(&mut self, b: usize, t: usize) -> Result<Batch> {
        let batch = self.loader.next(b, t, &self.device)?;
        self.tokens += (b * t) as u64;
        Ok(batch)
    }

    /// Whether to stop. Ask once a step, before the step: true once what remains of the budget is shorter
    /// than the longest step so far.
    pub fn done(&mut self) -> bool {
        self.clock.done()
    }

    /// The share of the budget that is spent, 0..=1; what schedules run on.
    pub fn progress(&self) -> f64 {
        self.clock.progress()
    }

    /// Records a step's training loss (mean nats a token) in the loss curve, `steps.csv`.
    ///
    /// An error at once when the loss is NaN, infinite or above [`MAX_LOSS`]: the run is lost, the time
    /// need not be. Pass it on with `?`.
    pub fn step(&mut self, loss: f64) -> Result<()> {
        let row = Row {
            step: self.curve.rows,
            seconds: self.clock.elapsed().as_secs_f64(),
            progress: self.clock.progress(),
            tokens: self.tokens,
            loss,
        };
        self.curve.push(&row)?;
        if !loss.is_finite() || loss > MAX_LOSS {
            return Err(Error::msg(format!(
                "training diverged: loss {loss} at step {} (a finite loss of at most {MAX_LOSS} is expected); \
                 lower a learning rate",
                row.step
            )));
        }
        Ok(())
    }

    /// Says how large the model is, for the summary. Call it once, at any time.
    pub fn describe(&mut self, description: Description) {
        self.description = Some(description);
    }

    /// Bytes of device memory (on a CPU: of main memory) that are free now; `None` where the system does
    /// not say. Choose the micro-batch by it.
    pub fn available_memory(&self) -> Option<u64> {
        device::available_memory(&self.device)
    }

    /// What the clock runs on: time, or in tests a number of steps.
    pub fn budget(&self) -> Budget {
        self.clock.budget()
    }
}

/// What is made ready before the clock starts.
pub(crate) struct Data {
    pub(crate) loader: Loader,
    pub(crate) curve: Curve,
}

struct Row {
    step: u64,
    seconds: f64,
    progress: f64,
    tokens: u64,
    loss: f64,
}

/// Between two updates of the display.
const DISPLAY_EVERY_SECONDS: f64 = 0.25;

/// The loss curve, `steps.csv`. Each row is written when it is made, so that a crash keeps the curve. Where
/// standard error is a terminal, the latest row is shown on it.
pub(crate) struct Curve {
    file: File,
    rows: u64,
    last_loss: Option<f64>,
    displayed: Option<f64>,
}

impl Curve {
    /// Begins the file, replacing an older one.
    pub(crate) fn create(path: &Path) -> io::Result<Curve> {
        let mut file = File::create(path)?;
        file.write_all(b"step,seconds,progress,tokens,loss\n")?;
        let displayed = io::stderr().is_terminal().then_some(0.0);
        Ok(Curve { file, rows: 0, last_loss: None, displayed })
    }

    fn push(&mut self, row: &Row) -> io::Result<()> {
        let Row { step, seconds, progress, tokens, loss } = row;
        let line = format!("{step},{seconds:.3},{progress:.6},{tokens},{loss:.6}\n");
        self.rows += 1;
        self.last_loss = Some(*loss);
        self.file.write_all(line.as_bytes())?;
        if self.displayed.is_some_and(|last| seconds - last >= DISPLAY_EVERY_SECONDS) {
            self.displayed = Some(*seconds);
            let (percent, speed) = (100.0 * progress, *tokens as f64 / seconds);
            eprint!("\r{percent:5.1} %  step {step}  loss {loss:.4}  {speed:.0} tokens/s \x1b[K");
        }
        Ok(())
    }

    /// Leaves the terminal with a fresh line.
    pub(crate) fn end_display(&mut self) {
        if self.displayed.take().is_some() {
            eprintln!();
        }
    }

    /// Number of steps recorded.
    pub(crate) fn steps(&self) -> u64 {
        self.rows
    }

    /// Loss of the last step.
    pub(crate) fn last_loss(&self) -> Option<f64> {
        self.last_loss
    }
}
