//! The overnight loop: what it counts, when it stops, what it never touches.

use serde_json::json;

use crate::toy::Toy;

#[test]
fn trials_count_this_invocation_and_the_baseline_counts() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    assert_eq!(toy.column("trial"), ["1", "2", "3"]);
    assert_eq!(toy.rows()[0]["loss"], "50.000000");
    toy.exits(0, &["run", "--trials", "2"]);
    assert_eq!(toy.rows().len(), 5);
    assert_eq!(toy.status()["tag"], "bar");
    let kept = toy.column("status").iter().filter(|status| *status == "keep").count();
    assert_eq!(toy.lineage("bar").len(), kept - 1);
    assert!(toy.column("proposer")[1..].iter().all(|proposer| proposer == "knobs"));
}

#[test]
fn the_users_branch_index_and_files_stay_as_they_are() {
    let toy = Toy::new();
    toy.write("notes.txt", "committed\n");
    toy.write("other.txt", "committed\n");
    toy.commit("more");
    // Everything a person may have lying about: staged, edited, untracked, ignored, in the editable part too.
    toy.write("notes.txt", "staged\n");
    toy.git(&["add", "notes.txt"]);
    toy.write("notes.txt", "staged, then edited\n");
    toy.write("untracked/file.txt", "mine\n");
    toy.write("cand/untracked.txt", "mine too\n");
    toy.write("cand/x.txt", "x = 17 # knob: lin -20..20\n");
    toy.write(".git/info/exclude", "ignored.txt\n");
    toy.write("ignored.txt", "ignored\n");
    let state = || {
        let files = [
            "notes.txt",
            "other.txt",
            "untracked/file.txt",
            "cand/untracked.txt",
            "cand/x.txt",
            "ignored.txt",
            "program.md",
        ];
        let status = toy.git(&["status", "--porcelain=v1", "-uall"]);
        let status: Vec<String> =
            status.lines().filter(|l| !l.ends_with("results.tsv")).map(str::to_owned).collect();
        let staged = toy.git(&["diff", "--cached"]);
        let head = toy.git(&["rev-parse", "--symbolic-full-name", "HEAD"])
            + toy.git(&["rev-parse", "HEAD"]).as_str();
        (files.map(|file| toy.read(file)), status, staged, head, toy.git(&["stash", "list"]))
    };
    let before = state();
    toy.exits(0, &["run", "--trials", "6", "--tag", "bar"]);
    assert_eq!(state(), before);
    // The baseline is the commit, not what lies about in the tree.
    assert_eq!(toy.rows()[0]["loss"], "50.000000");
    assert!(
        toy.lineage("bar")
            .iter()
            .all(|commit| toy.git(&["show", "--format=", "--name-only", commit]) == "cand/x.txt")
    );
}

#[test]
fn best_falls_with_every_keep_and_a_restart_does_not_forget_it() {
    let toy = Toy::new();
    for _ in 0..4 {
        toy.exits(0, &["run", "--trials", "4", "--tag", "bar"]);
    }
    let rows = toy.rows();
    assert_eq!(rows.len(), 16);
    let mut best = f64::INFINITY;
    for row in &rows {
        let value: f64 = row["loss"].parse().unwrap();
        match row["status"].as_str() {
            "keep" => {
                assert!(value < best, "{value} kept over {best}");
                best = value;
            }
            "discard" => assert!(value >= best, "{value} discarded below {best}"),
            _ => {}
        }
    }
    // A restart's first result replaces the best only when it is better.
    let before = toy.status()["best"].clone();
    toy.exits(0, &["sync"]);
    toy.set("-19");
    assert_eq!(toy.exits(0, &["try", "-m", "bad", "--json"]).json()["status"], "discard");
    assert_eq!(toy.status()["best"], before);
}

#[test]
fn a_baseline_that_crashes_ends_the_run_with_exit_1_and_is_tried_again() {
    let toy = Toy::new();
    toy.set("crash");
    toy.commit("broken");
    toy.exits(1, &["run", "--trials", "3", "--tag", "bar"]);
    assert_eq!(toy.column("status"), ["crash"]);
    toy.exits(1, &["run", "--trials", "3"]);
    assert_eq!(toy.column("status"), ["crash", "crash"]);
    assert_eq!(toy.status()["best"], serde_json::Value::Null);
}

