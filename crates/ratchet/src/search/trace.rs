//! The history as mechanisms see it. No validation row, no audit, no lesson: what a proposer knows, as plain data.

use mechanism::{Change, Trace, Trial};

use crate::{
    config::Goal,
    history::History,
    journal::TrialRecord,
    proposer::{Proposal, knobs::Tunables},
    runlog::plain,
};

/// Bytes of a description or category that a mechanism is shown.
const TEXT: usize = 200;

/// Everything a hook may know.
pub(crate) fn trace(
    history: &History,
    tunables: &Tunables,
    goal: Goal,
    sigma: Option<f64>,
    frozen: &[String],
    seed: u64,
) -> Trace {
    let trials = history.trials();
    let champion = history.champion().map_or(0, |champion| champion.trial);
    Trace {
        trials: trials.iter().map(|record| trial(record, tunables, goal)).collect(),
        champion,
        sigma: sigma.filter(|sigma| sigma.is_finite() && *sigma > 0.0),
        plateau: trials.iter().filter(|record| record.trial > champion).count() as u64,
        knobs: tunables.view(trials, frozen),
        // a script's numbers are signed
        seed: seed >> 1,
    }
}

/// One finished trial.
pub(crate) fn trial(record: &TrialRecord, tunables: &Tunables, goal: Goal) -> Trial {
    let class = record.class.map_or(String::new(), |class| class.to_string());
    Trial {
        trial: record.trial,
        status: record.status.as_str().to_owned(),
        outcome: plain(&record.verdict.outcome, TEXT),
        gain: record.delta.map(|delta| gain(delta, goal)),
        seconds: record.seconds,
        change: change(&record.proposer, &record.proposal, class, &record.files, tunables, goal),
        parent: record.parent,
        excursion: record.excursion,
    }
}

/// What a proposal would change. `files`: relative to the root.
pub(crate) fn change(
    proposer: &str,
    proposal: &Proposal,
    class: String,
    files: &[String],
    tunables: &Tunables,
    goal: Goal,
) -> Change {
    Change {
        proposer: plain(proposer, TEXT),
        description: plain(&proposal.description, TEXT),
        category: plain(&proposal.category, TEXT),
        class,
        files: files.iter().map(|file| plain(file, TEXT)).collect(),
        moves: proposal.changes.iter().map(|change| tunables.moved(change)).collect(),
        expected_gain: proposal.expected_delta.map(|delta| gain(delta, goal)),
    }
}

/// A difference of the metric as a gain: positive is better.
fn gain(delta: f64, goal: Goal) -> f64 {
    match goal {
        Goal::Minimize => -delta,
        Goal::Maximize => delta,
    }
}
