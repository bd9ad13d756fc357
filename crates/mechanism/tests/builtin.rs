//! The mechanisms that ship.

use mechanism::{BUILTIN, Change, Host, Knob, Limits, Move, Place, Trace, Trial, validate};
use serde_json::json;

use crate::child;

#[test]
fn each_passes_the_gates_that_it_shows_to_others() {
    for builtin in BUILTIN {
        match validate(&child(), builtin.script, &Limits::default(), &[]) {
            Ok(valid) => println!("{}: {valid:?}", builtin.name),
            Err(rejection) => panic!("{}: {rejection}", builtin.name),
        }
    }
}

fn host(name: &str) -> Host {
    let script = BUILTIN.iter().find(|builtin| builtin.name == name).unwrap().script;
    Host::start(&child(), script, &Limits::default()).unwrap()
}

/// A night of a proposer that raises one knob of many again and again, to its loss.
fn stuck() -> Trace {
    let knobs = (0..12).map(|k| Knob {
        name: if k == 7 { "BATCH".into() } else { format!("KNOB_{k}") },
        kind: "log".into(),
        value: json!(0.02),
        at: 0.5,
        low: Some(0.002),
        high: Some(0.2),
        ..Knob::default()
    });
    let trials = (1..=8).map(|trial| Trial {
        trial,
        status: if trial == 1 { "keep" } else { "discard" }.into(),
        gain: Some(if trial == 1 { 0.0 } else { -0.02 }),
        change: if trial == 1 { Change::default() } else { raise() },
        ..Trial::default()
    });
    Trace {
        trials: trials.collect(),
        champion: 1,
        sigma: Some(0.001),
        plateau: 7,
        knobs: knobs.collect(),
        seed: 0,
    }
}

fn raise() -> Change {
    let moves = vec![Move { name: "BATCH".into(), from: json!(0.02), to: json!(0.04), by: 0.15 }];
    Change { class: "constant".into(), moves, ..Change::default() }
}

#[test]
fn the_loop_of_a_proposer_that_raises_one_knob_again_and_again_is_broken() {
    let trace = stuck();
    let (none, mut tabu) = (json!({}), host("tabu"));
    assert!(tabu.veto(&none, &raise(), &trace).unwrap().unwrap().contains("raise BATCH"));
    for name in ["tabu", "plateau"] {
        let advice = host(name).guide(&none, &trace).unwrap().unwrap().to_lowercase();
        assert!(advice.contains("lower batch"), "{advice}");
    }
    // whatever the chance of the proposal, the way back comes first
    let mut bandit = host("bandit");
    let mut learned = none.clone();
    for trial in &trace.trials {
        learned = bandit.record(&learned, trial).unwrap();
    }
    for seed in 0..20 {
        let trace = Trace { seed, ..trace.clone() };
        for (host, state) in [(&mut host("orthogonal"), &none), (&mut bandit, &learned)] {
            let suggestion = host.suggest(state, &trace.knobs, &trace).unwrap().unwrap();
            let Place::At(at) = suggestion.moves[0].to else { panic!("{suggestion:?}") };
            assert!(suggestion.moves[0].name == "BATCH" && at < 0.5, "{seed}: {suggestion:?}");
        }
    }
}
