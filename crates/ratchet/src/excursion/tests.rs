use proptest::prelude::*;

use super::*;
use crate::{
    journal::{Event, tests::record},
    verdict::PROMISING,
};

const MOST: u32 = 5;

/// σ = 0.01: starts may be 0.03 worse.
fn noise() -> Noise {
    Noise::stated(0.01)
}

fn next(history: &History) -> Option<u64> {
    start(history, &noise(), Goal::Minimize, MOST, None).map(|record| record.trial)
}

/// Closes a trial, from the files that the search would have it start from.
fn close(history: &mut History, status: Status, value: Option<f64>, outcome: Option<&str>) -> Option<u64> {
    let from = next(history);
    let mut trial = record(history.next_trial(), status, value);
    trial.parent = history.champion().map(|champion| champion.trial);
    trial.excursion = from;
    if let Some(outcome) = outcome {
        trial.verdict.outcome = outcome.into();
    }
    history.apply(Event::Closed(Box::new(trial)));
    from
}

/// A baseline of 1.0, then trials that lost this much.
fn after(losses: &[f64]) -> History {
    let mut history = History::default();
    close(&mut history, Status::Keep, Some(1.0), None);
    for loss in losses {
        close(&mut history, Status::Discard, Some(1.0 + loss), None);
    }
    history
}

fn plateau() -> History {
    let mut losses = [0.5; PLATEAU];
    (losses[3], losses[6]) = (0.02, 0.01);
    after(&losses)
}

#[test]
fn an_excursion_starts_on_a_plateau_from_a_trial_that_lost_a_little() {
    assert_eq!(next(&after(&[0.01; PLATEAU - 1])), None, "not before");
    let history = plateau();
    let starts: Vec<u64> =
        allowed(&history, &noise(), Goal::Minimize, MOST).iter().map(|r| r.trial).collect();
    assert_eq!(starts, [5, 8]); // by hand: trials 2 + 3 and 2 + 6
    assert_eq!(next(&history), Some(8), "the nearest");
    assert_eq!(next(&after(&[0.5; PLATEAU])), None, "all of them lost too much");
    assert_eq!(start(&history, &noise(), Goal::Minimize, 0, None).map(|r| r.trial), None, "0 for none");
}

#[test]
fn a_deeper_edit_is_the_better_start() {
    let mut history = History::default();
    for mut trial in plateau().trials().iter().cloned() {
        trial.class = Some(if trial.trial == 5 { EditClass::Structural } else { EditClass::Constant });
        history.apply(Event::Closed(Box::new(trial)));
    }
    assert_eq!(next(&history), Some(5));
}

#[test]
fn where_nothing_says_what_a_little_is_the_nearest_quarter_may_be_a_start() {
    let losses: Vec<f64> = (1..=PLATEAU).map(|i| 10.0 + i as f64).collect();
    let history = after(&losses);
    for noise in [Noise::unknown(), Noise::stated(0.0)] {
        let starts = allowed(&history, &noise, Goal::Minimize, MOST);
        assert_eq!(starts.iter().map(|record| record.trial).collect::<Vec<_>>(), [2, 3, 4]);
    }
}

#[test]
fn its_tip_moves_to_what_is_better_and_not_to_what_is_worse_or_crashed() {
    let mut history = plateau();
    assert_eq!(close(&mut history, Status::Discard, Some(1.2), None), Some(8));
    assert_eq!(close(&mut history, Status::Crash, None, None), Some(8));
    assert_eq!(close(&mut history, Status::Discard, Some(1.005), None), Some(8));
    assert_eq!(next(&history), Some(16), "better than trial 8, if not than the champion");
    let excursion = under_way(&history, Goal::Minimize, MOST).unwrap();
    assert_eq!((excursion.from.trial, excursion.trials), (8, 3));
}

