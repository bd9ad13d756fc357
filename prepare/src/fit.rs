//! One training run: everything of the contestant's inside the budget, everything else outside of it.

use std::fs::{self, File};
use std::path::Path;
use std::time::Instant;

use crate::cache::Cache;
use crate::checkpoint::{Checkpoint, write_durably};
use crate::clock::{Budget, Watchdog};
use crate::contest::{ContestError, Contestant};
use crate::device;
use crate::loader::Loader;
use crate::profile::Profile;
use crate::summary::{CURVE_FILE, FIT_FILE, FitRecord, mfu_percent};
use crate::trial::{Curve, Data, Trial};
use crate::vouch::Witness;

/// What is to be trained: all of it from the harness.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Task {
    pub(crate) profile: Profile,
    pub(crate) seed: u64,
    pub(crate) budget: Budget,
}

/// A contestant that has trained.
pub(crate) struct Fitted<C> {
    pub(crate) model: C,
    pub(crate) checkpoint: Checkpoint,
    pub(crate) record: FitRecord,
}

/// Trains, with the loss curve in `dir`. `begun`: the start of the process.
///
/// The clock and the watchdog run from before the first line of contestant code until the model has been
/// trained, its tensors named and copied, and the device has nothing left to do.
pub(crate) fn train<C: Contestant>(
    task: Task,
    dir: &Path,
    begun: Instant,
) -> Result<Fitted<C>, ContestError> {
    let Task { profile, seed, budget } = task;
    let spec = profile.spec();
    let device = device::claim()?;
    if matches!(device, candle_core::Device::Cuda(_)) {
        device.set_seed(seed)?; // candle's own generator; the one of the CPU cannot be seeded
    }
    let cache = Cache::open_train(profile)?;
    let loader = Loader::new(cache.train_tokens()?, spec, seed);
    let curve =
        Curve::create(&dir.join(CURVE_FILE)).map_err(|e| ContestError::file(&dir.join(CURVE_FILE), e))?;

    let watchdog = budget.deadline().map(Watchdog::arm).transpose().map_err(candle_core::Error::from)?;
    let mut trial = Trial::start(profile, device.clone(), seed, Data { loader, curve }, budget);
    let model = C::fit(&mut trial);
    trial.curve.end_display();
    let model = model?;
    let checkpoint = model.save()?.settled()?;
    device.synchronize()?;
    let training_seconds = trial.clock.elapsed().as_secs_f64();
    drop(watchdog);

    let description = trial.description.unwrap_or_default();
    let name = device::name(&device);
    let record = FitRecord {
        profile,
        seed,
        vocab: spec.vocab,
        context: spec.context,
        num_steps: trial.curve.steps(),
        tokens: trial.tokens,
        budget_s: match budget {
            Budget::Time(budget) => Some(budget.as_secs_f64()),
            Budget::Steps(_) => None,
        },
        training_seconds,
        total_seconds: begun.elapsed().as_secs_f64(),
        final_loss: trial.curve.last_loss(),
        depth: description.depth,
        num_params: description.num_params,
        flops_per_token: description.flops_per_token,
        peak_mem_bytes: device::peak_memory(&device),
        mfu_percent: mfu_percent(&name, description.flops_per_token, trial.tokens, training_seconds),
        cropped_tokens: trial.loader.cropped_tokens(),
        epochs: trial.loader.epochs(),
        device: name,
    };
    Ok(Fitted { model, checkpoint, record })
}

/// `fit`: trains and leaves model, loss curve and record in `dir`. The record is written last: where it is,
/// the rest is whole. To a driver that waits for it, the record is vouched for after that.
pub(crate) fn fit<C: Contestant>(
    task: Task,
    dir: &Path,
    witness: Option<Witness<File>>,
    begun: Instant,
) -> Result<(), ContestError> {
    fs::create_dir_all(dir).map_err(|e| ContestError::file(dir, e))?;
    let path = dir.join(FIT_FILE);
    match fs::remove_file(&path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(ContestError::file(&path, e)),
        _ => {}
    }
    let Fitted { checkpoint, mut record, .. } = train::<C>(task, dir, begun)?;
    checkpoint.write(dir)?;
    record.total_seconds = begun.elapsed().as_secs_f64();
    let json = serde_json::to_string_pretty(&record).map_err(|e| ContestError::file(&path, e.into()))?;
    write_durably(&path, json.as_bytes()).map_err(|e| ContestError::file(&path, e))?;
    // last: whoever ends this process before has no record
    let vouched = witness.map_or(Ok(()), |witness| witness.vouch(&json));
    vouched.map_err(|e| ContestError::Exam(format!("cannot answer the driver: {e}")))
}
