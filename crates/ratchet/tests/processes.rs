//! What a trial's processes may do to the driver: nothing.

use std::{fs, time::Instant};

use crate::toy::{Toy, alive};

fn quick() -> Toy {
    Toy::with(|task| task.replace("timeout_s = 20", "timeout_s = 3"))
}

#[test]
fn a_score_that_hangs_is_ended_and_a_crash() {
    let toy = quick().init();
    let begin = Instant::now();
    let line = toy.attempt("hang");
    assert_eq!(line["status"], "crash");
    assert!(begin.elapsed().as_secs() < 30, "a limit of three seconds took {:?}", begin.elapsed());
    let reason = line["reason"].as_str().unwrap();
    assert!(reason.contains("3 s") || reason.contains("time"), "{reason}");
    assert_eq!(toy.attempt("6")["status"], "keep", "the loop goes on");
}

#[test]
fn a_process_that_ignores_term_is_gone_afterwards() {
    let toy = quick().init();
    assert_eq!(toy.attempt("stubborn")["status"], "crash");
    assert!(!alive(&toy.read("stubborn.pid")));
}

#[test]
fn a_child_in_a_session_of_its_own_that_ignores_term_is_gone_afterwards() {
    let toy = Toy::new().init();
    let line = toy.attempt("orphan");
    let pid = toy.read("orphan.pid");
    assert!(!alive(&pid), "process {pid} outlived its trial");
    assert_eq!(line["status"], "keep", "the score itself was sound: {line}");
}

#[test]
fn a_flood_of_output_is_collapsed_and_capped() {
    let toy = Toy::new().init();
    let line = toy.attempt("flood");
    assert_eq!(line["value"], 9.0, "{line}");
    let log = fs::metadata(toy.path(".ratchet/tags/bar/trials/0002/run.log")).unwrap().len();
    assert!(log < 2_000_000, "{log} bytes of log for about 14 MB of output");
    let text = fs::read(toy.path(".ratchet/tags/bar/trials/0002/run.log")).unwrap();
    assert!(!text.contains(&b'\r'));
    assert!(
        text.windows(12).any(|w| w == b"{\"loss\": 9.0")
            || String::from_utf8_lossy(&text).contains("line 399999"),
        "the end is kept"
    );
}

#[test]
fn a_trial_sees_an_allowed_environment_only() {
    let toy = Toy::new().env("ANTHROPIC_API_KEY", "sk-secret").env("MY_TOKEN", "t0ken").init();
    toy.attempt("env");
    let seen = toy.read("seen.env");
    assert!(!seen.contains("sk-secret") && !seen.contains("t0ken"), "{seen}");
    for name in ["PATH=", "RATCHET_SEED="] {
        assert!(seen.lines().any(|line| line.starts_with(name)), "{name} is not in {seen}");
    }
}

#[test]
fn standard_input_is_closed() {
    let toy = Toy::new().init();
    assert_eq!(toy.attempt("stdin")["value"], 5.0);
}

#[test]
fn a_referee_edited_by_the_trial_itself_does_not_stay_edited() {
    let toy = Toy::new().init();
    toy.attempt("writes");
    assert_eq!(toy.attempt("6")["value"], 10.0);
    assert_eq!(toy.read("score.sh"), crate::toy::SCORE);
    assert!(!toy.path("stray.txt").exists());
}

#[test]
fn a_fit_that_fails_hangs_or_is_not_there_is_a_crash() {
    let fit = |command: &str| format!("[fit]\ncommand = {command}\ntimeout_s = 1\n");
    let script =
        "case \"$(cat cand/x.txt)\" in *10*) : ;; *11*) echo bad luck >&2; exit 3 ;; *) sleep 600 ;; esac";
    let toy = Toy::and(&fit(&format!("[\"sh\", \"-c\", '''{script}''']"))).init();
    let line = toy.attempt("11");
    assert_eq!(line["status"], "crash");
    assert!(toy.read(".ratchet/tags/bar/trials/0002/run.log").contains("bad luck"));
    assert_eq!(toy.attempt("12")["status"], "crash");
    let toy = Toy::and(&fit("[\"no-such-program-anywhere\"]"));
    let ran = toy.exits(1, &["run", "--trials", "1", "--tag", "bar"]);
    assert!(format!("{}{}", ran.stdout, ran.stderr).contains("no-such-program-anywhere"));
    assert_eq!(toy.column("status"), ["crash"]);
}

#[test]
fn fit_hands_over_to_score_through_the_trials_folder() {
    let toy = Toy::with(|task| {
        task.replace(
            "command = [\"sh\", \"score.sh\", \"{root}\"]",
            "command = [\"sh\", \"-c\", 'cat \"$0/model.json\"', \"{trial}\"]",
        ) + "\n[fit]\ncommand = [\"sh\", \"-c\", 'echo \"{\\\"loss\\\": $(sed -n \"s/^x = \\([^ ]*\\).*/\\1/p\" cand/x.txt)}\" > \"$0/model.json\"', \"{trial}\"]\ntimeout_s = 20\n"
    })
    .init();
    let line = toy.attempt("4");
    assert_eq!((&line["status"], &line["value"]), (&"keep".into(), &4.0.into()));
}

#[test]
fn a_build_that_fails_is_a_crash_in_try() {
    let toy = Toy::and("[build]\ncommand = [\"sh\", \"-c\", '! grep -q 11 cand/x.txt || { echo \"error: eleven\" >&2; exit 1; }']\ntimeout_s = 20\n").init();
    let line = toy.attempt("11");
    assert_eq!((&line["status"], &line["value"]), (&"crash".into(), &serde_json::Value::Null));
    assert!(toy.read(".ratchet/tags/bar/trials/0002/build.log").contains("error: eleven"));
    assert_eq!(toy.attempt("6")["status"], "keep");
}

#[test]
fn a_log_that_cannot_grow_ends_no_loop() {
    let toy = Toy::new().init();
    toy.attempt("6");
    toy.set("flood");
    // A file-size limit of 256 KiB stands in for a full disk: writes beyond it fail.
    let binary = env!("CARGO_BIN_EXE_ratchet");
    let script = format!("trap '' XFSZ; ulimit -f 512; exec '{binary}' try -m flood --json");
    let out =
        std::process::Command::new("sh").args(["-c", &script]).current_dir(toy.root()).output().unwrap();
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.code().is_some() && !stderr.contains("panicked"), "{:?} {stderr}", out.status);
    toy.set("5");
    let line = toy.exits(0, &["try", "-m", "x is 5", "--json"]).json();
    assert_eq!(line["status"], "keep", "{line}");
}
