//! Scores a contestant on exam rows: cross-entropy, probes, refusals.
//!
//! The contestant is handed inputs and returns logits; it sees no target, no byte length, no score. The
//! causality probe comes first. While rows are scored, batches of rows that were scored already are slipped
//! in, in other company and order, half of them with another row's tokens after a cut: what they cost must
//! be what they cost before. That catches peeking across the batch, state kept between calls, and a model
//! that behaves only while it believes to be probed. What is learnt from rows and kept to oneself until others
//! are scored is caught by a second sitting (see `resit`); to it go, before all, the rows that probes showed
//! before their turn.

use std::collections::BTreeSet;
use std::time::Instant;

use candle_core::{DType, Device, Tensor};
use rand::RngExt;
use rand::rngs::StdRng;

use crate::chance::os_rng;
use crate::contest::Contestant;
use crate::cross_entropy;
use crate::exam::{Header, Precision, Probes, Reason, Rejected, Scored};
use crate::probe::{self, Shown};
use crate::rows::Rows;

/// Bytes that the f32 logits of one batch may take: they bound the memory that scoring needs. On a CPU small
/// enough for the allocator to hand out the same pages again; a fresh mapping costs as much as the softmax.
const CPU_LOGITS_BYTES: usize = 30 << 20;
const GPU_LOGITS_BYTES: usize = 1 << 30;
/// A batch has at least two rows, or there would be no company to depend on.
const BATCH_ROWS: std::ops::RangeInclusive<usize> = 2..=32;
/// One row in so many is scored again, and so many rows at least and at most.
const CHECK_EVERY: usize = 16;
const CHECK_ROWS: std::ops::RangeInclusive<usize> = 32..=128;
/// What seeing the target may seem to gain: so many standard errors (one honest noisy model in 10⁵ is further
/// off), and a floor for models that have no noise.
const GAIN_ERRORS: f64 = 5.0;
const GAIN_FLOOR: f64 = 1e-4;

/// Why there is no score.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The model is not admissible.
    #[error(transparent)]
    Rejected(#[from] Rejected),
    /// Candle, or contestant code, failed.
    #[error("scoring failed: {0}")]
    Candle(#[from] candle_core::Error),
    /// The exam cannot be held.
    #[error("scoring failed: {0}")]
    Failed(String),
}

impl ScoreError {
    pub(crate) fn reject(reason: Reason, detail: String) -> ScoreError {
        ScoreError::Rejected(Rejected { reason, detail })
    }

    pub(crate) fn non_finite() -> ScoreError {
        ScoreError::reject(Reason::NonFinite, "a logit is NaN or infinite".into())
    }
}

/// Rows in every batch of an exam, set by the memory that logits may take and by nothing the contestant has
/// a say in.
pub fn batch_rows(context: usize, vocab: usize, device: &Device) -> usize {
    let budget = if matches!(device, Device::Cpu) { CPU_LOGITS_BYTES } else { GPU_LOGITS_BYTES };
    (budget / (context * vocab * size_of::<f32>())).clamp(*BATCH_ROWS.start(), *BATCH_ROWS.end())
}

/// Randomness that no contestant can foresee.
pub(crate) fn rng() -> Result<StdRng, ScoreError> {
    os_rng().map_err(|e| ScoreError::Failed(e.to_string()))
}

/// Asks a model for logits and refuses those of another shape.
pub(crate) struct Asker<'a, C> {
    pub(crate) model: &'a C,
    pub(crate) vocab: usize,
    pub(crate) device: &'a Device,
}

