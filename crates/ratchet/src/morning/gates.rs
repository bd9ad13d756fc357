//! What may say no, and how often each did. A gate that never does may be asleep.

use report::night::Gate;

use super::told;
use crate::{
    config::Task,
    history::History,
    journal::{Event, Status, TrialRecord},
    progress::Phase,
    proposer::Nothing,
};

/// Candidates after which a gate's silence is worth a look.
const OFTEN: u64 = 20;

/// Where a candidate may end, in the order in which it meets them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Admission,
    Search,
    Reviewer,
    Build,
    Preflight,
    Fit,
    Score,
    Claims,
    Verdict,
}

impl Stage {
    const ALL: [Self; 9] = [
        Self::Admission,
        Self::Search,
        Self::Reviewer,
        Self::Build,
        Self::Preflight,
        Self::Fit,
        Self::Score,
        Self::Claims,
        Self::Verdict,
    ];

    fn name(self) -> &'static str {
        match self {
            Self::Admission => "admission",
            Self::Search => "search",
            Self::Reviewer => "reviewer",
            Self::Build => "build",
            Self::Preflight => "preflight",
            Self::Fit => "fit",
            Self::Score => "score",
            Self::Claims => "claims",
            Self::Verdict => "verdict",
        }
    }

    fn what(self) -> &'static str {
        match self {
            Self::Admission => {
                "no edit, one tried before, outside what is editable, links, secrets, forbidden code"
            }
            Self::Search => "moves what is frozen, or a mechanism is against it",
            Self::Reviewer => "the team's sceptic, before any time is spent",
            Self::Build => "does not compile, or not in time",
            Self::Preflight => "fails a step on real data, the round trip, causality, or memory",
            Self::Fit => "training fails, diverges, or runs past its limits",
            Self::Score => "has no finite score, or answers that it should not know",
            Self::Claims => "says of itself what cannot be true, or changed files",
            Self::Verdict => "not better than noise and price explain",
        }
    }

    /// Where the refusal of a proposal happened; `None` where nobody refused it.
    fn of(nothing: Nothing) -> Option<Self> {
        match nothing {
            Nothing::Empty | Nothing::Refused | Nothing::Duplicate => Some(Self::Admission),
            Nothing::Steered => Some(Self::Search),
            Nothing::Vetoed => Some(Self::Reviewer),
            Nothing::TimedOut | Nothing::Down => None,
        }
    }

    /// Where a trial ended; `None` for one that was kept.
    fn end(record: &TrialRecord) -> Option<Self> {
        match record.status {
            Status::Keep => return None,
            Status::Discard => return Some(Self::Verdict),
            Status::Crash => {}
        }
        let outcome = record.verdict.outcome.as_str();
        let phase = outcome.strip_suffix("_failed").or(outcome.strip_suffix("_timed_out"));
        let last = || record.phases.iter().map(|(phase, _)| *phase).max();
        Some(match (phase, outcome) {
            (Some("build"), _) => Self::Build,
            (Some("preflight"), _) => Self::Preflight,
            (Some("score"), _) | (_, "not_finite" | "metric_missing") => Self::Score,
            (_, "claim_impossible" | "files_changed" | "not_recorded") => Self::Claims,
            // out of memory, out of disk, a library that is missing: in the phase that it was in
            _ => match last() {
                Some(Phase::Prepare | Phase::Build) => Self::Build,
                Some(Phase::Preflight) => Self::Preflight,
                Some(Phase::Score) => Self::Score,
                Some(Phase::Fit) | None => Self::Fit,
            },
        })
    }
}

