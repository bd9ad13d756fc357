//! What a person reads: log, show, doctor, rerun, noise.

use crate::toy::Toy;

fn some() -> Toy {
    let toy = Toy::new().init();
    for x in ["6", "9", "crash"] {
        toy.attempt(x);
    }
    toy
}

#[test]
fn log_lists_every_trial_and_show_tells_one_whole() {
    let toy = some();
    let log = toy.exits(0, &["log"]).stdout;
    for word in ["x is 6", "x is 9", "x is crash", "keep", "discard", "crash"] {
        assert!(log.contains(word), "{word} is not in {log}");
    }
    let show = toy.exits(0, &["show", "2"]).stdout;
    for word in ["x is 6", "keep", "10", "strict", "x = 6"] {
        assert!(show.contains(word), "{word} is not in {show}");
    }
    let crash = toy.exits(0, &["show", "4"]).stdout;
    assert!(crash.contains("crash") && crash.contains("boom: no such tensor"), "{crash}");
    toy.exits(2, &["show", "99"]).says(&["99"]);
}

#[test]
fn views_work_before_the_first_trial() {
    let toy = Toy::new();
    toy.exits(0, &["status"]);
    toy.exits(0, &["log"]);
    let toy = toy.init();
    toy.exits(0, &["status"]);
    toy.exits(0, &["log"]);
    toy.exits(2, &["show", "1"]);
}

#[test]
fn a_rerun_repeats_a_trial_and_is_no_row() {
    let toy = some();
    let ran = toy.exits(0, &["rerun", "2"]);
    assert!(ran.stdout.contains("10"), "{}", ran.stdout);
    assert_eq!(toy.rows().len(), 4);
    assert_eq!(toy.x(), "6");
    assert_eq!(toy.status()["trials"], 4);
    toy.exits(2, &["rerun", "99"]);
}

#[test]
fn doctor_checks_without_changing_anything() {
    let toy = Toy::new();
    let before = toy.git(&["status", "--porcelain"]);
    let ran = toy.ratchet(&["doctor", "--json"]);
    assert!(matches!(ran.code, Some(0 | 4)), "{:?} {}", ran.code, ran.stderr);
    assert!(ran.json().is_object() || ran.json().is_array());
    assert_eq!(toy.git(&["status", "--porcelain"]), before);
    toy.ratchet(&["doctor"]);
}

#[test]
fn doctor_is_not_ready_for_a_loop_that_cannot_run() {
    let toy = Toy::new();
    toy.exits(0, &["doctor"]).says(&["marked: 1"]);
    toy.write("cand/x.txt", "x = 10\n");
    toy.commit("no knob");
    toy.exits(4, &["doctor"]).says(&["no editable file marks one"]);
    let toy = Toy::with(|task| task.replace("\"sh\", \"score.sh\"", "\"no-such-program\""));
    toy.exits(4, &["doctor"]).says(&["[score] runs no-such-program"]);
}

#[test]
fn progress_goes_to_stderr_and_json_alone_to_stdout() {
    let toy = Toy::new();
    toy.set("6");
    let ran = toy.exits(0, &["try", "-m", "x", "--json"]);
    assert_eq!(ran.stdout.lines().count(), 1);
    assert!(!ran.stderr.is_empty(), "a person follows on stderr");
    assert!(!ran.stderr.contains('\u{1b}'), "no colours or cursor moves into a pipe");
}

#[test]
fn show_tells_throughput_from_learning() {
    let toy = Toy::and("[fit]\ncommand = [\"sh\", \"fit.sh\", \"{trial}\"]\n");
    // Twice the tokens at the loss of x: the baseline, x = 10, sees 100 steps, x = 6 the same tokens in each of 200.
    toy.write(
        "fit.sh",
        "x=$(sed -n 's/^x = \\([^ ]*\\).*/\\1/p' cand/x.txt)\n\
         awk -v x=\"$x\" 'BEGIN { print \"step,seconds,progress,tokens,loss\"; n = 1000 / x\n\
         for (i = 1; i <= n; i++) printf \"%d,0,0,%d,%.6f\\n\", i, i * 10, 5 - i / 1000 }' > \"$1/steps.csv\"\n",
    );
    toy.commit("a fit");
    let toy = toy.init();
    toy.attempt("5");
    toy.exits(0, &["show", "2"])
        .says(&["from throughput (2.00 x the tokens)", "+0.0000 from learning per token"]);
    toy.exits(0, &["show", "1"]);
}