#[test]
fn it_ends_when_something_beats_the_champion_or_is_promising() {
    let mut history = plateau();
    close(&mut history, Status::Discard, Some(1.2), None);
    let mut kept = history.clone();
    close(&mut kept, Status::Keep, Some(0.9), None);
    assert_eq!(next(&kept), None);
    close(&mut history, Status::Discard, Some(0.999), Some(PROMISING));
    assert_eq!((next(&history), history.lead().map(|lead| lead.trial)), (None, Some(15)));
}

#[test]
fn it_is_dropped_after_its_trials_and_another_one_has_to_wait() {
    let mut history = plateau();
    let mut from = Vec::new();
    for _ in 0..MOST as usize + PLATEAU {
        from.push(close(&mut history, Status::Discard, Some(1.4), None));
    }
    assert_eq!(from[..MOST as usize], [Some(8); MOST as usize]);
    assert_eq!(from[MOST as usize..], [None; PLATEAU]);
    assert_eq!(next(&history), Some(5), "trial 8 was used");
}

#[test]
fn in_a_search_that_maximises_worse_is_lower() {
    let mut history = History::default();
    history.apply(Event::Closed(Box::new(record(1, Status::Keep, Some(1.0)))));
    for i in 0..PLATEAU as u64 {
        let value = if i == 4 { 0.98 } else { 0.5 };
        history.apply(Event::Closed(Box::new(record(2 + i, Status::Discard, Some(value)))));
    }
    assert_eq!(start(&history, &noise(), Goal::Maximize, MOST, None).map(|record| record.trial), Some(6));
}

/// What a trial of a made-up night came to.
fn ending() -> impl Strategy<Value = (u8, f64)> {
    (0..20_u8, -0.02..0.08_f64)
}

proptest! {
    /// Oracle: counted from the records alone, by what each of them names as its start.
    #[test]
    fn no_excursion_is_longer_than_it_may_be_and_each_is_of_its_champion(
        night in prop::collection::vec(ending(), 1..150),
    ) {
        let mut history = after(&[]);
        for (kind, loss) in night {
            let best = history.champion().and_then(|champion| champion.value).unwrap();
            let value = best + loss.abs();
            match kind {
                0 => close(&mut history, Status::Keep, Some(best - loss.abs()), None),
                1 => close(&mut history, Status::Discard, Some(best - 1e-6), Some(PROMISING)),
                2 | 3 => close(&mut history, Status::Crash, None, None),
                _ => close(&mut history, Status::Discard, Some(value), None),
            };
        }
        let (mut before, mut length, mut root) = (f64::INFINITY, 0, None);
        let mut roots = HashSet::new();
        for record in history.trials() {
            match record.excursion {
                None => (length, root) = (0, None),
                Some(from) => {
                    let start = history.trial(from).unwrap();
                    prop_assert_eq!(start.parent, record.parent, "a start is of the same champion");
                    if start.excursion.is_none() && root != Some(from) {
                        prop_assert!(roots.insert(from), "a start is used once");
                        (length, root) = (0, Some(from));
                    }
                    length += 1;
                    prop_assert!(length <= MOST, "{} trials in a row", length);
                }
            }
            if record.status == Status::Keep {
                prop_assert!(record.value.unwrap() <= before, "the champion's line only moves forward");
                before = record.value.unwrap();
                (length, root) = (0, None);
            }
        }
    }

    /// Oracle: the same records read again, as a resumed night reads them.
    #[test]
    fn a_resumed_history_chooses_the_same(night in prop::collection::vec(ending(), 1..60)) {
        let mut history = after(&[0.02; PLATEAU]);
        for (kind, loss) in night {
            let status = if kind == 0 { Status::Crash } else { Status::Discard };
            close(&mut history, status, (kind > 0).then_some(1.0 + loss.abs()), None);
            let mut resumed = History::default();
            for record in history.trials() {
                resumed.apply(Event::Closed(Box::new(record.clone())));
            }
            prop_assert_eq!(next(&resumed), next(&history));
        }
    }
}
