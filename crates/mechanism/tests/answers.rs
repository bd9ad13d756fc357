//! Answers of the wrong type, and answers that are not allowed.

use mechanism::{FaultKind, Hook, Place, Target};
use serde_json::{Value, json};

use crate::{ask, child, fault, hook, host, search};

fn kind(name: Hook, body: &str) -> FaultKind {
    let fault = fault(&hook(name, body), name);
    assert_eq!(fault.hook, Some(name), "{fault}");
    fault.kind
}

fn answer(name: Hook, body: &str) -> Value {
    ask(&mut host(&hook(name, body)), name, &json!({})).unwrap_or_else(|fault| panic!("{fault}\n{body}"))
}

#[test]
fn nothing_is_an_answer_to_every_hook() {
    for (name, nothing) in [
        (Hook::Guide, Value::Null),
        (Hook::Veto, Value::Null),
        (Hook::Rank, json!([0, 1])),
        (Hook::Suggest, Value::Null),
        (Hook::Parent, Value::Null),
        (Hook::Record, json!({})),
    ] {
        assert_eq!(answer(name, ""), nothing, "{name}");
    }
}

#[test]
fn what_is_thrown_is_a_fault_of_its_hook() {
    for name in Hook::ALL {
        assert_eq!(kind(name, "throw \"no\""), FaultKind::Thrown);
        assert_eq!(kind(name, "let x = [1, 2]; x[7]"), FaultKind::Thrown);
        assert_eq!(kind(name, "there_is_none(a)"), FaultKind::Thrown);
    }
}

#[test]
fn other_types_than_the_hook_answers_are_refused() {
    let wrong = ["true", "1.5", "|x| x", "Fn(\"guide\")", "0..3", "blob(3)", "[[]]", "#{ x: 1 }"];
    for body in wrong {
        for name in Hook::ALL.into_iter().filter(|name| *name != Hook::Record) {
            // a wrong shape inside a map or an array may be called illegal, never allowed
            assert!(matches!(kind(name, body), FaultKind::Type | FaultKind::Illegal), "{name}: {body}");
        }
    }
    for body in ["this = 5", "this = []", "this = \"x\"", "this = ()", "this.f = |x| x", "this.x = 1.0 / 0.0"]
    {
        assert_eq!(kind(Hook::Record, body), FaultKind::Type, "{body}");
    }
}

#[test]
fn numbers_that_are_not_finite_are_refused_wherever_they_stand() {
    for body in ["0.0 / 0.0", "1.0 / 0.0", "#{ name: \"LR\", at: 0.0 / 0.0, why: \"x\" }"] {
        assert_eq!(kind(Hook::Suggest, body), FaultKind::Type, "{body}");
    }
    assert_eq!(kind(Hook::Rank, "[0.0 / 0.0, 0]"), FaultKind::Type);
    assert_eq!(kind(Hook::Parent, "0.0 / 0.0"), FaultKind::Type);
    assert_eq!(kind(Hook::Record, "this.deep = [#{ x: -1.0 / 0.0 }]"), FaultKind::Type);
}

#[test]
fn a_suggestion_moves_known_knobs_inside_their_ranges_to_other_values() {
    for (body, expected) in [
        ("#{ name: \"../../etc/passwd\", at: 0.3, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"WARMUP\", at: 0.3, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", at: 1.2, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", at: -0.1, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", at: 0.5, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", to: 0.02, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", to: 0.3, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", to: \"0.01\", why: \"x\" }", FaultKind::Type),
        ("#{ name: \"DEPTH\", to: 6.5, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"DEPTH\", at: 0.51, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"BATCH\", to: 100, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"MODE\", to: \"c\", why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"MODE\", to: \"a\", why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"MODE\", at: 1.0, why: \"x\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", at: 0.3, to: 0.01, why: \"x\" }", FaultKind::Type),
        ("#{ name: \"LR\", why: \"x\" }", FaultKind::Type),
        ("#{ name: \"LR\", at: 0.3 }", FaultKind::Type),
        ("#{ name: \"LR\", at: 0.3, why: \"\" }", FaultKind::Illegal),
        ("#{ name: \"LR\", at: 0.3, why: \"x\", path: \"src/main.rs\" }", FaultKind::Type),
        ("#{ moves: [], why: \"x\" }", FaultKind::Illegal),
        (
            "#{ moves: [#{ name: \"LR\", at: 0.3 }, #{ name: \"LR\", at: 0.4 }], why: \"x\" }",
            FaultKind::Illegal,
        ),
        (
            "#{ moves: a.filter(|k| !k.frozen && k.high != ()).map(|k| #{ name: k.name, at: 0.0 }), why: \"x\" }",
            FaultKind::Illegal,
        ),
    ] {
        assert_eq!(kind(Hook::Suggest, body), expected, "{body}");
    }
}

