//! Claims about the verdict, checked against simulated trials whose truth is known.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::*;
use crate::{
    config::Goal,
    noise::{Replicates, Value},
    risk::Risk,
};

fn runs(values: &[f64]) -> Runs {
    Runs::try_from(values.to_vec()).unwrap()
}

fn score(values: &[f64], lines: u64) -> Score {
    Score { runs: runs(values), lines, memory_gb: 0.0, sampling: 0.0 }
}

fn against(champion: &[f64]) -> Scored {
    let score = score(champion, 700);
    Scored { best: score.runs.mean(), score, risk: Risk::default(), lead: None }
}

fn judge(champion: &Scored, candidate: &Score, sigma: f64, policy: &Policy) -> Verdict {
    verdict(Some(champion), &Outcome::Scored(candidate.clone()), &Noise::stated(sigma), policy)
}

fn strict() -> Policy {
    Policy { rule: Rule::Strict, ..Policy::default() }
}

/// A normal variate by Box and Muller.
fn gauss(rng: &mut StdRng) -> f64 {
    let (u, v): (f64, f64) = (rng.random::<f64>().max(1e-300), rng.random());
    (-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()
}

/// Runs one trial to its end as the driver does, replicating champion and candidate as asked.
fn play(
    standing: &mut Scored,
    truth: (f64, f64),
    lines: u64,
    noise: &Noise,
    policy: &Policy,
    rng: &mut StdRng,
) -> (Verdict, Score) {
    let sigma = 1.0; // the true one, whatever `noise` says
    let mut candidate = score(&[truth.1 + sigma * gauss(rng)], lines);
    loop {
        let verdict = verdict(Some(standing), &Outcome::Scored(candidate.clone()), noise, policy);
        match verdict.decision {
            Decision::Replicate(pairs) => {
                for (runs, truth) in [(&mut standing.score.runs, truth.0), (&mut candidate.runs, truth.1)] {
                    while runs.count() < pairs {
                        runs.push(Value::new(truth + sigma * gauss(rng)).unwrap());
                    }
                }
            }
            _ => return (verdict, candidate),
        }
    }
}

#[test]
fn strict_keeps_any_gain_and_nothing_else() {
    let standing = against(&[1.0]);
    let decide = |value: f64| judge(&standing, &score(&[value], 700), 0.5, &strict()).decision;
    assert_eq!(decide(1.0 - 1e-12), Decision::Keep);
    assert_eq!(decide(1.0), Decision::Discard);
    assert_eq!(decide(1.1), Decision::Discard);
}

#[test]
fn a_crash_is_never_ranked_and_a_baseline_is_kept() {
    let noise = Noise::stated(0.1);
    let crash =
        Outcome::Crashed(Crash { outcome: "nan".to_owned(), reason: "NaN loss at step 3".to_owned() });
    for standing in [None, Some(&against(&[1.0]))] {
        let verdict = verdict(standing, &crash, &noise, &strict());
        assert_eq!((verdict.decision, verdict.value, verdict.delta), (Decision::Crash, None, None));
        assert_eq!(verdict.reason, "NaN loss at step 3");
    }
    // A crash's sentinel, 0, would be the lowest value; there is no way to pass it but as a real score.
    let first = verdict(None, &Outcome::Scored(score(&[9.0], 1)), &noise, &Policy::default());
    assert_eq!((first.decision, first.outcome.as_str()), (Decision::Keep, "baseline"));
}

#[test]
fn nan_is_never_kept() {
    // Oracle: types. A NaN or an infinity is no `Value`, so no `Scored` can hold one, not even when read
    // from a file: serde_json writes both as null.
    assert!(Value::new(f64::NAN).is_err() && Value::new(f64::INFINITY).is_err());
    let text = serde_json::json!({"runs": [f64::NAN], "lines": 1, "memory_gb": null}).to_string();
    assert!(serde_json::from_str::<Scored>(&text).is_err(), "{text}");
}

/// Without carrying: each candidate by itself.
fn alone() -> Policy {
    Policy { carry: false, ..Policy::default() }
}

#[test]
fn clear_grey_and_lost_cases() {
    let decide = |champion: &[f64], candidate: &[f64]| {
        let judged = judge(&against(champion), &score(candidate, 700), 0.01, &alone());
        (judged.decision, judged.outcome)
    };
    let is = |decision, outcome: &str| (decision, outcome.to_owned());
    // Oracle: by hand. The first test of a tag has the level 0.05/5, half of it a look: 2.576 errors. With two
    // runs each the error is 0.01, with three 0.00816; the first run alone keeps nothing.
    assert_eq!(decide(&[1.0], &[0.9]), is(Decision::Replicate(2), "open"));
    assert_eq!(decide(&[1.0; 2], &[1.0 - 0.0258; 2]), is(Decision::Keep, "improved"));
    assert_eq!(decide(&[1.0; 2], &[1.0 - 0.0257; 2]), is(Decision::Replicate(3), "open"));
    assert_eq!(decide(&[1.0; 3], &[1.0 - 0.0211; 3]), is(Decision::Keep, "improved"));
    assert_eq!(decide(&[1.0; 3], &[1.0 - 0.0210; 3]), is(Decision::Discard, "within_noise"));
    // Hope: 0.0210 is out of reach by more than 0.674 of what is still to come, √(0.01² − 0.00816²) = 0.00577.
    assert_eq!(decide(&[1.0; 2], &[1.0 - 0.0172; 2]), is(Decision::Replicate(3), "open"));
    assert_eq!(decide(&[1.0; 2], &[1.0 - 0.0170; 2]), is(Decision::Discard, "within_noise"));
    assert_eq!(decide(&[1.0], &[1.1]), is(Decision::Discard, "worse"));
}

#[test]
fn what_is_promising_is_carried_until_it_is_worth_a_test() {
    let policy = Policy::default();
    let decide = |standing: &Scored, value: f64| judge(standing, &score(&[value], 700), 0.01, &policy);
    let standing = against(&[1.0]);
    // Oracle: by hand. Of a single run's gain 0.4 are believed; 2 σ of belief, a gain of 0.05, are worth a test.
    assert_eq!(decide(&standing, 1.0 - 0.051).decision, Decision::Replicate(2));
    let first = decide(&standing, 1.0 - 0.01);
    assert_eq!((first.decision, first.outcome.as_str()), (Decision::Discard, PROMISING));
    assert!((first.lead.unwrap() - (1.0 - 0.004)).abs() < 1e-12);
    assert_eq!(first.level, 0.0, "nothing was tested, so nothing is spent");
    // The next one builds on it, and has to beat what is believed of it.
    let standing = Scored { lead: first.lead, ..standing };
    let worse = decide(&standing, 1.0 - 0.003);
    assert_eq!((worse.decision, worse.outcome.as_str()), (Decision::Discard, "worse"));
    let better = decide(&standing, 1.0 - 0.02);
    assert!((better.lead.unwrap() - (1.0 - 0.004 - 0.4 * 0.016)).abs() < 1e-12, "{:?}", better.lead);
    assert_eq!(decide(&standing, 1.0 - 0.0441).decision, Decision::Replicate(2));
}

#[test]
fn few_exam_rows_make_a_gain_less_certain() {
    let candidate = Score { sampling: 0.02, ..score(&[0.95; 3], 700) };
    let judged = judge(&against(&[1.0; 3]), &candidate, 0.01, &alone());
    // Oracle: by hand, √(0.01²·2/3 + 0.02²) = 0.0216; 2.576 of these are 0.0556.
    assert!((judged.standard_error.unwrap() - 0.0216).abs() < 1e-4);
    assert_eq!(judged.decision, Decision::Discard);
    assert_eq!(judge(&against(&[1.0; 3]), &score(&[0.95; 3], 700), 0.01, &alone()).decision, Decision::Keep);
}

#[test]
fn pairs_cancel_what_the_seed_does_to_both() {
    let standing = against(&[1.0, 1.5, 0.6, 1.2]);
    let candidate = score(&[0.9, 1.4, 0.5], 700);
    // Oracle: the differences of pairs are all −0.1, and seeds are known to do the same to both.
    let same: Vec<Replicates> = vec![Replicates::Pair(vec![0.1; 4]), Replicates::Known(0.5, 20)];
    let noise = Noise::estimate(&same, Noise::unknown());
    let verdict = verdict(Some(&standing), &Outcome::Scored(candidate), &noise, &alone());
    assert_eq!((verdict.decision, verdict.paired, verdict.runs), (Decision::Keep, true, [3, 4]));
    assert!((verdict.delta.unwrap() + 0.1).abs() < 1e-12);
}

#[test]
fn an_unknown_sigma_asks_for_runs_before_it_keeps() {
    let policy = Policy::default();
    let unknown = Noise::unknown();
    let decide = |champion: &[f64], candidate: &[f64]| {
        let outcome = Outcome::Scored(score(candidate, 700));
        verdict(Some(&against(champion)), &outcome, &unknown, &policy).decision
    };
    assert_eq!(decide(&[1.0], &[0.5]), Decision::Replicate(2));
    assert_eq!(decide(&[1.0], &[1.5]), Decision::Discard);
    assert_eq!(decide(&[1.0; 4], &[0.5; 4]), Decision::Keep);
    // A referee without noise is strict after that: no replicate is paid for.
    let measured = Noise::estimate(&[Replicates::Alone(vec![1.0; 4])], unknown);
    assert_eq!(measured.sigma(), Some(0.0));
    let outcome = Outcome::Scored(score(&[0.4999], 700));
    let next = verdict(Some(&against(&[0.5; 4])), &outcome, &measured, &policy);
    assert_eq!(next.decision, Decision::Keep);
}

#[test]
fn added_lines_memory_and_min_delta_have_to_be_earned() {
    let standing = against(&[1.0]);
    let policy = Policy {
        line_price: 0.05,
        min_delta: 0.03,
        memory_price: 0.01,
        memory_limit_gb: Some(8.0),
        ..alone()
    };
    // Oracle: by hand. min_delta 0.03 is above 2.576 · 0.00816; 40 lines at 0.05 σ cost 0.02, 80 cost 0.04.
    let three = against(&[1.0; 3]);
    let ground = |value: f64, lines: u64| judge(&three, &score(&[value; 3], lines), 0.01, &policy).outcome;
    assert_eq!(ground(1.0 - 0.051, 740), "improved");
    assert_eq!(ground(1.0 - 0.049, 740), "price");
    assert_eq!(ground(1.0 - 0.069, 780), "price");
    assert_eq!(ground(1.0 - 0.031, 700), "improved");
    assert_eq!(ground(1.0 - 0.029, 700), "within_noise");
    // σ small: min_delta rules, and hope does not reach far below it.
    let ground = |value: f64| judge(&against(&[1.0; 2]), &score(&[value; 2], 700), 0.001, &policy).outcome;
    assert_eq!(ground(1.0 - 0.031), "improved");
    assert_eq!(ground(1.0 - 0.0298), "open");
    assert_eq!(ground(1.0 - 0.02), "within_noise");
    let mut heavy = score(&[0.5], 700);
    heavy.memory_gb = 8.1;
    assert_eq!(judge(&standing, &heavy, 0.01, &policy).outcome, "memory");
    let mut standing = standing;
    standing.score.memory_gb = 2.0;
    heavy.memory_gb = 7.0; // 5 GB at 0.01 each
    heavy.runs = runs(&[1.0 - 0.06; 3]);
    standing.score.runs = runs(&[1.0; 3]);
    assert_eq!(judge(&standing, &heavy, 0.001, &policy).outcome, "price");
}

#[test]
fn a_simplification_is_held_against_the_best_ever() {
    let mut standing = against(&[1.0; 4]);
    standing.best = 0.995;
    let decide = |value: f64| judge(&standing, &score(&[value; 4], 690), 0.01, &Policy::default());
    // Oracle: by hand. best + 1 σ is 1.005, and 1.5 errors of a mean of four, 0.0075, have to fit below it.
    assert_eq!(decide(0.9974).decision, Decision::Keep);
    assert_eq!(decide(0.9976).decision, Decision::Discard);
    let same_size = judge(&standing, &score(&[1.0; 4], 700), 0.01, &Policy::default());
    assert_eq!(same_size.decision, Decision::Discard);
    // One run proves nothing.
    let one = judge(&against(&[1.0; 4]), &score(&[0.99], 690), 0.01, &Policy::default());
    assert_eq!(one.decision, Decision::Replicate(2));
}

#[test]
fn simplifications_cannot_add_up_to_a_regression() {
    for seed in 0..20 {
        let mut rng = StdRng::seed_from_u64(seed);
        let (noise, policy) = (Noise::stated(1.0), alone());
        let mut standing = against(&[0.0; 4]);
        standing.score.lines = 100_000;
        let (mut truth, mut lines, mut best, mut kept) = (0.0, 100_000, 0.0f64, 0);
        for _ in 0..1_000 {
            // The adversary gives up a little quality for each line, as much as it thinks it can.
            let worse = truth + 0.2 * rng.random::<f64>();
            lines -= 1;
            let (verdict, candidate) = play(&mut standing, (truth, worse), lines, &noise, &policy, &mut rng);
            if verdict.decision == Decision::Keep {
                kept += 1;
                let within = candidate.runs.mean() <= best + policy.slack + 1e-9;
                assert!(verdict.outcome == "improved" || within, "slack was renewed");
                best = best.min(candidate.runs.mean());
                standing = Scored { score: candidate, best, risk: standing.risk, lead: None };
                truth = worse;
            }
        }
        // Oracle: every keep measured at most 1 σ behind the best; beyond that the truth can only be worse by
        // the luck of single means, which does not add up either.
        assert!(truth < 3.0, "true loss {truth} σ after {kept} simplifications, seed {seed}");
        assert!(kept > 0, "no simplification was ever kept");
    }
}

#[test]
fn fifty_simplifications_or_as_many_as_get_through_end_within_the_slack() {
    // Each takes a line away and gives up as much as an adversary can hope to get through, until fifty are kept.
    let (noise, policy) = (Noise::stated(1.0), alone());
    let (mut losses, mut all) = (Vec::new(), 0);
    for seed in 0..100 {
        let mut rng = StdRng::seed_from_u64(seed);
        let mut standing = against(&[0.0; 4]);
        standing.score.lines = 100_000;
        let (mut truth, mut best, mut kept, mut tries) = (0.0, 0.0f64, 0, 0);
        while kept < 50 && tries < 5_000 {
            tries += 1;
            let worse = truth + 0.1 * rng.random::<f64>();
            let lines = standing.score.lines - 1;
            let (judged, candidate) = play(&mut standing, (truth, worse), lines, &noise, &policy, &mut rng);
            if judged.decision == Decision::Keep {
                kept += 1;
                best = best.min(candidate.runs.mean());
                standing = Scored { score: candidate, best, risk: standing.risk, lead: None };
                truth = worse;
            }
        }
        all += kept;
        losses.push(truth);
    }
    assert!(all >= 200, "only {all} in 100 nights");
    // Oracle: the bound itself, slack = 1 σ. A single end may lie beyond by the luck of its own few runs, whose
    // mean has an error of at most 0.7 σ; that is not renewed either.
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    let worst = losses.iter().copied().fold(0.0, f64::max);
    assert!(mean <= policy.slack && worst <= policy.slack + 3.0 * 0.71, "mean {mean}, worst {worst}");
}

/// Decisions in order of favour.
fn rank(decision: Decision) -> u32 {
    match decision {
        Decision::Crash => 0,
        Decision::Discard => 1,
        Decision::Replicate(_) => 2,
        Decision::Keep => 3,
    }
}

proptest! {
    #[test]
    fn a_better_value_is_never_judged_worse(
        champion in prop::collection::vec(-5.0..5.0f64, 1..5), candidate in prop::collection::vec(-5.0..5.0f64, 1..5),
        run in 0usize..4, better_by in 0.0..5.0f64, sigma in 0.0..2.0f64, lines in 690u64..710, min_delta in 0.0..1.0f64,
        best_below in 0.0..1.0f64, carry: bool,
    ) {
        let mut standing = against(&champion);
        standing.best -= best_below;
        let policy = Policy { min_delta, carry, ..Policy::default() };
        let mut better = candidate.clone();
        let run = run % better.len();
        better[run] -= better_by;
        let before = judge(&standing, &score(&candidate, lines), sigma, &policy).decision;
        let after = judge(&standing, &score(&better, lines), sigma, &policy).decision;
        prop_assert!(rank(after) >= rank(before), "{before:?} became {after:?}");
    }

    #[test]
    fn minimise_and_maximise_mirror_each_other(
        champion in prop::collection::vec(-5.0..5.0f64, 1..5), candidate in prop::collection::vec(-5.0..5.0f64, 1..5),
        sigma in 0.0..2.0f64, lines in 690u64..710, is_strict: bool, min_delta in 0.0..1.0f64,
    ) {
        let rule = if is_strict { Rule::Strict } else { Rule::Noise };
        let negated = |values: &[f64]| values.iter().map(|v| -v).collect::<Vec<_>>();
        let outcomes = [
            (champion.clone(), candidate.clone(), Goal::Minimize),
            (negated(&champion), negated(&candidate), Goal::Maximize),
        ]
        .map(|(champion, candidate, goal)| {
            let policy = Policy { rule, min_delta, goal, ..Policy::default() };
            judge(&against(&champion), &score(&candidate, lines), sigma, &policy)
        });
        prop_assert_eq!(outcomes[0].decision, outcomes[1].decision);
        prop_assert_eq!(&outcomes[0].outcome, &outcomes[1].outcome);
        prop_assert_eq!(outcomes[0].delta.map(|d| -d), outcomes[1].delta);
    }
}
