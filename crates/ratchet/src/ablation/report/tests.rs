use super::*;
use crate::{
    ablation::{Point, Used, plan::Asked},
    config::Metric,
};

fn plan(groups: &[Group], repeats: usize) -> Plan {
    let asked = Asked { groups: groups.to_vec(), repeats, trials: 10, on: On::Sim, out: None, seed: 0 };
    Plan::of(&asked, Metric { name: "val_bpb".into(), goal: Goal::Minimize }, None).unwrap()
}

/// A repeat that ended so much lower, without noise, after two trials of 300 s.
fn outcome(group: Group, repeat: usize, gain: f64) -> Outcome {
    let point = |trial: u64| Point {
        trial,
        used: Used { trials_s: 300.0 * trial as f64, proposing_s: 10.0, ..Used::default() },
        champion: Some(trial),
    };
    Outcome {
        group,
        repeat,
        start: "the same".into(),
        reason: "the budget is used".into(),
        used: point(2).used,
        points: vec![point(1), point(2)],
        values: vec![1.0, 1.0 - gain - 0.001],
        truths: Some(vec![1.0, 1.0 - gain]),
        counts: [2, 0, 0],
        in_vain: 1,
        between_s: 0.1,
        cycles: Counted::default(),
        sessions: Counted::default(),
        mechanisms: Vec::new(),
    }
}

fn had(standing: Standing, acted: u64) -> Had {
    Had {
        id: "001".into(),
        name: "one".into(),
        standing,
        reason: String::new(),
        calls: [(Hook::Veto, 3)].into(),
        acted: [(Hook::Veto, acted)].into(),
        trials: [8, 8],
        effect: None,
    }
}

/// Groups whose repeats gain so much each, with a little that differs from repeat to repeat.
fn report(gains: &[(Group, f64)], repeats: usize) -> Report {
    let groups: Vec<Group> = gains.iter().map(|(group, _)| *group).collect();
    let of = |repeat: usize| {
        gains.iter().enumerate().map(move |(i, (group, gain))| {
            let luck = ((repeat * 7 + i * 3) % 5) as f64 * 1e-4;
            outcome(*group, repeat, gain + luck)
        })
    };
    Report::of(&plan(&groups, repeats), 3000.0, (1..=repeats).flat_map(of).collect())
}

#[test]
fn with_few_repeats_it_says_so_whatever_the_figures() {
    let said = report(&[(Group::A, 0.0), (Group::C, 0.5)], 5).conclusion;
    assert_eq!(said.len(), 1);
    assert!(
        said[0].starts_with("n = 5 is too small for any claim") && said[0].ends_with("It takes 6 repeats.")
    );
}

#[test]
fn what_is_credible_is_claimed_and_no_more() {
    let said = report(&[(Group::A, 0.0), (Group::C, 0.01), (Group::R, 0.01)], 12).conclusion;
    assert!(said.iter().any(|line| line.starts_with("C ends better than A, by 0.00997")), "{said:?}");
    assert!(said.iter().any(|line| line.starts_with("R ends better than A")), "{said:?}");
    assert!(!said.iter().any(|line| line.contains("C ends better than R")), "{said:?}");
    let control = "That C gains more than its restarts alone do is not shown";
    assert!(said.iter().any(|line| line.starts_with(control)), "{said:?}");
    let said = report(&[(Group::A, 0.0), (Group::C, 0.02), (Group::R, 0.01)], 12).conclusion;
    let more = "C gains more than its restarts alone do: 0.0";
    assert!(said.iter().any(|line| line.starts_with(more)), "{said:?}");
}

#[test]
fn equal_groups_are_not_told_apart() {
    let said = report(&[(Group::A, 0.01), (Group::B, 0.01)], 12).conclusion;
    assert_eq!(said, ["No difference between groups is credible at n = 12."]);
}

#[test]
fn changes_are_those_of_the_metric_and_gains_are_without_luck() {
    let report = report(&[(Group::A, 0.01), (Group::B, 0.0)], 5);
    let row = &report.groups[0];
    let mean = 0.01 + 2e-4; // 0 to 4 times 1e-4, each once
    assert!((row.true_delta.unwrap().mean + mean).abs() < 1e-12);
    assert!((row.delta.mean + mean + 0.001).abs() < 1e-12);
    // 600 s of trials each
    assert!((row.gain_per_hour - mean * 6.0).abs() < 1e-9 && row.gain_per_usd.is_none());
    assert_eq!((row.trials, row.keeps, row.in_vain), (2.0, 1.0, 1.0));
}

#[test]
fn mechanisms_that_never_acted_are_credited_with_nothing() {
    let plan = plan(&[Group::A, Group::D], 6);
    let with = |acted: u64| {
        let of = |repeat: usize| {
            let mechanisms = vec![had(Standing::Trial, acted)];
            [outcome(Group::A, repeat, 0.0), Outcome { mechanisms, ..outcome(Group::D, repeat, 0.01) }]
        };
        Report::of(&plan, 3000.0, (1..=6).flat_map(of).collect())
    };
    let none = "No mechanism of D ever acted: whatever D gained is none of theirs.".to_owned();
    assert!(with(0).conclusion.contains(&none) && !with(1).conclusion.contains(&none));
    assert!(with(0).text().contains("6 mechanisms (6 trial; 6 inactive), calls/acted: veto 18/0"));
}

#[test]
fn those_of_no_use_are_counted() {
    let of = |repeat: usize| {
        let standing = if repeat == 1 { Standing::Adopted } else { Standing::Retired };
        Outcome { mechanisms: vec![had(standing, 1)], ..outcome(Group::P, repeat, 0.0) }
    };
    let report = Report::of(&plan(&[Group::P], 40), 3000.0, (1..=40).map(of).collect());
    // Clopper-Pearson for 39 of 40, by tables: 86.8 to 99.9
    let said = "P: of 40 mechanisms that do nothing 39 were retired (97.5 %, 95 % interval 86.8 to 99.9), 1 ended adopted.";
    assert_eq!(report.conclusion[1], said);
}