#[test]
fn legal_suggestions_come_through() {
    let trace = search();
    for (body, to) in [
        ("#{ name: \"LR\", at: 0.3, why: \"x\" }", vec![("LR", Place::At(0.3))]),
        ("#{ name: \"LR\", to: 0.01, why: \"x\" }", vec![("LR", Place::Number(0.01))]),
        ("#{ name: \"DEPTH\", to: 7, why: \"x\" }", vec![("DEPTH", Place::Number(7.0))]),
        ("#{ name: \"MODE\", to: \"b\", why: \"x\" }", vec![("MODE", Place::Choice("b".into()))]),
        ("#{ name: \"BATCH\", at: step(a[3], -0.01), why: \"x\" }", vec![("BATCH", Place::At(0.25))]),
        (
            "#{ moves: [#{ name: \"LR\", at: 0 }, #{ name: \"BATCH\", to: 128 }], why: \"x\" }",
            vec![("LR", Place::At(0.0)), ("BATCH", Place::Number(128.0))],
        ),
    ] {
        let suggestion = host(&hook(Hook::Suggest, body)).suggest(&json!({}), &trace.knobs, &trace);
        let suggestion = suggestion.unwrap_or_else(|fault| panic!("{fault}: {body}")).unwrap();
        let to: Vec<Target> = to.into_iter().map(|(name, to)| Target { name: name.into(), to }).collect();
        assert_eq!(suggestion.moves, to, "{body}");
    }
}

#[test]
fn an_order_is_a_permutation_and_a_parent_is_one_of_those_allowed() {
    assert_eq!(answer(Hook::Rank, "[1, 0]"), json!([1, 0]));
    for body in ["[0]", "[0, 0]", "[0, 2]", "[0, 1, 2]", "[]"] {
        assert_eq!(kind(Hook::Rank, body), FaultKind::Illegal, "{body}");
    }
    assert_eq!(kind(Hook::Rank, "[-1, 0]"), FaultKind::Type);
    assert_eq!(answer(Hook::Parent, "a[1]"), json!(2));
    assert_eq!(kind(Hook::Parent, "3"), FaultKind::Illegal);
    assert_eq!(kind(Hook::Parent, "-1"), FaultKind::Type);
}

#[test]
fn texts_are_short_and_have_no_characters_that_steer() {
    assert_eq!(kind(Hook::Guide, "let t = \"\"; t.pad(2001, \"x\"); t"), FaultKind::Size);
    assert_eq!(kind(Hook::Guide, "let t = \"\"; t.pad(60_000, \"x\"); t"), FaultKind::Size);
    for text in ["\\x1b[2J", "a\\u202eb", "a\\u2028b", "a\\u200bb", "\\x07", "a\\rb", "\\ufeff"] {
        assert_eq!(kind(Hook::Guide, &format!("\"{text}\"")), FaultKind::Illegal, "{text}");
        assert_eq!(kind(Hook::Veto, &format!("\"{text}\"")), FaultKind::Illegal, "{text}");
    }
    assert_eq!(kind(Hook::Veto, "\"two\\nlines\""), FaultKind::Illegal);
    assert_eq!(answer(Hook::Guide, "\"two\\nlines\""), json!("two\nlines"));
    assert_eq!(answer(Hook::Veto, "\"Größe 大きさ 🦀\""), json!("Größe 大きさ 🦀"));
    let thrown = fault(&hook(Hook::Veto, "throw \"\\x1b[31m\\u202e\\n\" + \"🦀\".len()"), Hook::Veto);
    assert_eq!(thrown.kind, FaultKind::Thrown, "what is thrown is shown without them: `fault` checks it");
}