impl<C: Contestant> Asker<'_, C> {
    /// Logits of a batch: (B, T, V).
    pub(crate) fn logits(&self, batch: &[Shown]) -> Result<Tensor, ScoreError> {
        let (b, t) = (batch.len(), batch[0].x.len());
        let x: Vec<u32> = batch.iter().flat_map(|shown| shown.x.iter().map(|&id| u32::from(id))).collect();
        let x = Tensor::from_vec(x, (b, t), self.device)?;
        let logits = self.model.logits(&x)?.detach();
        let floats = matches!(logits.dtype(), DType::F32 | DType::BF16 | DType::F16);
        if logits.dims() != [b, t, self.vocab] || !floats {
            let detail = format!(
                "logits are {:?} {:?}, not ({b}, {t}, {}) f32, bf16 or f16",
                logits.dims(),
                logits.dtype(),
                self.vocab
            );
            return Err(ScoreError::reject(Reason::WrongShape, detail));
        }
        Ok(logits)
    }

    /// Nats of the rows' own targets, whatever inputs were shown: (B·T).
    pub(crate) fn nats(&self, logits: &Tensor, rows: &Rows, batch: &[Shown]) -> Result<Vec<f32>, ScoreError> {
        let targets = batch.iter().flat_map(|shown| rows.row(shown.row)[1..].iter());
        let targets: Vec<u32> = targets.map(|&id| u32::from(id)).collect();
        cross_entropy::nats(logits, &targets)?.ok_or_else(ScoreError::non_finite)
    }
}

/// Scores `model` on every row. Calls `progress` with the number of rows done, after each batch.
///
/// In a second sitting each row is shown up to its cut only, and nothing is probed: see `resit`.
///
/// Errors: a refusal with its reason, or whatever contestant code or the device says.
pub fn score<C: Contestant>(
    model: &C,
    header: &Header,
    rows: &Rows,
    device: &Device,
    mut progress: impl FnMut(u64),
) -> Result<Scored, ScoreError> {
    let start = Instant::now();
    let asker = Asker { model, vocab: header.vocab, device };
    let batch_rows = batch_rows(header.context, header.vocab, device);
    let batches = header.rows.div_ceil(batch_rows);
    let mut rng = rng()?;
    let mut sheet = Sheet::new(asker, header, rows, batch_rows);
    let mut check_after = Vec::new();
    if !header.second {
        sheet.probe(&mut rng)?;
        let check_rows = (header.rows / CHECK_EVERY).clamp(*CHECK_ROWS.start(), *CHECK_ROWS.end());
        let checks = check_rows.div_ceil(batch_rows);
        // the last check comes last, the others at random, so that no call can be known to be one
        check_after.extend((1..checks).map(|_| rng.random_range(0..batches)));
        check_after.push(batches - 1);
    }
    for batch in 0..batches {
        sheet.score_batch(batch)?;
        for _ in check_after.iter().filter(|&&after| after == batch) {
            sheet.check(&mut rng)?;
        }
        progress(sheet.done() as u64);
    }
    if !header.second {
        sheet.check_gain()?;
    }
    let context = header.context;
    let until = sheet.row_nats(|row| header.cuts[row] + 1);
    Ok(Scored {
        nats: if header.second { until.clone() } else { sheet.row_nats(|_| context) },
        until,
        at: (0..header.rows).map(|row| f64::from(sheet.nats[row * context + header.cuts[row]])).collect(),
        probes: sheet.probes,
        precision: sheet.precision,
        early: sheet.early.into_iter().collect(),
        batch_rows,
        seconds: start.elapsed().as_secs_f64(),
    })
}

/// The exam as it fills.
struct Sheet<'a, C> {
    asker: Asker<'a, C>,
    header: &'a Header,
    rows: &'a Rows,
    batch_rows: usize,
    /// Nats of every target of the rows scored so far: (rows, T).
    nats: Vec<f32>,
    /// Nats that the target after a cut cost more when it was not there to be seen.
    gains: Vec<f64>,
    probes: Probes,
    precision: Precision,
    /// Rows of which something was shown before they were scored.
    early: BTreeSet<usize>,
}

impl<'a, C: Contestant> Sheet<'a, C> {
    fn new(asker: Asker<'a, C>, header: &'a Header, rows: &'a Rows, batch_rows: usize) -> Self {
        Sheet {
            asker,
            header,
            rows,
            batch_rows,
            nats: Vec::new(),
            gains: Vec::new(),
            probes: Probes::default(),
            precision: Precision::Single,
            early: BTreeSet::new(),
        }
    }

    /// The causality probe.
    fn probe(&mut self, rng: &mut StdRng) -> Result<(), ScoreError> {
        let probed = probe::causality(&self.asker, self.rows, self.batch_rows, rng)?;
        (self.probes, self.early) = (probed.probes, probed.shown);
        Ok(())
    }

