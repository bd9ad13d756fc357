//! `ratchet review`: a person reads each keep and accepts, rejects or defers it.
//!
//! A kept trial is a finding, not yet a change that anyone wants: someone has to read it first. What was
//! decided reaches nobody who proposes or judges, and needs no lock: a run may go on meanwhile.

mod board;
mod limit;
pub(crate) mod lineage;
mod log;
mod walk;

use std::collections::BTreeMap;

pub(crate) use self::limit::Limit;
pub use self::{
    board::{Board, Item},
    log::{Decision, Review, Reviews},
    walk::{Act, Walk},
};
use crate::{
    error::Result,
    history::History,
    journal::{Status, TrialRecord},
    show::View,
    state::{State, Tag, TagDir},
};

/// The keeps that a person is to review, oldest first: all but baselines.
pub fn keeps(history: &History) -> impl Iterator<Item = &TrialRecord> {
    history.trials().iter().filter(|record| is_reviewed(record))
}

fn is_reviewed(record: &TrialRecord) -> bool {
    record.status == Status::Keep && record.parent.is_some()
}

/// What was decided of each trial of a tag; one that is not named was not reviewed.
///
/// Fails where the decisions cannot be read.
pub fn decisions(state: &State, tag: &Tag) -> Result<BTreeMap<u64, Decision>> {
    let latest = Reviews::of(&state.tag(tag)).latest()?;
    Ok(latest.into_iter().map(|(trial, review)| (trial, review.decision)).collect())
}

/// The decisions about the keeps of a history: not those about an earlier tag of the same name.
pub(crate) fn in_force(dir: &TagDir, history: &History) -> Result<BTreeMap<u64, Review>> {
    let mut latest = Reviews::of(dir).latest()?;
    latest.retain(|trial, review| {
        history.trial(*trial).is_some_and(|record| record.commit.as_ref() == Some(&review.commit))
    });
    Ok(latest)
}

/// Keeps of a tag of which nothing was decided; a deferred one was at least looked at.
///
/// Fails where the decisions cannot be read.
pub fn unreviewed(view: &View) -> Result<usize> {
    let Some(tag) = &view.tag else { return Ok(0) };
    let decided = in_force(&view.state.tag(tag), &view.history)?;
    Ok(keeps(&view.history).filter(|record| !decided.contains_key(&record.trial)).count())
}