#[test]
fn a_script_changes_neither_what_it_is_given_nor_its_state_except_in_record() {
    let body = "let n = a.trials.len(); a.trials = []; a.knobs.clear(); this.n = (this.n ?? 0) + 1; `${n} ${this.n}`";
    let mut host =
        host(&(hook(Hook::Guide, body) + "fn record(t) { t.change = 1; this.n = (this.n ?? 0) + 1; }"));
    for _ in 0..3 {
        assert_eq!(ask(&mut host, Hook::Guide, &json!({})), Ok(json!("2 1")));
    }
    let state = ask(&mut host, Hook::Record, &json!({ "n": 6, "kept": [1.5, "x", null, true] })).unwrap();
    assert_eq!(state, json!({ "n": 7, "kept": [1.5, "x", null, true] }));
    assert_eq!(ask(&mut host, Hook::Guide, &state), Ok(json!("2 8")));
}

#[test]
fn a_state_is_a_map_of_bounded_size_and_depth() {
    assert_eq!(kind(Hook::Record, "this.a = []; this.a.pad(40_000, 12345)"), FaultKind::Size);
    assert_eq!(
        kind(Hook::Record, "for n in 0..40 { let inner = this; this = #{ inner: inner }; }"),
        FaultKind::Depth
    );
    // a state that comes back corrupted is refused before the script sees it
    let mut deep = json!({});
    for _ in 0..200 {
        deep = json!({ "inner": deep });
    }
    for (state, expected) in [
        (json!(null), FaultKind::Type),
        (json!("text"), FaultKind::Type),
        (json!([1]), FaultKind::Type),
        (json!({ "x": "y".repeat(70_000) }), FaultKind::Size),
        (deep, FaultKind::Depth),
    ] {
        let mut host = host(&(hook(Hook::Guide, "\"fine\"") + "fn record(t) { }"));
        for name in [Hook::Guide, Hook::Record] {
            assert_eq!(ask(&mut host, name, &state).unwrap_err().kind, expected);
        }
        assert_eq!(ask(&mut host, Hook::Guide, &json!({})), Ok(json!("fine")), "the host goes on");
    }
}

#[test]
fn whole_numbers_and_others_keep_their_kind() {
    let state = json!({ "whole": 3, "float": 3.0, "small": 1e-300, "large": i64::MAX });
    let kept = ask(
        &mut host("fn record(t) { this.kinds = type_of(this.whole) + type_of(this.float); }"),
        Hook::Record,
        &state,
    );
    let mut expected = state.clone();
    expected["kinds"] = json!("i64f64");
    assert_eq!(kept.unwrap(), expected, "to JSON 3 and 3.0 are two values");
}

#[test]
fn a_hook_that_the_script_lacks_is_said_and_not_called() {
    let mut host = host("fn guide(trace) { }");
    assert_eq!(ask(&mut host, Hook::Veto, &json!({})).unwrap_err().kind, FaultKind::NoHook);
    assert_eq!(host.hooks().len(), 1);
    for (script, expected) in [
        ("", FaultKind::NoHook),
        ("// nothing", FaultKind::NoHook),
        ("fn guidance(trace) { }", FaultKind::NoHook),
        ("fn guide(trace", FaultKind::Syntax),
        ("def guide(trace): return 1", FaultKind::Syntax),
        ("fn guide() { }", FaultKind::Syntax),
        ("fn veto(change) { }", FaultKind::Syntax),
        ("let x = 3; fn guide(trace) { x }", FaultKind::Syntax),
        ("Here is the script: ```rhai\nfn guide(trace) { }\n```", FaultKind::Syntax),
        ("\u{0}\u{1b}", FaultKind::Syntax),
    ] {
        let fault = mechanism::Host::start(&child(), script, &mechanism::Limits::default()).unwrap_err();
        assert_eq!(fault.kind, expected, "{fault}: {script}");
    }
}

#[test]
fn functions_without_a_name_see_constants_and_a_local_name_hides_one() {
    let script =
        "const MOST = 2; fn guide(trace) { let MOST = 1; g() + `${[1, 2, 3].filter(|n| n > MOST).len()}` }
                  fn g() { `${[1, 2, 3].filter(|n| n >= MOST).len()} ${h(9)} ` } fn h(MOST) { MOST }";
    assert_eq!(ask(&mut host(script), Hook::Guide, &json!({})), Ok(json!("2 9 2")));
}
