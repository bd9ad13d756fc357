//! What mechanisms cost a trial.

use std::time::{Duration, Instant};

use mechanism::{BUILTIN, Change, Fault, Hook, Host, Knob, Limits, Move, Trace, Trial};
use serde_json::{Value, json};

use crate::child;

/// A night of so many trials over twenty knobs.
fn night(n: u64) -> Trace {
    let knobs = (0..20).map(|k| Knob {
        name: format!("KNOB_{k}"),
        kind: "log".into(),
        value: json!(0.02),
        at: 0.5,
        low: Some(0.002),
        high: Some(0.2),
        tried: n / 20,
        ..Knob::default()
    });
    let trials = (1..=n).map(|trial| Trial {
        trial,
        status: if trial % 9 == 1 { "keep" } else { "discard" }.into(),
        outcome: "worse".into(),
        gain: Some(-0.001),
        seconds: 300.0,
        change: Change {
            proposer: "llm".into(),
            description: format!(
                "raise the learning rate of the matrices, as in trial {trial}, with less decay"
            ),
            category: "optimizer".into(),
            class: "constant".into(),
            files: vec!["train/src/recipe.rs".into()],
            moves: (0..2)
                .map(|m| Move {
                    name: format!("KNOB_{}", (trial + m) % 20),
                    from: json!(0.02),
                    to: json!(0.03),
                    by: 0.1,
                })
                .collect(),
            expected_gain: Some(0.001),
        },
        parent: Some(trial - trial % 9),
        excursion: None,
    });
    Trace {
        trials: trials.collect(),
        champion: n - n % 9,
        plateau: 9,
        sigma: Some(0.0009),
        knobs: knobs.collect(),
        seed: 7,
    }
}

fn call(host: &mut Host, hook: Hook, state: &Value, trace: &Trace) -> Result<(), Fault> {
    let trial = &trace.trials[trace.trials.len() - 1];
    match hook {
        Hook::Guide => host.guide(state, trace).map(drop),
        Hook::Veto => host.veto(state, &trial.change, trace).map(drop),
        Hook::Rank => host.rank(state, std::slice::from_ref(&trial.change), trace).map(drop),
        Hook::Suggest => host.suggest(state, &trace.knobs, trace).map(drop),
        Hook::Parent => host.parent(state, &[trial.trial], trace).map(drop),
        Hook::Record => host.record(state, trial).map(drop),
    }
}

/// The whole of what one mechanism costs one proposal: a child of its own, and each of its hooks once. A hundredth
/// of the five minutes of a trial is three seconds.
#[test]
fn a_mechanism_takes_a_proposal_a_fraction_of_a_hundredth_of_its_time() {
    let limits = Limits::default();
    for n in [30, 100, 500] {
        let trace = night(n);
        for builtin in BUILTIN {
            let began = Instant::now();
            let mut host = Host::start(&child(), builtin.script, &limits).unwrap();
            let started = began.elapsed();
            let mut state = json!({});
            if host.hooks().contains(&Hook::Record) {
                for trial in &trace.trials {
                    state = host.record(&state, trial).unwrap();
                }
            }
            let mut line = format!("{n:>4} trials {:<12} start {:>5.1} ms", builtin.name, ms(started));
            for hook in host.hooks().clone() {
                let began = Instant::now();
                call(&mut host, hook, &state, &trace).unwrap();
                line += &format!("  {hook} {:.1}", ms(began.elapsed()));
            }
            println!("{line}");
            assert!(began.elapsed() < Duration::from_secs(3), "{line}");
        }
    }
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
