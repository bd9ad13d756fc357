//! `ratchet report`, and the report that a run keeps up to date. What is drawn is tested in the crate `report`.

use std::fs;

use serde_json::Value;

use crate::toy::Toy;

const FILES: [&str; 4] = ["report.html", "progress.svg", "progress.png", "results.json"];

fn results(toy: &Toy, folder: &str) -> Value {
    serde_json::from_str(&toy.read(&format!("{folder}/results.json"))).unwrap()
}

#[test]
fn a_run_leaves_a_report_that_says_what_the_journal_says() {
    let toy = Toy::new();
    let ran = toy.exits(0, &["run", "--trials", "4", "--tag", "n"]);
    let folder = ".ratchet/tags/n/report";
    assert!(ran.stdout.contains(&format!("{folder}/report.html")), "{}", ran.stdout);
    let night = results(&toy, folder);
    let status = toy.status();
    for key in ["trials", "keeps", "discards", "crashes"] {
        assert_eq!(night["headline"][key], status[key], "{key}");
    }
    assert_eq!(night["headline"]["best"], status["best"]["value"]);
    assert_eq!(night["running"], false);
    assert_eq!(night["trials"].as_array().unwrap().len(), toy.rows().len());
    for (trial, row) in night["trials"].as_array().unwrap().iter().zip(toy.rows()) {
        assert_eq!(trial["status"], row["status"]);
        assert_eq!(trial["description"], row["description"]);
    }
    let again = toy.exits(0, &["report"]).stdout;
    assert!(again.contains("report.html"), "{again}");
    let left: Vec<_> = fs::read_dir(toy.path(folder)).unwrap().flatten().map(|e| e.file_name()).collect();
    assert_eq!(left.len(), FILES.len(), "{left:?}");
}

#[test]
fn a_report_of_nothing_of_crashes_and_of_a_baseline_alone_renders() {
    let toy = Toy::new();
    toy.exits(2, &["report"]).says(&["no tag", "ratchet run"]);
    toy.exits(0, &["report", "--out", "here"]);
    toy.exits(2, &["report", "--tag", "other"]).says(&["no tag other"]);
    toy.exits(2, &["report", "--out", "score.sh"]).says(&["score.sh"]);
    assert!(toy.read("score.sh").starts_with("x=$("), "a user's file stays what it is");
    toy.write("mine/results.json", "{}");
    toy.exits(2, &["report", "--out", "mine"]).says(&["results.json", "no report's"]);
    assert_eq!(toy.read("mine/results.json"), "{}");
    let toy = toy.init();
    toy.exits(0, &["report", "--out", "here"]); // there is one of ours
    assert_eq!(results(&toy, "here")["headline"]["trials"], 0);
    let crashing = Toy::new();
    crashing.set("crash");
    crashing.commit("does not run");
    crashing.exits(1, &["run", "--trials", "2", "--tag", "c"]);
    let night = results(&crashing, ".ratchet/tags/c/report");
    assert_eq!(night["headline"]["crashes"], 1);
    assert_eq!(night["headline"]["best"], Value::Null);
    assert_eq!(night["trials"][0]["value"], Value::Null, "a crash has no value, least of all 0");
}

#[test]
fn hostile_words_and_secrets_do_not_reach_the_page() {
    const SECRET: &str = "sk-not-for-anyone-0123456789";
    let toy = Toy::new().init().env("TOY_API_KEY", SECRET);
    let words = format!("<script>alert(1)</script> <img src=x onerror=alert(2)> \u{202e}evil {SECRET}");
    toy.set("6");
    toy.exits(0, &["try", "-m", &words]);
    toy.exits(0, &["report"]);
    let folder = format!(".ratchet/tags/{}/report", toy.status()["tag"].as_str().unwrap());
    let page = toy.read(&format!("{folder}/report.html"));
    assert!(!page.contains("<script>alert") && !page.contains("<img src=x"), "markup is text");
    for file in ["report.html", "progress.svg", "results.json"] {
        assert!(!toy.read(&format!("{folder}/{file}")).contains(SECRET), "{file} holds a secret");
    }
}

#[test]
fn gates_count_what_they_refused_and_briefs_what_came_of_them() {
    let toy = Toy::new().init();
    toy.attempt("6");
    toy.set("10");
    toy.exits(3, &["try", "-m", "the baseline once more"]);
    toy.exits(0, &["sync"]);
    toy.attempt("crash");
    toy.exits(0, &["report", "--out", "here"]);
    let night = results(&toy, "here");
    let gate = |name: &str| {
        let gates = night["gates"].as_array().unwrap();
        gates.iter().find(|gate| gate["name"] == name).cloned().unwrap_or_else(|| panic!("{gates:?}"))
    };
    assert_eq!((&gate("admission")["asked"], &gate("admission")["refused"]), (&3.into(), &1.into()));
    assert!(gate("admission")["latest"].as_str().unwrap().contains("trial 1"));
    assert_eq!(gate("score")["refused"], 1);
    assert_eq!(gate("verdict")["refused"], 0);
    let read: Vec<_> = night["to_read"].as_array().unwrap().iter().map(|r| r["trial"].clone()).collect();
    assert_eq!(read, [2, 3]);
}

