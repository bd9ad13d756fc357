//! The decision, a pure function.

use serde::{Deserialize, Serialize};

use crate::{config::Goal, noise::Noise};

/// `[accept]`: how a candidate is judged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// Which rule decides.
    pub rule: Rule,
    /// σ of one run, stated by the user; measured from replicates when absent.
    pub sigma: Option<f64>,
    /// The most runs that one decision may spend on each side, the first included.
    pub max_replicates: u32,
    /// Taken from `[metric]`; not a key of `[accept]`.
    #[serde(skip)]
    pub goal: Goal,
}

impl Default for Policy {
    fn default() -> Self {
        Self { rule: Rule::Noise, sigma: None, max_replicates: 3, goal: Goal::Minimize }
    }
}

/// The accept rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// Any better value keeps.
    Strict,
    /// A better value keeps when noise does not explain it.
    Noise,
}

/// A candidate's measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The metric, finite, one a run, seed 0 first; seed k is the same for every trial.
    pub values: Vec<f64>,
    /// Lines of the editable files.
    pub lines: u64,
    /// Peak memory of fit and score.
    pub memory_gb: f64,
}

/// The champion, as the verdict needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Its measurements.
    pub score: Score,
    /// The best estimate that any keep of this tag ever reached.
    pub best: f64,
}

/// A candidate that has no score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// A short code, for example `build_failed`.
    pub outcome: String,
    /// One line for a person.
    pub reason: String,
}

/// What came of running a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It has a score.
    Scored(Score),
    /// It has none.
    Crashed(Crash),
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The candidate becomes the champion.
    Keep,
    /// The champion stays.
    Discard,
    /// There is no score to judge.
    Crash,
    /// Undecided: give both sides this many runs in all, then ask again.
    Replicate(u32),
}

/// The decision with everything it rests on; stored as `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What to do.
    pub decision: Decision,
    /// A short code: `improved`, `worse`, `within_noise`, `simplified`, or a crash's own.
    pub outcome: String,
    /// One line for a person, with the numbers used.
    pub reason: String,
    /// Candidate minus champion, in the metric's own sign; `None` for a crash.
    pub delta: Option<f64>,
    /// The rule applied.
    pub rule: Rule,
    /// The noise reckoned with.
    pub noise: Noise,
}
