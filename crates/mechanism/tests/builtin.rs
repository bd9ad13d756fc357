//! The mechanisms that ship.

use mechanism::{BUILTIN, Change, Hook, Host, Knob, Limits, Move, Place, Trace, Trial, validate};
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

#[test]
fn long_names_and_odd_categories_break_none_of_them() {
    let name = |k: u64| format!("A_VERY_LONG_NAME_OF_A_TUNABLE_OF_SOME_MODULE_OF_THE_MODEL_{k:02}");
    let knob = |k| Knob { name: name(k), ..stuck().knobs[0].clone() };
    let moved = |k, up| {
        let by = if up { 0.1 } else { -0.1 };
        Move { name: name(k % 20), from: json!(0.02), to: json!(0.02 + by), by }
    };
    let trials = (1..=200).map(|trial| Trial {
        trial: 1000 + trial,
        status: if trial % 7 == 0 { "crash" } else { "discard" }.into(),
        gain: (trial % 7 != 0).then_some(-0.01),
        change: Change {
            category: "\u{1f980}".repeat(200 - trial as usize % 50),
            moves: (0..3).map(|m| moved(trial + 7 * m, trial % 3 == 0)).collect(),
            ..Change::default()
        },
        ..Trial::default()
    });
    let trace =
        Trace { trials: trials.collect(), knobs: (0..20).map(knob).collect(), plateau: 200, ..stuck() };
    for builtin in BUILTIN {
        let mut state = json!({});
        let mut host = host(builtin.name);
        for hook in host.hooks().clone().into_iter().rev() {
            let done = match hook {
                Hook::Guide => host.guide(&state, &trace).map(drop),
                Hook::Veto => host.veto(&state, &trace.trials[9].change, &trace).map(drop),
                Hook::Suggest => host.suggest(&state, &trace.knobs, &trace).map(drop),
                Hook::Parent => host.parent(&state, &[1003, 1200], &trace).map(drop),
                Hook::Record => trace.trials.iter().try_for_each(|trial| {
                    state = host.record(&state, trial)?;
                    Ok(())
                }),
                Hook::Rank => Ok(()),
            };
            done.unwrap_or_else(|fault| panic!("{}: {fault}", builtin.name));
        }
    }
}
