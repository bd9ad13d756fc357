//! The second sitting: some rows of an exam again, in a fresh process that has seen none of the others.
//!
//! What a model has learnt from the rows it was scored on, or remembers of them, is gone with its process.
//! Rows and their order are the driver's choice, made with the system's randomness after the first sitting is
//! over: all rows that a probe showed before they were scored, and some at random. Nothing is probed again, so
//! that no row is shown before its turn this time. A model that is what its checkpoint says costs the same in
//! both.
//!
//! What may differ is rounding: a row has other neighbours, and a sum another order. Errors of one token (up
//! to 0.125 nats in bf16, see `probe`) have no sign and cancel over a row and over the sitting, a gain does
//! not. What passes unseen is bounded by [`Allowed::mean`]: 3e-4 nats a token is about 1e-4 bits per byte at
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
const RESIT_ROWS: std::ops::RangeInclusive<usize> = 16..=64;

/// What two sittings may differ by, nats a token.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Allowed {
    /// The mean over a row, either way.
    row: f64,
    /// The mean over all rows of the sitting, either way.
    mean: f64,
}

const SINGLE: Allowed = Allowed { row: 5e-3, mean: 3e-4 };
const HALF: Allowed = Allowed { row: 2e-2, mean: 1e-3 };

/// A second sitting, to be held as any exam.
pub struct Resit {
    exam: Exam,
    /// Which row of the first exam each row is.
    picked: Vec<usize>,
    /// Targets in a row.
    context: usize,
}

/// What two sittings differed by, nats a token.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Agreement {
    /// Rows that sat twice.
    pub rows: usize,
    /// Largest difference of a row's mean.
    pub row_change: f64,
    /// What was allowed of it.
    pub row_allowed: f64,
    /// Difference of the mean over these rows; above zero where the first sitting was cheaper.
    pub mean_change: f64,
    /// What was allowed of it, either way.
    pub mean_allowed: f64,
}

impl Resit {
    /// A second sitting for an exam that is over. Errors: no randomness.
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
    /// Errors: `state_kept`, or `unrepeatable` where the logits came in another type.
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
        let tokens = self.context as f64;
        let changes: Vec<f64> = (self.picked.iter().zip(&second.nats))
            .map(|(&row, nats)| (nats - first.nats[row]) / tokens)
            .collect();
        let agreement = Agreement {
            rows: changes.len(),
            row_change: changes.iter().fold(0.0, |most, change| change.abs().max(most)),
            row_allowed: allowed.row,
            mean_change: changes.iter().sum::<f64>() / changes.len() as f64,
            mean_allowed: allowed.mean,
        };
        let why = "a score must come from the checkpoint alone, not from rows that were seen before";
        if agreement.mean_change.abs() > allowed.mean {
            let detail = format!(
                "{} rows cost {:+.3e} nats a token in a fresh process, {:.0e} is allowed: {why}",
                agreement.rows, agreement.mean_change, allowed.mean
            );
            return reject(Reason::StateKept, detail);
        }
        if agreement.row_change > allowed.row {
            let detail = format!(
                "a row cost {:.3e} nats a token more or less in a fresh process, {:.0e} is allowed: {why}",
                agreement.row_change, allowed.row
            );
            return reject(Reason::StateKept, detail);
        }
        Ok(agreement)
    }
}
