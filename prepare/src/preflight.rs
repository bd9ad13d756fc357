//! What a few seconds can show before minutes are paid: one step, a round trip, causality, memory.

use std::fs;
use std::path::Path;
use std::time::Instant;

use candle_core::{DType, Device};
use serde::{Deserialize, Serialize};

use crate::cache::Cache;
use crate::checkpoint::{Checkpoint, write_durably};
use crate::clock::Budget;
use crate::contest::{ContestError, Contestant};
use crate::cross_entropy;
use crate::exam::Probes;
use crate::fit::{self, Fitted, Task};
use crate::loader::Loader;
use crate::probe::{self, Shown};
use crate::profile::Profile;
use crate::rows::Rows;
use crate::score::{self, Asker, ScoreError};
use crate::{device, profile};

/// File of the [`PreflightRecord`].
pub const PREFLIGHT_FILE: &str = "preflight.json";

/// Steps trained: the second one shows that an update leaves a model that can go on.
const STEPS: u64 = 2;

/// What a stored and loaded model's logits may differ by from the trained one's: the weights are the same,
/// so only the order of sums can differ.
const ROUND_TRIP_F32: f64 = 1e-4;
const ROUND_TRIP_BF16: f64 = 0.125; // one rounding of a logit below 32

/// What preflight measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PreflightRecord {
    /// Steps trained.
    pub steps: u64,
    /// Training loss of the last of them, nats a token.
    pub final_loss: Option<f64>,
    /// Largest difference of a logit between the trained and the stored model.
    pub round_trip: f64,
    /// What the causality probe measured, on rows of training text.
    pub probes: Probes,
    /// Most memory held, and what was free at the start; null where the system does not say.
    pub peak_mem_bytes: Option<u64>,
    /// Memory that was free at the start.
    pub available_mem_bytes: Option<u64>,
    /// Seconds it took.
    pub seconds: f64,
}

/// `preflight`: leaves its record in `dir`, and nothing else.
///
/// Errors: the first check that failed, in one line.
pub(crate) fn preflight<C: Contestant>(
    profile: Profile,
    seed: u64,
    dir: &Path,
    begun: Instant,
) -> Result<(), ContestError> {
    fs::create_dir_all(dir).map_err(|e| ContestError::file(dir, e))?;
    let scratch = tempfile::tempdir_in(dir).map_err(|e| ContestError::file(dir, e))?;
    let device = device::choose()?;
    let available = device::available_memory(&device);

    let task = Task { profile, seed, budget: Budget::Steps(STEPS) };
    let Fitted { model, checkpoint, record } = fit::train::<C>(task, scratch.path(), begun)?;
    if record.num_steps == 0 {
        return Err(ContestError::Preflight(
            "fit recorded no step: call trial.step(loss)? once a step".into(),
        ));
    }
    checkpoint.write(scratch.path())?;
    drop(checkpoint);
    let reloaded = C::load(&Checkpoint::read(scratch.path(), &device)?, &device)?;

    let spec = profile.spec();
    let batch_rows = score::batch_rows(spec.context, spec.vocab, &device);
    let rows = training_rows(profile, seed, batch_rows)?;
    let trained = Asker { model: &model, vocab: spec.vocab, device: &device };
    let stored = Asker { model: &reloaded, vocab: spec.vocab, device: &device };
    let round_trip = difference(&trained, &stored, &rows)?;
    drop(model);
    let probes = probe::causality(&stored, &rows, batch_rows, &mut score::rng()?)?.probes;

    let peak = device::peak_memory(&device);
    if let (Some(peak), Some(available)) = (peak, available)
        && peak > available
    {
        let mib = |bytes: u64| bytes >> 20;
        return Err(ContestError::Preflight(format!(
            "the model takes {} MiB of memory where {} MiB are free; make the micro-batch smaller",
            mib(peak),
            mib(available)
        )));
    }
    let record = PreflightRecord {
        steps: record.num_steps,
        final_loss: record.final_loss,
        round_trip,
        probes,
        peak_mem_bytes: peak,
        available_mem_bytes: available,
        seconds: begun.elapsed().as_secs_f64(),
    };
    let path = dir.join(PREFLIGHT_FILE);
    let json = serde_json::to_vec_pretty(&record).map_err(|e| ContestError::file(&path, e.into()))?;
    write_durably(&path, &json).map_err(|e| ContestError::file(&path, e))
}

/// Rows as an exam has them, but of training text: `fit` must not be able to read the exam's.
fn training_rows(profile: Profile, seed: u64, count: usize) -> Result<Rows, ContestError> {
    let spec = profile.spec();
    let cache = Cache::open_train(profile)?;
    let mut loader = Loader::new(cache.train_tokens()?, spec, seed);
    let batch = loader.next(count, spec.context, &Device::Cpu)?;
    let (x, y) = (batch.x.to_vec2::<u32>()?, batch.y.to_vec2::<u32>()?);
    let ids = x.iter().zip(&y).flat_map(|(x, y)| std::iter::once(x[0]).chain(y.iter().copied()));
    // ids come from a file of u16
    let ids = ids.map(|id| u16::try_from(id).unwrap_or(profile::BOS)).collect();
    Rows::new(spec.context, ids).map_err(|e| ContestError::Preflight(e.to_string()))
}

/// The largest difference between two models' logits on a batch of `rows`; an error when it is no rounding.
fn difference<C: Contestant>(a: &Asker<C>, b: &Asker<C>, rows: &Rows) -> Result<f64, ContestError> {
    let batch: Vec<Shown> = (0..rows.len()).map(|row| Shown::whole(rows, row)).collect();
    let (a, b) = (a.logits(&batch)?, b.logits(&batch)?);
    if !cross_entropy::all_finite(&a)? || !cross_entropy::all_finite(&b)? {
        return Err(ScoreError::non_finite().into());
    }
    let allowed = if a.dtype() == DType::F32 { ROUND_TRIP_F32 } else { ROUND_TRIP_BF16 };
    let mut largest: f64 = 0.0;
    for row in 0..rows.len() {
        largest = largest.max(probe::change(&a, &b, row, rows.context())?);
    }
    if largest > allowed {
        return Err(ContestError::Preflight(format!(
            "logits changed by {largest:.3e} from save to load, {allowed:.1e} is allowed: save must name every \
             tensor that logits depend on, and load must use it"
        )));
    }
    Ok(largest)
}