#[test]
fn stop_rules_end_a_run_with_exit_0_and_name_themselves() {
    let toy = Toy::new();
    let ran = toy.exits(0, &["run", "--target", "20", "--tag", "target"]);
    ran.says(&["target"]);
    let last = toy.rows().pop().unwrap();
    assert!(last["status"] == "keep" && last["loss"].parse::<f64>().unwrap() <= 20.0, "{last:?}");
    toy.exits(0, &["run", "--stall", "3", "--trials", "200", "--tag", "stall"]).says(&["stall"]);
    let statuses = toy.column("status");
    assert!(statuses.len() < 200 && statuses[statuses.len() - 3..].iter().all(|status| status != "keep"));
    let begin = std::time::Instant::now();
    toy.exits(0, &["run", "--hours", "0.0003", "--tag", "hours"]).says(&["hours"]); // about a second
    assert!(begin.elapsed().as_secs() < 30);
}

#[test]
fn crashes_in_a_row_end_a_run() {
    let toy = Toy::and("[stop]\nmax_crashes_in_a_row = 4\n");
    // Only the baseline's value works.
    toy.write("score.sh", "grep -q '^x = 10 ' cand/x.txt && echo '{\"loss\": 1}'\n");
    toy.commit("fragile");
    toy.exits(0, &["run", "--trials", "50", "--tag", "bar"]).says(&["crash"]);
    assert_eq!(toy.column("status"), ["keep", "crash", "crash", "crash", "crash"]);
}

#[test]
fn a_second_run_exits_5_at_once_and_status_still_answers() {
    let toy = Toy::new();
    toy.set("gate");
    toy.commit("slow");
    let first = toy.at_the_gate(&["run", "--trials", "1", "--tag", "bar"]);
    toy.exits(5, &["run", "--trials", "1"]).says(&["another"]);
    toy.exits(5, &["try", "-m", "x"]);
    let running = toy.status()["running"].clone();
    assert!(running != json!(false) && !running.is_null(), "{running}");
    toy.exits(0, &["log"]);
    toy.open_the_gate();
    let ran = first.ended("the first run");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    assert_eq!(toy.column("loss"), ["7.000000"]);
    assert_eq!(toy.status()["running"], false);
}

#[test]
fn a_signal_ends_a_run_without_a_row_for_the_open_trial() {
    let toy = Toy::new();
    toy.set("gate");
    toy.commit("slow");
    let running = toy.at_the_gate(&["run", "--trials", "5", "--tag", "bar"]);
    let referee = toy.read("started");
    // TERM, not INT: what a shell runs in its background ignores INT, and then so does the driver
    let status =
        std::process::Command::new("kill").args(["-TERM", &running.0.id().to_string()]).status().unwrap();
    assert!(status.success());
    let ran = running.ended("the interrupted run");
    assert!(ran.code.is_some(), "ended by itself: {}", ran.stderr);
    assert!(!crate::toy::alive(&referee), "the referee is gone");
    assert!(!toy.path("results.tsv").exists() || toy.rows().is_empty());
    toy.open_the_gate();
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.column("trial"), ["1"]);
}

#[test]
fn sync_brings_the_editable_files_to_the_champion_and_touches_nothing_else() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "12", "--tag", "bar"]);
    assert_eq!(toy.x(), "10");
    toy.write("untracked.txt", "mine\n");
    toy.exits(0, &["sync"]);
    assert_eq!(toy.git(&["show", "ratchet/bar:cand/x.txt"]).trim(), toy.read("cand/x.txt").trim());
    assert_ne!(toy.x(), "10");
    assert_eq!(toy.read("untracked.txt"), "mine\n");
    assert_eq!(toy.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "main");
}

#[test]
fn an_edit_made_from_an_older_champion_is_carried_over_or_refused_with_the_remedy() {
    let toy = Toy::new();
    toy.write("cand/y.txt", "one\ntwo\nthree\n");
    toy.commit("two files");
    let toy = toy.init();
    toy.attempt("10.5"); // the baseline, a discard: the tree is at the champion
    // The loop moves x behind the user's back, the user edits another file: both belong in the candidate.
    toy.exits(0, &["run", "--trials", "12"]);
    toy.write("cand/y.txt", "one\ntwo\nthree\nfour\n");
    let best = toy.git(&["show", "ratchet/bar:cand/x.txt"]);
    let ran = toy.exits(0, &["try", "-m", "y", "--json"]);
    let number = ran.json()["trial"].as_u64().unwrap();
    let tree = format!("refs/ratchet/bar/trials/{number:04}");
    assert_eq!(toy.git(&["show", &format!("{tree}:cand/x.txt")]), best);
    assert!(toy.git(&["show", &format!("{tree}:cand/y.txt")]).contains("four"));
    // Both moved the same line: exit 3 and the remedy, the user's file untouched.
    let toy = Toy::new().init();
    toy.attempt("10.5");
    toy.exits(0, &["run", "--trials", "12"]);
    toy.set("-15");
    toy.exits(3, &["try", "-m", "conflict", "--json"]).says(&["ratchet sync"]);
    assert_eq!(toy.x(), "-15");
}
