//! Excursions: on a plateau, a few trials from a place that is a little worse than the champion.
//!
//! Near a champion nothing better may be left, and the way to something better may lead over something
//! worse. After [`PLATEAU`] trials without a keep an excursion starts from the files of an earlier trial of
//! this champion that lost only a little. Its trials each start from the best of it so far. Every candidate is
//! committed on the champion's commit and judged against the champion like any other, so the champion's line
//! only moves forward, and what wins is one commit on it. An excursion ends when something beats the
//! champion or is promising, and is dropped after its number of trials; then as many trials as make a plateau
//! pass before the next one.
//!
//! All of it is read from the history, so that a resumed night goes on as it would have.

use std::collections::HashSet;

use crate::{
    config::Goal,
    edit_class::EditClass,
    history::History,
    journal::{Status, TrialRecord},
    noise::Noise,
};

/// Trials without a keep after which nothing better is expected near the champion: an hour of five-minute
/// trials, and 1 chance in 15 for a search that keeps one in five.
pub const PLATEAU: usize = 12;
/// How much worse than the champion a start may be, in σ of one run.
const WITHIN_SIGMAS: f64 = 3.0;
/// How far back a start may lie, in trials: older ones were looked at with less knowledge.
const RECENT: usize = 40;

/// An excursion that goes on.
#[derive(Clone, Copy, Debug)]
pub struct Excursion<'a> {
    /// Whose files it began with.
    pub from: &'a TrialRecord,
    /// The best of it so far, whose files the next trial starts from.
    pub tip: &'a TrialRecord,
    /// Its trials so far.
    pub trials: u32,
}

/// The excursion that is under way. `most`: trials that one may last.
pub fn under_way(history: &History, goal: Goal, most: u32) -> Option<Excursion<'_>> {
    if history.lead().is_some() {
        return None;
    }
    let trials = since_keep(history);
    let from = root(history, trials.iter().rev().find(|record| record.excursion.is_some())?)?;
    let mut own = 0;
    let mut tip = from;
    for record in trials.iter().filter(|record| record.excursion.is_some()) {
        if root(history, record).is_none_or(|root| root.trial != from.trial) {
            continue;
        }
        own += 1;
        if let (Some(value), Some(best)) = (record.value, tip.value)
            && goal.better(value, best)
        {
            tip = record;
        }
    }
    (own < most).then_some(Excursion { from, tip, trials: own })
}

/// Where an excursion may start now, the latest last; empty while none is due.
pub fn allowed<'a>(history: &'a History, noise: &Noise, goal: Goal, most: u32) -> Vec<&'a TrialRecord> {
    let trials = since_keep(history);
    let resting = trials.iter().rev().take_while(|record| record.excursion.is_none()).count();
    if most == 0 || resting < PLATEAU || history.lead().is_some() || under_way(history, goal, most).is_some()
    {
        return Vec::new();
    }
    let Some(champion) = history.champion().and_then(|champion| champion.value) else { return Vec::new() };
    let used: HashSet<u64> = history.trials().iter().filter_map(|record| record.excursion).collect();
    let usable = |record: &&TrialRecord| {
        record.status == Status::Discard
            && record.excursion.is_none()
            && record.verdict.outcome != "memory" // what is built on it would be refused for the same
            && !used.contains(&record.trial)
    };
    let loss = |record: &TrialRecord| {
        record.value.map_or(f64::INFINITY, |value| match goal {
            Goal::Minimize => value - champion,
            Goal::Maximize => champion - value,
        })
    };
    let recent = &trials[trials.len().saturating_sub(RECENT)..];
    let mut near: Vec<&TrialRecord> = recent.iter().filter(usable).collect();
    match noise.sigma().filter(|sigma| *sigma > 0.0) {
        Some(sigma) => near.retain(|record| loss(record) <= WITHIN_SIGMAS * sigma),
        None => {
            // nothing says what a little is: the nearest quarter
            near.sort_by(|a, b| loss(a).total_cmp(&loss(b)));
            near.truncate(near.len().div_ceil(4));
            near.sort_by_key(|record| record.trial);
        }
    }
    near
}

/// Which of the allowed starts is taken: the deepest edit, because a constant beside the champion's is no
/// other place; of equals the best, then the latest.
pub fn choose<'a>(allowed: &[&'a TrialRecord], goal: Goal) -> Option<&'a TrialRecord> {
    let rank = |record: &TrialRecord| record.class.unwrap_or(EditClass::Constant);
    allowed.iter().copied().max_by(|a, b| {
        let order = |a: &TrialRecord, b: &TrialRecord| {
            let (a, b) = (a.value.unwrap_or(f64::NAN), b.value.unwrap_or(f64::NAN));
            match goal {
                Goal::Minimize => b.total_cmp(&a),
                Goal::Maximize => a.total_cmp(&b),
            }
        };
        rank(a).cmp(&rank(b)).then_with(|| order(a, b)).then_with(|| a.trial.cmp(&b.trial))
    })
}

/// The trial whose files the next one of an excursion starts from; `None` while there is no reason for one.
///
/// `chosen`: the start that a mechanism has chosen; it counts only while it is allowed.
pub fn start<'a>(
    history: &'a History,
    noise: &Noise,
    goal: Goal,
    most: u32,
    chosen: Option<u64>,
) -> Option<&'a TrialRecord> {
    match under_way(history, goal, most) {
        Some(excursion) => Some(excursion.tip),
        None => {
            let allowed = allowed(history, noise, goal, most);
            let chosen = allowed.iter().copied().find(|record| Some(record.trial) == chosen);
            chosen.or_else(|| choose(&allowed, goal))
        }
    }
}

/// The trials since the champion was kept, oldest first.
fn since_keep(history: &History) -> &[TrialRecord] {
    let trials = history.trials();
    let champion = history.champion().map_or(0, |champion| champion.trial);
    &trials[trials.partition_point(|record| record.trial <= champion)..]
}

/// The trial with which the excursion of `record` began.
fn root<'a>(history: &'a History, record: &'a TrialRecord) -> Option<&'a TrialRecord> {
    let mut at = record;
    while let Some(from) = at.excursion.filter(|from| *from < at.trial) {
        at = history.trial(from)?;
    }
    Some(at)
}

#[cfg(test)]
mod tests;
