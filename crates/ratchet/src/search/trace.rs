//! The history as mechanisms see it. No validation row, no audit, no lesson: what a proposer knows, as plain data.

use mechanism::{Change, Trace, Trial};

use crate::{
    config::Goal,
    history::History,
    journal::TrialRecord,
    proposer::{KnobChange, Proposal, knobs::Tunables},
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
        trials: trials.iter().map(|record| trial(history, record, tunables, goal)).collect(),
        champion,
        sigma: sigma.filter(|sigma| sigma.is_finite() && *sigma > 0.0),
        plateau: trials.iter().filter(|record| record.trial > champion).count() as u64,
        knobs: tunables.view(trials, frozen),
        // a script's numbers are signed
        seed: seed >> 1,
    }
}

/// One finished trial, against what it started from: what that had moved already is not its doing, nor is the gain.
pub(crate) fn trial(history: &History, record: &TrialRecord, tunables: &Tunables, goal: Goal) -> Trial {
    let start = record.carries.or(record.excursion).and_then(|trial| history.trial(trial));
    let class = record.class.map_or(String::new(), |class| class.to_string());
    let before = start.and_then(|start| start.delta).unwrap_or(0.0);
    Trial {
        trial: record.trial,
        status: record.status.as_str().to_owned(),
        outcome: plain(&record.verdict.outcome, TEXT),
        gain: record.delta.map(|delta| goal.gain(before, delta)),
        seconds: record.seconds,
        change: change(
            &record.proposer,
            &record.proposal,
            &own_changes(&record.proposal.changes, start),
            class,
            &record.files,
            tunables,
            goal,
        ),
        parent: record.parent,
        excursion: record.excursion,
    }
}

/// What of a candidate's changes, which are told against the champion, is its own: against the trial that it started
/// from.
pub(crate) fn own_changes(changes: &[KnobChange], start: Option<&TrialRecord>) -> Vec<KnobChange> {
    let before = start.map_or(&[][..], |start| &start.proposal.changes);
    let of = |changes: &[KnobChange], name: &str| changes.iter().find(|change| change.name == name).cloned();
    let own = changes.iter().filter_map(|change| match of(before, &change.name) {
        Some(was) if was.to == change.to => None,
        Some(was) => Some(KnobChange { from: was.to, ..change.clone() }),
        None => Some(change.clone()),
    });
    let taken_back = before.iter().filter(|was| of(changes, &was.name).is_none());
    let back = taken_back.map(|was| KnobChange {
        from: was.to.clone(),
        to: was.from.clone(),
        name: was.name.clone(),
    });
    own.chain(back).collect()
}

/// What a proposal would change. `own`: what it moves, against what it starts from; `files`: relative to the root.
pub(crate) fn change(
    proposer: &str,
    proposal: &Proposal,
    own: &[KnobChange],
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
        moves: own.iter().map(|change| tunables.moved(change)).collect(),
        expected_gain: proposal.expected_delta.map(|delta| goal.gain(0.0, delta)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Event, Status, tests::record};

    #[test]
    fn what_a_trial_carries_is_neither_its_move_nor_its_gain() {
        let change = |name: &str, from: &str, to: &str| KnobChange {
            name: name.into(),
            from: from.into(),
            to: to.into(),
        };
        let mut history = History::default();
        history.apply(Event::Closed(Box::new(record(1, Status::Keep, Some(1.0)))));
        let mut lead = record(2, Status::Discard, Some(0.9));
        lead.delta = Some(-0.1);
        lead.proposal.changes = vec![change("A", "1", "2"), change("B", "1", "2"), change("C", "1", "2")];
        history.apply(Event::Closed(Box::new(lead)));
        let mut next = record(3, Status::Discard, Some(0.85));
        next.delta = Some(-0.15);
        next.carries = Some(2);
        // A is carried as it was, B goes on, C is taken back, D is new
        next.proposal.changes = vec![change("A", "1", "2"), change("B", "1", "3"), change("D", "5", "6")];
        history.apply(Event::Closed(Box::new(next)));
        let seen = trial(&history, &history.trials()[2], &Tunables::default(), Goal::Minimize);
        let moves: Vec<(String, i64, i64)> = seen
            .change
            .moves
            .iter()
            .map(|m| (m.name.clone(), m.from.as_i64().unwrap(), m.to.as_i64().unwrap()))
            .collect();
        let expected = [("B", 2, 3), ("D", 5, 6), ("C", 2, 1)];
        assert_eq!(moves, expected.map(|(name, from, to)| (name.to_owned(), from, to)));
        assert!((seen.gain.unwrap() - 0.05).abs() < 1e-12);
    }
}
