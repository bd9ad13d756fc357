//! The simulated task through the program: real runs of its settings, and the script in place of a model.

use std::path::Path;

use ratchet::sim::{Landscape, SIGMA, START, Settings, Sim};

use crate::toy::Toy;

/// A simulated task with these dice.
fn task(dice: u64) -> Toy {
    let toy = Toy::no_repository();
    let ratchet = Path::new(env!("CARGO_BIN_EXE_ratchet"));
    Sim { landscape: 3, sigma: SIGMA, dice, ratchet }.write(toy.root()).unwrap();
    toy
}

#[test]
fn a_night_of_the_script_is_the_same_night_again_and_never_lowers_a_batch() {
    let night = |dice| {
        let toy = task(dice);
        toy.exits(0, &["run", "--tag", "a", "--trials", "12"]);
        (toy.column("description"), toy.column("val_bpb"))
    };
    let first = night(1);
    assert_eq!(first, night(1));
    assert_ne!(first.0, night(2).0, "other dice");
    // Oracle: the landscape itself, within five standard deviations
    let truth = Landscape::new(3).truth(&Settings::parse(START).unwrap()).unwrap();
    let baseline: f64 = first.1[0].parse().unwrap();
    assert!((baseline - truth).abs() < 5.0 * SIGMA, "{baseline}, {truth}");
    for description in &first.0 {
        assert!(!description.contains("STEP_TOKENS 524288 → 2621"), "{description}");
    }
}

#[test]
fn a_model_that_is_too_large_is_a_crash_and_named_so() {
    let toy = task(1);
    toy.write("settings.toml", &START.replace("MICRO_ROWS = 64", "MICRO_ROWS = 256"));
    let verdict = toy.exits(0, &["try", "--tag", "a", "-m", "more rows", "--json"]).json();
    assert_eq!((&verdict["status"], &verdict["outcome"]), (&"crash".into(), &"out_of_memory".into()));
}

#[test]
fn level_two_runs_on_the_script_alone() {
    let toy = task(1);
    toy.exits(0, &["run", "--tag", "a", "--levels", "2", "--trials", "20"]);
    let mechanisms = toy.exits(0, &["mechanisms", "--json"]).json();
    let used = mechanisms.as_array().unwrap().iter().find(|entry| !entry["standing"].is_null());
    assert_eq!(used.expect("the script has built one")["id"], "001", "{mechanisms}");
}
