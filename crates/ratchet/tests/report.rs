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
    let toy = toy.init();
    toy.exits(0, &["report", "--out", "here"]);
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