    fn done(&self) -> usize {
        self.nats.len() / self.rows.context()
    }

    /// Scores rows `batch · batch_rows ..`; a batch that is not full is filled up with rows from the start,
    /// so that every call has the same shape.
    fn score_batch(&mut self, batch: usize) -> Result<(), ScoreError> {
        let first = batch * self.batch_rows;
        let Header { rows: all, cuts, second, .. } = self.header;
        let new = self.batch_rows.min(all - first);
        let show = |row: usize| match second {
            false => Shown::whole(self.rows, row),
            true => Shown::spliced(self.rows, row, cuts[row], all + row),
        };
        let shown: Vec<Shown> = (first..first + self.batch_rows).map(|row| show(row % all)).collect();
        let nats = self.ask(&shown)?;
        self.nats.extend_from_slice(&nats[..new * self.rows.context()]);
        Ok(())
    }

    /// Scores rows again that were scored before, among others and half of them cut.
    fn check(&mut self, rng: &mut StdRng) -> Result<(), ScoreError> {
        let shown = probe::company(self.rows, self.done(), self.batch_rows, rng)?;
        let done = self.done();
        self.early.extend(shown.iter().filter_map(|shown| shown.donor).filter(|&donor| donor >= done));
        let nats = self.ask(&shown)?;
        let t = self.rows.context();
        let allowed = self.probes.company_allowed;
        let mut leak = None;
        for (now, shown) in nats.chunks_exact(t).zip(&shown) {
            let before = &self.nats[shown.row * t..][..shown.kept()];
            let change = probe::largest(before.iter().zip(now).map(|(a, b)| f64::from((a - b).abs())));
            if let Some(cut) = shown.cut {
                self.gains.push(f64::from(now[cut]) - f64::from(before[cut]));
            }
            self.probes.company_rows += 1;
            self.probes.company_change = self.probes.company_change.max(change);
            if change <= allowed {
                continue;
            }
            let detail = format!(
                "row {} cost up to {change:.3e} nats a token more or less when it was scored again; \
                 {allowed:.1e} is allowed",
                shown.row
            );
            match shown.cut {
                None => return Err(ScoreError::reject(Reason::CompanyDependent, detail)),
                Some(cut) => leak = Some(format!("{detail}; tokens after position {cut} were replaced")),
            }
        }
        leak.map_or(Ok(()), |detail| Err(ScoreError::reject(Reason::NonCausal, detail)))
    }

    fn ask(&mut self, shown: &[Shown]) -> Result<Vec<f32>, ScoreError> {
        let logits = self.asker.logits(shown)?;
        if probe::precision(&logits) == Precision::Half {
            self.precision = Precision::Half;
        }
        self.asker.nats(&logits, self.rows, shown)
    }

    /// Refuses a model that does better, on average, when it could see the target: noise that a model adds
    /// to hide a leak from the other checks has no sign, a leak has.
    fn check_gain(&mut self) -> Result<(), ScoreError> {
        let n = self.gains.len() as f64;
        let mean = self.gains.iter().sum::<f64>() / n;
        let variance = self.gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (n - 1.0).max(1.0);
        self.probes.gain = mean;
        self.probes.gain_allowed = GAIN_ERRORS * (variance / n).sqrt() + GAIN_FLOOR;
        if mean <= self.probes.gain_allowed {
            return Ok(());
        }
        let detail = format!(
            "tokens cost {mean:.3e} nats less when they could be seen ahead, {:.1e} is allowed",
            self.probes.gain_allowed
        );
        Err(ScoreError::reject(Reason::NonCausal, detail))
    }

    /// Each row's nats over those of its first `targets` targets that have bytes, summed in f64: (rows).
    fn row_nats(&self, targets: impl Fn(usize) -> usize) -> Vec<f64> {
        let counts = |id: u16| self.header.token_bytes[usize::from(id)] > 0;
        let rows = self.nats.chunks_exact(self.rows.context()).zip(self.rows.iter()).enumerate();
        rows.map(|(i, (nats, row))| {
            let targets = nats.iter().zip(&row[1..]).take(targets(i));
            targets.filter(|&(_, &id)| counts(id)).map(|(&nats, _)| f64::from(nats)).sum()
        })
        .collect()
    }
}
