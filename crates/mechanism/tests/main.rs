//! Scripts in real child processes.

mod answers;
mod builtin;
mod confined;
mod cost;
mod fuzz;
mod limits;
mod page;
mod process;
mod validation;

use std::time::{Duration, Instant};

use mechanism::{Change, Child, Fault, Hook, Host, Knob, Limits, Move, Trace, Trial};
use serde_json::{Value, json};

/// The child alone, as this crate builds it.
fn child() -> Child {
    Child { program: env!("CARGO_BIN_EXE_mechanism").into(), arguments: Vec::new() }
}

/// A shell script in the place of a child.
fn shell(script: &str) -> Child {
    Child { program: "/bin/sh".into(), arguments: vec!["-c".into(), script.into()] }
}

fn host(script: &str) -> Host {
    Host::start(&child(), script, &Limits::default()).unwrap_or_else(|fault| panic!("{fault}\n{script}"))
}

/// A script with one hook, whatever its arguments are called: `a` and, where there is one, `trace`.
fn hook(hook: Hook, body: &str) -> String {
    let arguments = if hook.arity() == 1 { "a" } else { "a, trace" };
    format!("fn {hook}({arguments}) {{ {body} }}")
}

/// A small search: one knob of each kind, one of them frozen, two trials.
fn search() -> Trace {
    let knob = |name: &str, kind: &str, value: Value, low: f64, high: f64| Knob {
        name: name.into(),
        kind: kind.into(),
        value,
        at: 0.5,
        low: Some(low),
        high: Some(high),
        ..Knob::default()
    };
    let knobs = vec![
        knob("LR", "log", json!(0.02), 0.002, 0.2),
        knob("DECAY", "lin", json!(0.5), 0.0, 1.0),
        knob("DEPTH", "int", json!(6), 2.0, 10.0),
        knob("BATCH", "pow2", json!(64), 16.0, 256.0),
        Knob { frozen: true, ..knob("WARMUP", "lin", json!(0.5), 0.0, 1.0) },
        Knob {
            name: "MODE".into(),
            kind: "choice".into(),
            value: json!("a"),
            choices: vec!["a".into(), "b".into()],
            ..Knob::default()
        },
    ];
    let trial = |trial: u64, status: &str, by: f64| Trial {
        trial,
        status: status.into(),
        outcome: "worse".into(),
        gain: Some(by / 100.0),
        seconds: 300.0,
        change: change(by),
        ..Trial::default()
    };
    Trace {
        trials: vec![trial(1, "keep", 0.1), trial(2, "discard", -0.1)],
        champion: 1,
        sigma: Some(0.0009),
        plateau: 1,
        knobs,
        seed: u64::MAX,
    }
}

fn change(by: f64) -> Change {
    let moves = vec![Move { name: "LR".into(), from: json!(0.02), to: json!(0.02 + by), by }];
    Change { description: format!("LR by {by}"), class: "constant".into(), moves, ..Change::default() }
}

/// Calls a hook with the small search; its answer as JSON.
fn ask(host: &mut Host, hook: Hook, state: &Value) -> Result<Value, Fault> {
    let trace = search();
    match hook {
        Hook::Guide => host.guide(state, &trace).map(|answer| json!(answer)),
        Hook::Veto => host.veto(state, &change(0.2), &trace).map(|answer| json!(answer)),
        Hook::Rank => host.rank(state, &[change(0.2), change(0.3)], &trace).map(|answer| json!(answer)),
        Hook::Suggest => host.suggest(state, &trace.knobs, &trace).map(|answer| json!(answer)),
        Hook::Parent => host.parent(state, &[1, 2], &trace).map(|answer| json!(answer)),
        Hook::Record => host.record(state, &trace.trials[1]),
    }
}

/// The fault of one call, which comes in time; the next host is none the worse for it.
fn fault(script: &str, hook: Hook) -> Fault {
    let began = Instant::now();
    let fault = Host::start(&child(), script, &Limits::default())
        .and_then(|mut host| ask(&mut host, hook, &json!({})))
        .expect_err(script);
    assert!(
        began.elapsed() < Limits::default().wall + Duration::from_secs(2),
        "{:?}: {script}",
        began.elapsed()
    );
    assert!(
        !fault.message.contains(|c: char| c.is_control()) && fault.message.chars().count() < 500,
        "{fault}"
    );
    assert_eq!(
        ask(&mut self::host("fn guide(trace) { \"fine\" }"), Hook::Guide, &json!({})),
        Ok(json!("fine"))
    );
    fault
}
