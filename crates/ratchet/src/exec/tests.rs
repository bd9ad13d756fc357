//! Real processes; the oracle is the kernel.

use super::*;

/// Runs a shell script; gives its end, its log, and what it wrote to stdout.
fn shell(script: &str, limit: Duration, stdin: Option<Vec<u8>>) -> (Ended, String, Vec<u8>) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("run.log");
    let mut log = RunLog::create(&path);
    let mut stdout = Vec::new();
    let command = ["sh", "-c", script].map(str::to_owned);
    let spec = Spec { stdin, ..Spec::new(&command, dir.path().into(), allowed_env(), limit) };
    let ended = run(
        spec,
        &mut log,
        &mut |stream, bytes| {
            if stream == Stream::Out {
                stdout.extend_from_slice(bytes);
            }
        },
        &StopFlag::default(),
    );
    assert_eq!(log.close(), None);
    (ended, std::fs::read_to_string(path).unwrap(), stdout)
}

const LONG: Duration = Duration::from_secs(30);

#[test]
fn both_streams_are_logged_and_stdout_is_handed_on() {
    let (ended, log, stdout) = shell("echo a; echo b >&2; exit 3", LONG, None);
    assert_eq!(ended.end, End::Exited(3));
    assert!(log.contains("a\n") && log.contains("b\n"));
    assert_eq!(stdout, b"a\n");
}

#[test]
fn stdin_larger_than_a_pipe_arrives_while_output_flows() {
    let input = vec![b'x'; 1 << 20];
    let (ended, _, stdout) = shell("cat", LONG, Some(input.clone()));
    assert_eq!(ended.end, End::Exited(0));
    assert!(stdout == input);
}

#[test]
fn closed_stdin_is_empty_not_open() {
    let (ended, log, _) = shell("cat; echo end", LONG, None);
    assert_eq!((ended.end, log.as_str()), (End::Exited(0), "end\n"));
}

#[test]
fn a_command_that_does_not_exist_is_named() {
    let dir = std::env::temp_dir();
    let command = ["no-such-program-here".to_owned()];
    let spec = Spec::new(&command, dir, allowed_env(), LONG);
    let mut log = RunLog::create(std::path::Path::new("/dev/null"));
    let ended = run(spec, &mut log, &mut |_, _| {}, &StopFlag::default());
    assert!(matches!(ended.end, End::NotStarted(_)), "{:?}", ended.end);
}

#[test]
fn a_program_that_does_not_say_what_it_is_is_not_waited_for() {
    let begun = Instant::now();
    let said = |script| output_within(Duration::from_millis(200), "sh", &["-c", script]);
    assert_eq!(said("echo 13.0; exec sleep 600"), None);
    assert_eq!(said("trap '' TERM; echo 13.0; while :; do sleep 0.05; done"), None);
    assert!(begun.elapsed() < LONG, "{:?}", begun.elapsed());
    let said = |script| output_within(LONG, "sh", &["-c", script]);
    assert_eq!(said("echo 13.0; echo more; echo no >&2").as_deref(), Some("13.0\nmore\n"));
    assert_eq!(said("echo 13.0; exit 1"), None);
}

#[test]
fn secrets_do_not_reach_a_command() {
    let (_, log, _) = shell("env", LONG, None);
    let foreign = |line: &&str| {
        let name = line.split('=').next().unwrap();
        !ALLOWED.contains(&name)
            && !name.starts_with("LC_")
            && !["PWD", "SHLVL", "_", "OLDPWD"].contains(&name)
    };
    assert_eq!(log.lines().find(foreign), None);
}

/// The oracle is the kernel: the processes' pids, which they printed, are gone from /proc.
#[cfg(target_os = "linux")]
fn assert_gone(stdout: &[u8], count: usize) {
    let pids: Vec<&str> = std::str::from_utf8(stdout).unwrap().split_whitespace().collect();
    assert_eq!(pids.len(), count, "{pids:?}");
    for pid in pids {
        assert!(!std::path::Path::new("/proc").join(pid).exists(), "{pid} lives on");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_hanging_child_that_ignores_term_is_killed_with_its_children() {
    let script = "trap '' TERM; (trap '' TERM; sh -c 'echo $$; exec sleep 600') & echo $$; while :; do sleep 600; done";
    let (ended, _, stdout) = shell(script, Duration::from_millis(300), None);
    assert_eq!(ended.end, End::TimedOut);
    assert_gone(&stdout, 2);
    assert!(ended.wall < Duration::from_secs(10), "{:?}", ended.wall);
}

#[cfg(target_os = "linux")]
#[test]
fn a_daemon_in_a_new_session_does_not_escape() {
    // setsid twice over a dead parent: no group, no session, no parent in common with the command
    let script = "(setsid sh -c 'trap \"\" TERM; setsid sh -c \"echo \\$\\$; exec sleep 600\" & echo $$; sleep 600' &) ; \
                  sleep 0.3; exit 0";
    let (ended, _, stdout) = shell(script, LONG, None);
    assert_eq!(ended.end, End::Exited(0));
    assert!(ended.strays >= 2, "{}", ended.strays);
    assert_gone(&stdout, 2);
}

#[test]
fn a_stop_request_ends_a_running_command() {
    let stop = StopFlag::default();
    let command = ["sh", "-c", "echo up; sleep 600"].map(str::to_owned);
    let spec = Spec::new(&command, std::env::temp_dir(), allowed_env(), LONG);
    let mut log = RunLog::create(std::path::Path::new("/dev/null"));
    let shared = stop.shared();
    let ended = run(spec, &mut log, &mut |_, _| shared.store(true, Ordering::Relaxed), &stop);
    assert_eq!(ended.end, End::Stopped);
}
