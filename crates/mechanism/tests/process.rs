//! The child's process: how it is confined, how it ends, and children that are not ours.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use mechanism::{Child, FaultKind, Hook, Host, Limits};
use serde_json::json;

use crate::{ask, child, shell};

/// A child that is spoken to by hand.
fn by_hand() -> std::process::Child {
    Command::new(child().program)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

fn start_line(script: &str, limits: &Limits) -> String {
    json!({ "start": { "script": script, "limits": limits } }).to_string() + "\n"
}

#[cfg(target_os = "linux")]
#[test]
fn the_process_has_neither_files_nor_calls_nor_much_memory() {
    let mut process = by_hand();
    let stdin = process.stdin.as_mut().unwrap();
    stdin.write_all(start_line("fn guide(trace) { }", &Limits::default()).as_bytes()).unwrap();
    let mut reply = String::new();
    BufReader::new(process.stdout.as_mut().unwrap()).read_line(&mut reply).unwrap();
    assert_eq!(reply.trim(), r#"{"hooks":["guide"]}"#);
    let of = |name: &str| fs::read_to_string(format!("/proc/{}/{name}", process.id())).unwrap();
    let limits = of("limits");
    let limit = |name: &str| {
        let line = limits.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().next().unwrap().parse::<u64>()
    };
    assert!(limit("Max address space").unwrap() < 2 << 30, "{limits}");
    assert_eq!((limit("Max file size"), limit("Max core file size")), (Ok(0), Ok(0)), "{limits}");
    assert!(limit("Max cpu time").unwrap() < 10, "{limits}");
    if !matches!(sandbox::available(), sandbox::Available::Nothing(_)) {
        for thread in fs::read_dir(format!("/proc/{}/task", process.id())).unwrap().flatten() {
            let status = fs::read_to_string(thread.path().join("status")).unwrap();
            assert!(status.contains("Seccomp:\t2"), "{status}");
            assert!(status.contains("NoNewPrivs:\t1"), "{status}");
        }
    }
    process.kill().unwrap();
    process.wait().unwrap();
}

#[test]
fn a_child_ends_when_its_parent_is_gone() {
    let mut idle = by_hand();
    drop(idle.stdin.take());
    assert!(idle.wait().unwrap().success(), "idle: at once, at the end of its input");

    // busy: by its processor time
    let limits = Limits { operations: u64::MAX, wall: Duration::from_millis(1), ..Limits::default() };
    let mut busy = by_hand();
    let began = Instant::now();
    let mut stdin = busy.stdin.take().unwrap();
    stdin.write_all(start_line("const X = { loop { } }; fn guide(trace) { }", &limits).as_bytes()).unwrap();
    drop(stdin);
    assert_eq!(busy.wait().unwrap().signal(), Some(rustix::process::Signal::XCPU.as_raw()));
    assert!(began.elapsed() < Duration::from_secs(30), "{:?}", began.elapsed());
}

#[test]
fn a_child_that_is_killed_or_ends_in_the_middle_is_a_fault() {
    let ready = r#"read l; echo '{"hooks":["guide"]}'; read l;"#;
    for end in ["kill -9 $$", "kill -11 $$", "exit 3", "exec 1>&-; sleep 60"] {
        let began = Instant::now();
        let mut host = Host::start(&shell(&format!("{ready} {end}")), "", &Limits::default()).unwrap();
        let fault = ask(&mut host, Hook::Guide, &json!({})).unwrap_err();
        assert_eq!((fault.kind, fault.hook), (FaultKind::Died, Some(Hook::Guide)), "{fault}");
        assert_eq!(ask(&mut host, Hook::Guide, &json!({})).unwrap_err().kind, FaultKind::Died);
        assert!(began.elapsed() < Duration::from_secs(2), "{end}: {:?}", began.elapsed());
    }
}

#[test]
fn a_line_that_is_no_answer_is_a_fault() {
    let ready = r#"read l; echo '{"hooks":["guide"]}'; read l;"#;
    for junk in [
        "echo",
        "echo hello",
        "echo '{\"value\":'",
        "echo '{\"hooks\":[\"guide\"]}'",
        "echo '{\"value\":1}{\"value\":2}'",
        "echo '{\"value\":1e999}'",
        "printf '\\377\\376\\n'",
        "head -c 100000000 /dev/zero",
        "yes",
    ] {
        let mut host =
            Host::start(&shell(&format!("{ready} {junk}; sleep 60")), "", &Limits::default()).unwrap();
        let fault = ask(&mut host, Hook::Guide, &json!({})).unwrap_err();
        assert!(matches!(fault.kind, FaultKind::Died | FaultKind::Time), "{fault}: {junk}");
        assert_eq!(ask(&mut host, Hook::Guide, &json!({})).unwrap_err().kind, FaultKind::Died, "{junk}");
    }
}

#[test]
fn a_child_that_says_nothing_or_does_not_read_is_killed_at_the_wall() {
    let limits = Limits { wall: Duration::from_millis(300), script_bytes: 1 << 20, ..Limits::default() };
    for silent in ["sleep 60", "exec sleep 60", "kill -STOP $$"] {
        let began = Instant::now();
        // more than a pipe holds, so that writing waits as well
        let fault = Host::start(&shell(silent), &"x".repeat(1 << 20), &limits).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Time, "{fault}");
        assert!(began.elapsed() < Duration::from_secs(2), "{silent}: {:?}", began.elapsed());
    }
}

#[test]
fn a_program_that_is_not_there_is_a_fault() {
    let none = Child { program: "/nonexistent/program".into(), arguments: Vec::new() };
    let fault = Host::start(&none, "fn guide(trace) { }", &Limits::default()).unwrap_err();
    assert_eq!(fault.kind, FaultKind::Died);
    assert!(fault.message.contains("/nonexistent/program"), "{fault}");
}

#[test]
fn the_environment_does_not_reach_the_child() {
    let tell = r#"read l; echo '{"hooks":["guide"]}'; read l; echo "{\"value\":\"$(env | grep -c CARGO)\"}""#;
    let mut host = Host::start(&shell(tell), "", &Limits::default()).unwrap();
    assert!(std::env::var_os("CARGO").is_some() || std::env::var_os("CARGO_MANIFEST_DIR").is_some());
    assert_eq!(ask(&mut host, Hook::Guide, &json!({})), Ok(json!("0")));
}
