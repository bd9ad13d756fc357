//! The append-only, fsynced record that is the truth.

use serde::{Deserialize, Serialize};

use crate::{proposer::Proposal, source::TreeHash, verdict::Verdict};

/// How a trial ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It became the champion.
    Keep,
    /// It was scored and not kept.
    Discard,
    /// It has no score.
    Crash,
}

/// One finished trial: a row of `results.tsv`, and more.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TrialRecord {
    /// 1 is the baseline.
    pub trial: u64,
    /// How it ended.
    pub status: Status,
    /// The mean of `values`; `None` for a crash.
    pub value: Option<f64>,
    /// One value a run, seed 0 first.
    pub values: Vec<f64>,
    /// Value minus the champion's at that time, in the metric's own sign.
    pub delta: Option<f64>,
    /// Peak memory of fit and score.
    pub memory_gb: f64,
    /// Time from the candidate to the verdict, replicates included.
    pub seconds: f64,
    /// The candidate's commit, 40 hexadecimal digits.
    pub commit: Option<String>,
    /// The trial that the candidate was made from; `None` for a baseline.
    pub parent: Option<u64>,
    /// Who proposed it.
    pub proposer: String,
    /// The proposal, without its edits (they stand in `diff.patch`).
    pub proposal: Proposal,
    /// The candidate's editable files by tokens.
    pub source: TreeHash,
    /// Lines of the editable files.
    pub lines: u64,
    /// Tokens trained on, in millions, where fit reports them.
    pub tokens_m: Option<f64>,
    /// Model FLOPs utilisation in percent, where fit reports it.
    pub mfu_percent: Option<f64>,
    /// The decision and what it rests on.
    pub verdict: Verdict,
    /// When the trial ended, RFC 3339 in UTC.
    pub ended: String,
}
