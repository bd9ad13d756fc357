//! `ratchet ablate` from outside: equal starts, equal luck, no state between repeats, and going on after an end.

use std::{fs, path::Path};

use serde_json::Value;

use crate::toy::{Running, Toy};

fn json(path: &Path) -> Value {
    let text = fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_json::from_str(&text).unwrap()
}

/// What a repeat measured, trial by trial.
fn values(report: &Value, group: &str, repeat: u64) -> Value {
    let outcomes = report["outcomes"].as_array().unwrap();
    let of = |outcome: &&Value| outcome["group"] == group && outcome["repeat"] == repeat;
    outcomes.iter().find(of).unwrap()["values"].clone()
}

#[test]
fn what_cannot_be_compared_exits_2_with_a_remedy() {
    let toy = Toy::no_repository();
    toy.exits(2, &["ablate", "--groups", "A,Q"]).says(&["no group \"Q\"; there are A (level 1)"]);
    toy.exits(2, &["ablate", "--repeats", "0"]).says(&["compares nothing; at least 6"]);
    toy.exits(2, &["ablate", "--trials", "1"]).says(&["at least 2; the first one is the baseline"]);
    toy.exits(2, &["ablate", "--groups", "A,A"]).says(&["names A twice"]);
    toy.exits(2, &["ablate", "--task", "gpt"]).says(&["no task here"]);
    toy.write("full/mine.txt", "");
    toy.exits(2, &["ablate", "--out", "full"]).says(&["not empty", "name another --out"]);
}

#[test]
fn repeats_are_paired_leave_nothing_behind_and_go_on_after_an_end() {
    let toy = Toy::no_repository();
    let plan = ["ablate", "--groups", "A,T", "--repeats", "2", "--trials", "3", "--json", "--out"];
    let with = |out| [&plan[..], &[out, "--jobs", "2"]].concat();
    let whole = toy.exits(0, &with("whole")).json();
    let starts: Vec<&Value> = whole["outcomes"].as_array().unwrap().iter().map(|o| &o["start"]).collect();
    assert_eq!((starts.len(), starts[0], starts[2]), (4, starts[1], starts[3]));
    assert_ne!(starts[0], starts[2], "another landscape");
    // the baseline is the same and so is its luck; the next repeat has other luck
    assert_eq!(values(&whole, "A", 1)[0], values(&whole, "T", 1)[0]);
    assert_ne!(values(&whole, "A", 1)[0], values(&whole, "A", 2)[0]);
    for outcome in whole["outcomes"].as_array().unwrap() {
        let used = |point: &Value| {
            point["used"]["trials_s"].as_f64().unwrap() + point["used"]["proposing_s"].as_f64().unwrap()
        };
        assert!(outcome["points"].as_array().unwrap().iter().all(|point| used(point) <= 900.0));
    }
    assert!(!toy.path("whole/repeats/A-001/task").exists());
    assert!(toy.read("whole/ablation.svg").contains("level 1"));
    assert_eq!(json(&toy.path("whole/ablation.json")), whole);

    let running = Running(toy.command(&with("torn")).spawn().unwrap());
    let first = toy.path("torn/repeats/A-001/points.jsonl");
    let done = toy.path("torn/repeats/A-001/outcome.json");
    while !first.exists() && !done.exists() {
        std::thread::yield_now();
    }
    let id = rustix::process::Pid::from_raw(i32::try_from(running.0.id()).unwrap()).unwrap();
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert_eq!(running.ended("ablate").code, Some(1));
    let torn = toy.exits(0, &with("torn")).json();
    for (group, repeat) in [("A", 1), ("T", 1), ("A", 2), ("T", 2)] {
        assert_eq!(values(&torn, group, repeat), values(&whole, group, repeat), "{group} {repeat}");
    }
    let other: Vec<&str> =
        with("torn").into_iter().map(|word| if word == "3" { "4" } else { word }).collect();
    toy.exits(2, &other).says(&["holds another ablation: --groups A,T --repeats 2 --trials 3"]);
}

#[test]
fn the_task_of_the_folder_is_compared_by_the_clock_and_left_alone() {
    let toy = Toy::new();
    let before = toy.git(&["rev-parse", "HEAD"]);
    let report = toy
        .exits(
            0,
            &["ablate", "--task", "gpt", "--groups", "A,R", "--repeats", "1", "--trials", "20", "--json"],
        )
        .json();
    assert_eq!(report["plan"]["base"], before);
    assert!(report["budget_s"].as_f64().unwrap() > 0.0);
    for outcome in report["outcomes"].as_array().unwrap() {
        assert_eq!(outcome["values"][0], 50.0);
        assert!(outcome["points"].as_array().unwrap().len() > 1, "{outcome}");
        assert_eq!(outcome["truths"], Value::Null);
    }
    assert!(report["conclusion"][0].as_str().unwrap().contains("too small for any claim"));
    assert_eq!(toy.git(&["branch", "--format=%(refname:short)"]), "main");
    assert_eq!((toy.git(&["status", "--short"]), toy.x()), (String::new(), "10".to_owned()));
    assert!(toy.path(".ratchet/ablations/001/ablation.json").exists());
}
