//! Scripts that would not end, or take all there is.

use std::fmt::Write;

use mechanism::{FaultKind, Hook, Host, Limits};
use serde_json::json;

use crate::{ask, child, fault, hook, host};

#[test]
fn a_loop_without_end_runs_out_of_operations_in_every_hook() {
    for name in Hook::ALL {
        let fault = fault(&hook(name, "loop { }"), name);
        assert_eq!((fault.kind, fault.hook), (FaultKind::Operations, Some(name)), "{fault}");
    }
}

#[test]
fn a_loop_outside_of_every_function_is_stopped_as_well() {
    let fault = fault("const X = { let n = 0; loop { n += 1; } }; fn guide(trace) { }", Hook::Guide);
    assert_eq!((fault.kind, fault.hook), (FaultKind::Operations, None), "{fault}");
}

#[test]
fn a_limit_cannot_be_caught() {
    let fault = fault(&hook(Hook::Guide, "loop { try { loop { } } catch { } }"), Hook::Guide);
    assert_eq!(fault.kind, FaultKind::Operations, "{fault}");
}

#[test]
fn recursion_is_stopped_by_its_depth() {
    for script in [
        "fn f(n) { f(n + 1) } fn guide(trace) { f(0) }",
        "fn f(n) { g(n) } fn g(n) { f(n) } fn guide(trace) { f(0) }",
        "fn guide(trace) { guide(trace) }",
        "fn guide(trace) { let f = |g| g.call(g); f.call(f) }",
    ] {
        let fault = fault(script, Hook::Guide);
        assert_eq!(fault.kind, FaultKind::Depth, "{fault}\n{script}");
    }
}

#[test]
fn nested_expressions_are_refused_before_they_run() {
    for (open, close) in [("(", ")"), ("[", "]"), ("#{a:", "}"), ("-", ""), ("{", "}"), ("if true {", "}")] {
        let script = format!("fn guide(trace) {{ let x = {}1{}; }}", open.repeat(2000), close.repeat(2000));
        let fault = fault(&script, Hook::Guide);
        assert!(matches!(fault.kind, FaultKind::Depth | FaultKind::Syntax), "{open} {fault}");
    }
}

#[test]
fn one_value_that_grows_without_end_is_too_large() {
    for body in [
        "let t = \"x\"; loop { t += t; }",
        "let a = [1]; loop { a += a; }",
        "let a = []; loop { a = [a, a]; }",
        "let a = []; loop { a.push(\"some text\"); }",
        "let m = #{ a: 1 }; loop { m = #{ a: m, b: m, c: m, d: m }; }",
        "let b = blob(10); loop { b.append(b); }",
        "let a = []; a.pad(1_000_000_000, 0);",
        "let t = \"\"; t.pad(1_000_000_000, \"x\");",
        "blob(1_000_000_000)",
    ] {
        let fault = fault(&hook(Hook::Guide, body), Hook::Guide);
        assert_eq!(fault.kind, FaultKind::Size, "{fault}\n{body}");
        let outside = format!("const X = {{ {body} }}; fn guide(trace) {{ }}");
        assert_eq!(self::fault(&outside, Hook::Guide).kind, FaultKind::Size, "{outside}");
    }
}

#[test]
fn values_inside_values_without_end_are_stopped() {
    for body in [
        "let a = []; loop { a = [a]; }",
        "let m = #{}; loop { m = #{ m: m }; }",
        "let f = || 1; loop { let g = f; f = || g; }",
    ] {
        let fault = fault(&hook(Hook::Guide, body), Hook::Guide);
        assert!(fault.kind != FaultKind::Illegal && fault.kind != FaultKind::Type, "{fault}");
        println!("{fault}");
    }
}

#[test]
fn many_values_each_within_limits_run_out_of_memory_together() {
    let mut body = String::new();
    for n in 0..200 {
        write!(body, "let a{n} = []; a{n}.pad(50_000, 0.5);").unwrap();
    }
    let fault = fault(&hook(Hook::Guide, &body), Hook::Guide);
    assert_eq!(fault.kind, FaultKind::Memory, "{fault}");
}

#[test]
fn a_library_call_that_blows_up_runs_out_of_memory() {
    let body = "let t = \"\"; t.pad(60_000, \"a\"); t.replace(\"a\", t);";
    let fault = fault(&hook(Hook::Guide, body), Hook::Guide);
    assert_eq!(fault.kind, FaultKind::Memory, "{fault}");
}

#[test]
fn library_calls_that_take_long_are_killed_at_the_wall() {
    let body = "let a = []; a.pad(50_000, 0.5); loop { a.sort(); a.reverse(); }";
    let fault = fault(&hook(Hook::Guide, body), Hook::Guide);
    assert_eq!(fault.kind, FaultKind::Time, "{fault}");
}

#[test]
fn a_script_cannot_sleep_past_its_time() {
    for body in ["sleep(3600)", "sleep(3600.5)", "Fn(\"sleep\").call(3600)", "call(Fn(\"sleep\"), 3600)"] {
        let script = hook(Hook::Guide, body);
        let fault = fault(&script, Hook::Guide);
        assert!(matches!(fault.kind, FaultKind::Syntax | FaultKind::Thrown), "{fault}\n{script}");
    }
}

#[test]
fn a_killed_host_answers_every_later_call_at_once() {
    let mut host = host(&hook(Hook::Guide, "let a = []; a.pad(50_000, 0.5); loop { a.sort(); }"));
    assert_eq!(ask(&mut host, Hook::Guide, &json!({})).unwrap_err().kind, FaultKind::Time);
    let began = std::time::Instant::now();
    assert_eq!(ask(&mut host, Hook::Guide, &json!({})).unwrap_err().kind, FaultKind::Died);
    assert!(began.elapsed().as_millis() < 100);
}

#[test]
fn a_host_goes_on_after_a_script_that_threw() {
    let mut host = host(&hook(Hook::Guide, "if this.bad ?? false { loop { } } \"fine\""));
    for _ in 0..3 {
        let kind = ask(&mut host, Hook::Guide, &json!({ "bad": true })).unwrap_err().kind;
        assert_eq!(kind, FaultKind::Operations);
        assert_eq!(ask(&mut host, Hook::Guide, &json!({})), Ok(json!("fine")));
    }
}

#[test]
fn a_script_that_is_too_long_is_not_read() {
    let script = format!("fn guide(trace) {{ }} // {}", "x".repeat(40_000));
    let fault = Host::start(&child(), &script, &Limits::default()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Size, "{fault}");
}