#[test]
fn pipes_in_the_place_of_records_hold_nobody_up() {
    let toy = Toy::new().init();
    toy.attempt("6");
    let trial = toy.path(&format!(".ratchet/tags/{}/trials/0002", toy.status()["tag"].as_str().unwrap()));
    for place in
        ["steps.csv", "diff.patch", "run.log", "rows.f32", "verdict.json"].map(|name| trial.join(name))
    {
        let _ = fs::remove_file(&place);
        assert!(std::process::Command::new("mkfifo").arg(&place).status().unwrap().success());
    }
    assert!(
        std::process::Command::new("mkfifo").arg(toy.path(".ratchet/noise.json")).status().unwrap().success()
    );
    for args in [&["report"][..], &["show", "2"], &["status"], &["review", "2"], &["run", "--trials", "1"]] {
        toy.exits(0, args);
    }
}

#[test]
fn an_audit_stands_in_the_report_and_only_there() {
    // the journal is a file: an audit of a toy, which holds no rows back, is written by hand
    let toy = Toy::new().init();
    toy.attempt("6");
    let journal = format!(".ratchet/tags/{}/journal.jsonl", toy.status()["tag"].as_str().unwrap());
    let mut text = toy.read(&journal);
    for (trial, value) in [(1, 60.0), (2, 25.0)] {
        text += &format!(
            "{{\"v\":1,\"event\":\"audited\",\"trial\":{trial},\"value\":{value},\"seconds\":1.0}}\n"
        );
    }
    toy.write(&journal, &text);
    toy.exits(0, &["report", "--out", "here"]);
    assert_eq!(results(&toy, "here")["headline"]["audited_gain"], 35.0);
    assert!(!toy.exits(0, &["brief"]).stdout.contains("35"));
}

/// A tag with so many trials, made of one that ran: each a keep, a discard or a crash with a patch of twenty lines, a
/// loss curve as long as one of `full`, and a log.
fn multiplied(trials: u64) -> Toy {
    let toy = Toy::new().init();
    for x in ["6", "9", "crash"] {
        toy.attempt(x);
    }
    let tag = format!(".ratchet/tags/{}", toy.status()["tag"].as_str().unwrap());
    let journal = toy.read(&format!("{tag}/journal.jsonl"));
    let lines: Vec<Value> = journal.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let closed: Vec<&Value> = lines.iter().filter(|line| line["event"] == "closed").collect();
    let patch: String = (0..20).map(|i| format!("+    let width_{i} = {i}; // wider\n")).collect();
    let curve: String =
        (1..=953).map(|i| format!("{i},{i},0.5,{},{:.6}\n", i * 524_288, 4.0 + 5.0 / f64::from(i))).collect();
    let mut text = journal.clone();
    for trial in 5..=trials {
        let mut event = closed[1 + (trial % 3) as usize].clone();
        event["trial"] = trial.into();
        event["value"] = (10.0 - trial as f64 * 1e-3).into();
        event["proposal"]["description"] = format!("idea {trial} <b>&amp; more").into();
        event["proposal"]["expected_delta"] = (-1e-3).into();
        text += &(event.to_string() + "\n");
        let folder = format!("{tag}/trials/{trial:04}");
        let head = "--- a/cand/x.txt\n+++ b/cand/x.txt\n@@ -1,0 +1,20 @@\n";
        toy.write(&format!("{folder}/diff.patch"), &format!("{head}{patch}"));
        toy.write(&format!("{folder}/steps.csv"), &format!("step,seconds,progress,tokens,loss\n{curve}"));
        toy.write(&format!("{folder}/run.log"), "boom\n");
    }
    toy.write(&format!("{tag}/journal.jsonl"), &text);
    toy
}

/// `cargo test --release -p ratchet --test main two_thousand -- --nocapture` prints what it takes.
#[test]
fn two_thousand_trials_are_all_in_the_report() {
    const TRIALS: u64 = 2000;
    let toy = multiplied(TRIALS);
    let began = std::time::Instant::now();
    toy.exits(0, &["report", "--out", "here"]);
    println!("{TRIALS} trials: {:.2} s", began.elapsed().as_secs_f64());
    let night = results(&toy, "here");
    assert_eq!(night["trials"].as_array().unwrap().len() as u64, TRIALS);
    let (page, picture) = (toy.read("here/report.html"), toy.read("here/progress.svg"));
    for trial in [1, 2, 999, TRIALS] {
        assert!(page.contains(&format!("idea {trial} &lt;b&gt;")) || trial < 5, "trial {trial} is missing");
    }
    println!("{} kB of page, {} kB of picture", page.len() >> 10, picture.len() >> 10);
}