/// Every gate that this task has, in the order in which a candidate meets them. Baselines are no candidates.
pub(super) fn gates(task: &Task, history: &History, events: &[Event]) -> Vec<Gate> {
    let mut ends: Vec<(Option<Stage>, String)> = Vec::new();
    for event in events {
        match event {
            Event::NoProposal { kind, reason, .. } => {
                ends.extend(Stage::of(*kind).map(|stage| (Some(stage), told(reason))));
            }
            Event::Refused { reason, .. } => ends.push((Some(Stage::Admission), told(reason))),
            Event::Closed(record) if record.parent.is_some() => {
                ends.push((Stage::end(record), told(&record.verdict.reason)));
            }
            _ => {}
        }
    }
    let refused = |stage| ends.iter().filter(move |(end, _)| *end == Some(stage));
    let there = |stage: &Stage| match stage {
        Stage::Search => {
            history.search().cycles().done > 0 || history.search().mechanisms().iter().next().is_some()
        }
        Stage::Reviewer => task.proposer.has_analyst(),
        Stage::Build => task.build.is_some(),
        Stage::Preflight => task.preflight.is_some(),
        Stage::Fit => task.fit.is_some(),
        _ => true,
    };
    let gate = |stage: Stage| {
        let asked = ends.iter().filter(|(end, _)| end.is_none_or(|end| end >= stage)).count() as u64;
        let count = refused(stage).count() as u64;
        Gate {
            name: stage.name().to_owned(),
            what: stage.what().to_owned(),
            asked,
            refused: count,
            latest: refused(stage).next_back().map(|(_, reason)| reason.clone()),
            never_said_no: count == 0 && asked >= OFTEN,
        }
    };
    let all = Stage::ALL.into_iter();
    all.filter(|stage| there(stage) || refused(*stage).next().is_some()).map(gate).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::record;

    fn task() -> Task {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(
            dir.path().join("ratchet.toml"),
            "[task]\nname = \"t\"\neditable = [\"x\"]\n[metric]\nname = \"loss\"\n[build]\ncommand = [\"make\"]\n\
             [score]\ncommand = [\"./score\"]\n",
        )
        .unwrap();
        Task::read(dir.path()).unwrap()
    }

    #[test]
    fn a_refusal_is_counted_where_it_happened_and_only_there() {
        let crash = |trial, outcome: &str| {
            let mut record = record(trial, Status::Crash, None);
            record.verdict.outcome = outcome.into();
            record.verdict.reason = format!("by {outcome}");
            Event::Closed(Box::new(record))
        };
        let nothing = |kind| Event::NoProposal {
            proposer: "p".into(),
            reason: format!("{kind:?}"),
            kind,
            uses: Vec::new(),
        };
        let mut events = vec![
            Event::Closed(Box::new(record(1, Status::Keep, Some(1.0)))), // the baseline
            nothing(Nothing::Duplicate),
            nothing(Nothing::Down),
            Event::Refused { at: String::new(), reason: "protected".into() },
            crash(2, "build_failed"),
            crash(3, "not_finite"),
            Event::Closed(Box::new(record(4, Status::Discard, Some(2.0)))),
            Event::Closed(Box::new(record(5, Status::Keep, Some(0.5)))),
        ];
        let found = |events: &[Event]| gates(&task(), &History::default(), events);
        let figures: Vec<_> =
            found(&events).into_iter().map(|gate| (gate.name, gate.asked, gate.refused)).collect();
        let wanted =
            [("admission", 6, 2), ("build", 4, 1), ("score", 3, 1), ("claims", 2, 0), ("verdict", 2, 1)];
        assert_eq!(figures, wanted.map(|(name, asked, refused)| (name.to_owned(), asked, refused)));
        assert_eq!(found(&events)[0].latest.as_deref(), Some("protected"));
        assert!(found(&events).iter().all(|gate| !gate.never_said_no), "nothing was asked often");
        events.extend((6..26).map(|trial| Event::Closed(Box::new(record(trial, Status::Keep, Some(0.5))))));
        let silent: Vec<_> = found(&events).into_iter().filter(|gate| gate.never_said_no).collect();
        assert_eq!(silent.iter().map(|gate| gate.name.as_str()).collect::<Vec<_>>(), ["claims"]);
        assert_eq!(found(&[]).iter().map(|gate| gate.asked).sum::<u64>(), 0);
    }
}
