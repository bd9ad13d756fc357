//! Which trials a person should read whole: a keep, a near miss and a crash say most about a night.

use report::night::ToRead;

use crate::{
    config::Goal,
    journal::{Status, TrialRecord},
};

/// At most three, in this order. The baseline is none of them.
pub(super) fn to_read(trials: &[TrialRecord], goal: Goal) -> Vec<ToRead> {
    let candidates = || trials.iter().filter(|record| record.parent.is_some());
    let best = |status: Status| {
        let gained = candidates()
            .filter(|record| record.status == status)
            .filter_map(|record| Some((goal.gain(0.0, record.delta?), record)));
        gained.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, record)| record)
    };
    let crash = candidates().rev().find(|record| record.status == Status::Crash);
    [
        (best(Status::Keep), "the keep with the largest gain: is it what it says it is?"),
        (best(Status::Discard), "the nearest miss: would you have kept it?"),
        (crash, "the latest crash: the idea's fault, or its code's?"),
    ]
    .into_iter()
    .filter_map(|(record, why)| Some(ToRead { trial: record?.trial, why: why.to_owned() }))
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::record;

    #[test]
    fn a_keep_a_near_miss_and_a_crash_are_chosen_and_never_the_baseline() {
        let trial = |trial, status, delta: Option<f64>| TrialRecord {
            delta,
            ..record(trial, status, delta.map(|delta| 1.0 + delta))
        };
        let trials = [
            record(1, Status::Keep, Some(1.0)),
            trial(2, Status::Keep, Some(-0.1)),
            trial(3, Status::Discard, Some(0.3)),
            trial(4, Status::Crash, None),
            trial(5, Status::Keep, Some(-0.2)),
            trial(6, Status::Discard, Some(-0.01)),
            trial(7, Status::Crash, None),
        ];
        let chosen = |goal| to_read(&trials, goal).iter().map(|chosen| chosen.trial).collect::<Vec<_>>();
        assert_eq!(chosen(Goal::Minimize), [5, 6, 7]);
        assert_eq!(chosen(Goal::Maximize), [2, 3, 7]);
        assert_eq!(to_read(&trials[..1], Goal::Minimize), []);
        assert_eq!(to_read(&[], Goal::Minimize), []);
    }
}
