//! Trials as a report has them: the record, and what lies beside it.

use std::collections::{BTreeMap, HashSet};

use report::night;

use super::told;
use crate::{
    attribution::{Attribution, Curve},
    journal::{Status, TrialRecord},
    plain_file,
    review::Decision,
    runlog::tail_of,
    show::{LOG_LINES, View, last_log, short},
    state::TagDir,
};

/// The latest trials whose records are read whole; of older ones, those that were kept or are to be read.
const WHOLE: usize = 300;
/// Points of a loss curve.
const POINTS: usize = 120;
/// Bytes of a patch.
const PATCH: usize = 64 << 10;

/// Trials, being gathered.
pub(super) struct Gathered<'a> {
    pub(super) view: &'a View,
    pub(super) dir: &'a TagDir,
    /// Those to be read by a person.
    pub(super) chosen: HashSet<u64>,
    /// What a person decided of keeps.
    pub(super) reviews: BTreeMap<u64, Decision>,
}

impl<'a> Gathered<'a> {
    /// Oldest first.
    pub(super) fn all(&self) -> Vec<night::Trial> {
        let trials = self.view.history.trials();
        let old = trials.len().saturating_sub(WHOLE);
        let whole = |(i, record): (usize, &TrialRecord)| {
            i >= old || record.status == Status::Keep || self.chosen.contains(&record.trial)
        };
        let mut curves: Vec<Option<Curve>> = Vec::new();
        for (i, record) in trials.iter().enumerate() {
            let curve = whole((i, record)).then(|| Curve::read(&self.dir.trial(record.trial))).flatten();
            curves.push(curve);
        }
        let curve_of = |trial: u64| curves.get(usize::try_from(trial.checked_sub(1)?).ok()?)?.as_ref();
        trials.iter().map(|record| self.one(record, &curve_of)).collect()
    }

    fn one<'c>(&self, record: &TrialRecord, curve_of: &dyn Fn(u64) -> Option<&'c Curve>) -> night::Trial {
        let dir = self.dir.trial(record.trial);
        let patch = plain_file::read(&dir.join("diff.patch")).unwrap_or_default();
        let patch = String::from_utf8_lossy(&patch[..patch.len().min(PATCH)]);
        let curve = curve_of(record.trial);
        let parent = record.parent.and_then(curve_of);
        let crash = record.status == Status::Crash;
        let proposal = &record.proposal;
        night::Trial {
            trial: record.trial,
            status: match record.status {
                Status::Keep => night::Status::Keep,
                Status::Discard => night::Status::Discard,
                Status::Crash => night::Status::Crash,
            },
            outcome: told(&record.verdict.outcome),
            reason: told(&record.verdict.reason),
            value: record.value,
            values: record.values.clone(),
            delta: record.delta,
            expected_delta: proposal.expected_delta,
            numbers: numbers(record),
            description: told(&proposal.description),
            hypothesis: told(&proposal.hypothesis),
            category: told(&proposal.category),
            class: record.class.map_or(String::new(), |class| class.to_string()),
            proposer: told(&record.proposer),
            parent: record.parent,
            commit: record.commit.as_deref().map(short),
            seconds: record.seconds,
            memory_gb: record.memory_gb,
            tokens_m: record.tokens_m,
            mfu_percent: record.mfu_percent,
            lines_added: record.verdict.lines_added,
            ended: told(&record.ended),
            attribution: curve.zip(parent).map(|(mine, theirs)| Attribution::of(mine, theirs).to_string()),
            notes: (self.view.circumstances(record).into_iter())
                .map(|(name, text)| (name.to_owned(), told(&text)))
                .collect(),
            review: self.reviews.get(&record.trial).map(|decision| decision.as_str().to_owned()),
            diff: told_patch(&patch),
            log: match last_log(&dir).filter(|_| crash) {
                Some(log) => tail_of(&log, LOG_LINES),
                None => Vec::new(),
            },
            curve: curve.map(|curve| curve.along(POINTS)).unwrap_or_default(),
        }
    }
}

/// A patch without the user's secrets.
fn told_patch(patch: &str) -> String {
    crate::secrets::secrets().redact(patch).into_owned()
}

/// What the verdict was reached by, in reading order.
fn numbers(record: &TrialRecord) -> Vec<(String, String)> {
    let verdict = &record.verdict;
    let rule = format!("{:?}", verdict.rule).to_lowercase();
    let figure = |value: Option<f64>| value.map(|value| format!("{value:.6}"));
    let signed = |value: Option<f64>| value.map(|value| format!("{value:+.6}"));
    let [mine, theirs] = verdict.runs;
    let sigma = verdict.noise.sigma().map(|sigma| format!("{sigma:.6} ({})", verdict.noise.origin()));
    let rows = [
        ("rule", Some(rule)),
        ("champion then", figure(verdict.champion)),
        ("difference", signed(verdict.delta)),
        ("gain needed", figure(verdict.gain_needed)),
        ("standard error", figure(verdict.standard_error)),
        ("errors asked for", verdict.z.map(|z| format!("{z:.2}, at level {:.2e}", verdict.level))),
        (
            "runs",
            (mine + theirs > 0).then(|| {
                let pairs = if verdict.paired { ", compared in pairs of equal seeds" } else { "" };
                format!("{mine} of the candidate, {theirs} of the champion{pairs}")
            }),
        ),
        ("σ of one run", sigma),
        ("lines added", verdict.lines_added.map(|lines| format!("{lines:+}"))),
        ("slack of a simplification", figure(verdict.slack)),
    ];
    rows.into_iter().filter_map(|(name, figure)| Some((name.to_owned(), figure?))).collect()
}
