//! Scripts that are not fit for use, and what their writer is told.

use std::time::{Duration, Instant};

use mechanism::{FaultKind, Limits, Rejection, validate};

use crate::{child, search, shell};

fn rejection(script: &str) -> Rejection {
    validate(&child(), script, &Limits::default(), &[search()]).expect_err(script)
}

const CASE: &str = "fn cases() { [#{ name: \"quiet\", hook: \"guide\", given: [#{}], acts: false }] }\n";

#[test]
fn a_sound_script_passes_and_its_calls_are_counted() {
    let script = format!("fn guide(trace) {{ if trace.plateau > 99 {{ \"stuck\" }} }}\n{CASE}");
    let valid = validate(&child(), &script, &Limits::default(), &[search()]).unwrap();
    assert_eq!((valid.cases, valid.hooks.len(), valid.calls.len()), (1, 1, 1));
    assert!(valid.calls.values().all(|calls| *calls > 3), "{valid:?}");
}

#[test]
fn what_does_not_parse_or_has_no_hook_is_told_where() {
    let wrong = rejection("fn guide(trace) {\n  let x = ;\n}");
    assert_eq!(wrong.kind, Some(FaultKind::Syntax));
    assert!(wrong.message.contains("line 2"), "{wrong}");
    assert_eq!(rejection("fn helper(x) { x }").kind, Some(FaultKind::NoHook));
}

#[test]
fn a_script_without_cases_or_with_one_that_fails_is_refused() {
    let no = |script: &str, says: &str| {
        let wrong = rejection(script);
        assert!(wrong.message.contains(says), "{wrong}\nnot: {says}");
        assert!(!wrong.message.contains('\n'));
    };
    let guide = "fn guide(trace) { if trace.plateau > 3 { \"stuck\" } }\n";
    no(guide, "no unit case");
    no(&format!("{guide} fn cases() {{ [] }}"), "no unit case");
    no(&format!("{guide} fn cases() {{ 3 }}"), "array of maps");
    no(&format!("{guide} fn cases() {{ throw \"x\" }}"), "cases:");
    let with = |case: &str| format!("{guide} fn cases() {{ [#{{ name: \"one\", {case} }}] }}");
    no(&with("hook: \"guide\", given: [#{ plateau: 4 }], acts: false"), "case `one`: answers \"stuck\"");
    no(&with("hook: \"guide\", given: [#{ plateau: 2 }], acts: true"), "case `one`: does nothing");
    no(&with("hook: \"guide\", given: [#{ plateau: 4 }], returns: \"x\""), "not \"x\"");
    no(&with("hook: \"guide\", given: [#{ plateau: 4 }], returns: ()"), "not null");
    no(&with("hook: \"guide\", given: [#{ plateua: 4 }], acts: true"), "`plateua`");
    no(&with("hook: \"guide\", given: [#{ trials: [#{ stat: 1 }] }], acts: true"), "`trials.0.stat`");
    no(&with("hook: \"guide\", given: [#{ plateau: \"4\" }], acts: true"), "the trace");
    no(&with("hook: \"guide\", given: [], acts: true"), "`given` has 0 values");
    no(&with("hook: \"guide\", given: [#{}]"), "`returns` or `acts`");
    no(&with("hook: \"guide\", given: [#{}], acts: true, returns: 1"), "`returns` or `acts`");
    no(&with("hook: \"guess\", given: [#{}], acts: true"), "guess");
    no(&with("hook: \"veto\", given: [#{}, #{}], acts: true"), "the script has no veto");
    no(&with("hook: \"guide\", given: [#{}], actz: true"), "actz");
}

#[test]
fn a_script_that_fails_only_on_some_trials_is_found_in_the_replay() {
    let wrong =
        rejection(&format!("fn guide(trace) {{ if trace.trials.len() == 2 {{ throw \"two\" }} }}\n{CASE}"));
    assert_eq!(wrong.kind, Some(FaultKind::Thrown));
    assert!(wrong.message.contains("after 2 of"), "{wrong}");
    // gains of crashes are ()
    let script = "fn record(trial) { this.sum = (this.sum ?? 0.0) + trial.gain; }
        fn cases() { [#{ name: \"sums\", hook: \"record\", given: [#{ gain: 1.0 }], returns: #{ sum: 1.0 } }] }";
    assert_eq!(rejection(script).kind, Some(FaultKind::Thrown));
}

#[test]
fn an_order_that_depends_on_the_order_of_the_candidates_is_refused() {
    let cases = "fn cases() { [#{ name: \"none\", hook: \"rank\", given: [[], #{}], acts: false }] }";
    let wrong = rejection(&format!(
        "fn rank(candidates, trace) {{ let o = []; for i in 0..candidates.len() {{ o.push(i); }} o }} {cases}"
    ));
    assert_eq!(wrong.kind, Some(FaultKind::Nondeterministic));
    assert!(wrong.message.contains("reverse order"), "{wrong}");
    let by_text = "fn rank(candidates, trace) {
        let order = []; for i in 0..candidates.len() { order.push(i); }
        let texts = candidates.map(|c| c.description);
        order.sort(|a, b| if texts[a] < texts[b] { -1 } else if texts[a] > texts[b] { 1 } else { 0 });
        order }";
    validate(&child(), &format!("{by_text} {cases}"), &Limits::default(), &[search()]).unwrap();
}

#[test]
fn two_answers_to_one_question_are_refused() {
    // the language itself has no way to do this, so a shell stands in: it answers its own process number
    let twoface = r#"read l; echo '{"hooks":["guide"]}'; read l
        case "$l" in *cases*) echo '{"value":[{"name":"a","hook":"guide","given":[{}],"acts":true}]}'; read l;; esac
        while echo "{\"value\":\"$$\"}"; read l; do :; done"#;
    let wrong = validate(&shell(twoface), "", &Limits::default(), &[]).unwrap_err();
    assert_eq!(wrong.kind, Some(FaultKind::Nondeterministic), "{wrong}");
}

#[test]
fn many_cases_that_are_each_within_their_time_are_not_waited_for() {
    let slow = "fn guide(trace) { let a = []; a.pad(50_000, 0.5); for n in 0..30 { a.sort(); } \"fine\" }
        fn cases() { let all = []; for n in 0..5_000 { all.push(#{ name: \"slow\", hook: \"guide\", given: [#{}], acts: true }); } all }";
    let limits = Limits { wall: Duration::from_millis(250), ..Limits::default() };
    let began = Instant::now();
    let wrong = validate(&child(), slow, &limits, &[]).unwrap_err();
    assert_eq!(wrong.kind, Some(FaultKind::Time), "{wrong}");
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[test]
fn a_script_that_is_slow_in_every_call_is_refused_for_its_limit() {
    let wrong =
        rejection(&format!("fn guide(trace) {{ if trace.trials.len() > 0 {{ loop {{ }} }} }}\n{CASE}"));
    assert_eq!(wrong.kind, Some(FaultKind::Operations));
}
