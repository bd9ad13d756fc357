//! The second sitting: some rows of an exam again, in a fresh process that has seen none of the others, each
//! up to a cut only and then as another row.
//!
//! What a model has learnt from the rows it was scored on, or remembers of them, is gone with its process. A
//! model with a memory can hide a look ahead from every probe within one process, by answering a prefix always
//! as it did the first time, when the whole row was there to be seen; here the row never is. Rows and their
//! order are drawn from the system's randomness after the first sitting is over: all rows that a probe showed
//! before they were scored, and some at random. What follows a cut is of rows that are not scored this time. A
//! model that is causal, and is what its checkpoint says, costs the same in both.
//!
//! What may differ is rounding: a row has other neighbours, and a sum another order. Errors of one token (up
//! to 0.125 nats in bf16, see `probe`) have no sign and cancel over a row and over the sitting, a gain does
//! not. What passes unseen is bounded by the mean allowed: 3e-4 nats a token is about 1e-4 bits per byte at
//! four bytes a token, 1e-3 about 4e-4; a repeat with another seed is known to differ by 9e-4.

use std::collections::BTreeSet;
use std::io;

use rand::seq::index;
use serde::{Deserialize, Serialize};

use crate::chance::os_rng;
use crate::exam::{Exam, Precision, Reason, Rejected, Scored};

/// Of rows that no probe showed early, one in so many sits twice, so many at least and at most. A gain that a
/// model takes on k such rows only stays unseen with a chance of (7/8)^k: 1 % at 35 rows of 512.
const RESIT_EVERY: usize = 8;
const RESIT_ROWS: std::ops::RangeInclusive<usize> = 16..=256;

/// What two sittings may differ by, nats a token.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Allowed {
    /// The mean over a row's targets, either way.
    row: f64,
    /// The mean over all targets compared, either way.
    mean: f64,
    /// The mean over the targets right after the cuts, by which the first sitting may be cheaper.
    ahead: f64,
}

const SINGLE: Allowed = Allowed { row: 5e-3, mean: 3e-4, ahead: 1e-3 };
// ahead: one target a row, so that its errors cancel over the rows only
const HALF: Allowed = Allowed { row: 2e-2, mean: 1e-3, ahead: 5e-3 };

/// A second sitting, to be held as any exam.
pub struct Resit {
    exam: Exam,
    /// Which row of the first exam each row is.
    picked: Vec<usize>,
    /// Targets in a row.
    context: usize,
}

/// What two sittings differed by, nats a token; above zero where the first was cheaper.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Rows that sat twice.
    pub rows: usize,
    /// Largest difference of a row up to its cut, as a share of all its targets, either way.
    pub row_change: f64,
    /// What was allowed of it.
    pub row_allowed: f64,
    /// Difference of the mean over all targets up to the cuts.
    pub mean_change: f64,
    /// What was allowed of it, either way.
    pub mean_allowed: f64,
    /// Difference of the mean over the targets right after the cuts, which only the first could see ahead.
    pub ahead_change: f64,
    /// What was allowed of it.
    pub ahead_allowed: f64,
}

impl Resit {
    /// A second sitting for an exam that is over. Errors: rows that are all alike, no randomness.
    pub fn of(exam: &Exam, first: &Scored) -> io::Result<Resit> {
        let all = exam.rows().len();
        let count = (all / RESIT_EVERY).clamp(*RESIT_ROWS.start(), *RESIT_ROWS.end()).min(all);
        let random = index::sample(&mut os_rng()?, all, count).into_iter();
        let picked: BTreeSet<usize> = first.early.iter().copied().chain(random).collect();
        let picked: Vec<usize> = picked.into_iter().collect();
        Ok(Resit { exam: exam.again(&picked)?, picked, context: exam.rows().context() })
    }

    /// What is to be held.
    pub fn exam(&self) -> &Exam {
        &self.exam
    }

    /// Holds the second sitting against the first; both were admissible by themselves.
    ///
    /// Errors: `non_causal`, `state_kept`, or `unrepeatable` where the logits came in another type.
    pub fn agree(&self, first: &Scored, second: &Scored) -> Result<Agreement, Rejected> {
        let reject = |reason, detail| Err(Rejected { reason, detail });
        if first.precision != second.precision {
            let detail =
                format!("logits were {} in one process and {} in another", first.precision, second.precision);
            return reject(Reason::Unrepeatable, detail);
        }
        let allowed = match first.precision {
            Precision::Single => SINGLE,
            Precision::Half => HALF,
        };
        let pairs = || self.picked.iter().enumerate();
        let changes: Vec<f64> = pairs().map(|(i, &row)| second.until[i] - first.until[row]).collect();
        let ahead: f64 = pairs().map(|(i, &row)| second.at[i] - first.at[row]).sum();
        let targets: usize = self.exam.cuts().iter().map(|cut| cut + 1).sum();
        let rows = changes.len();
        let agreement = Agreement {
            rows,
            row_change: changes.iter().fold(0.0, |most, change| change.abs().max(most)) / self.context as f64,
            row_allowed: allowed.row,
            mean_change: changes.iter().sum::<f64>() / targets as f64,
            mean_allowed: allowed.mean,
            ahead_change: ahead / rows as f64,
            ahead_allowed: allowed.ahead,
        };
        let Agreement { row_change, mean_change, ahead_change, .. } = agreement;
        // what was learnt from other rows helps everywhere, a look ahead only where there was one
        if ahead_change > allowed.ahead + 4.0 * mean_change.abs() {
            let detail = format!(
                "a token cost {ahead_change:.3e} nats less, on average over {rows} rows, in the process that \
                 could see it ahead; {:.0e} is allowed",
                allowed.ahead
            );
            return reject(Reason::NonCausal, detail);
        }
        let state = |what: String, allowed: f64| {
            format!(
                "{what} in a fresh process that saw other rows, {allowed:.0e} is allowed: logits must come from \
                 the checkpoint and the row's own tokens"
            )
        };
        if mean_change.abs() > allowed.mean {
            let what = format!("{rows} rows cost {mean_change:+.3e} nats a token");
            return reject(Reason::StateKept, state(what, allowed.mean));
        }
        if row_change > allowed.row {
            let what = format!("a row cost {row_change:.3e} nats a token more or less");
            return reject(Reason::StateKept, state(what, allowed.row));
        }
        Ok(agreement)
    }
}
