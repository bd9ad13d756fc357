//! Keep, discard, crash: what each leaves in the files, the ledger, the branch and the JSON.

use serde_json::{Value, json};

use crate::toy::{Toy, keys};

#[test]
fn each_verdict_leaves_files_rows_and_commits_as_the_contract_says() {
    let toy = Toy::new().init();
    let steps = [
        ("6", "keep", "6"),
        ("9", "discard", "6"),
        ("crash", "crash", "6"),
        ("4", "keep", "4"),
        ("nan", "crash", "4"),
    ];
    for (x, status, champion) in steps {
        let line = toy.attempt(x);
        assert_eq!(line["status"], status, "{x}: {line}");
        assert_eq!(toy.x(), champion, "the champion's file after {x}");
    }
    let statuses = toy.column("status");
    assert_eq!(statuses, ["keep", "keep", "discard", "crash", "keep", "crash"], "the baseline first");
    assert_eq!(toy.column("trial"), ["1", "2", "3", "4", "5", "6"]);
    let head: Vec<String> =
        toy.read("results.tsv").lines().next().unwrap().split('\t').map(str::to_owned).collect();
    assert_eq!(
        head,
        [
            "commit",
            "loss",
            "memory_gb",
            "status",
            "description",
            "trial",
            "delta",
            "seconds",
            "tokens_M",
            "mfu",
            "lines",
            "proposer",
            "parent",
            "outcome"
        ]
    );
    let crash = &toy.rows()[3];
    assert_eq!((crash["loss"].as_str(), crash["memory_gb"].as_str()), ("0.000000", "0.0"));
    assert_eq!(toy.rows()[1]["loss"], "10.000000");
    assert_eq!(toy.rows()[1]["description"], "x is 6");
    assert!(toy.rows()[1]["memory_gb"].parse::<f64>().is_ok());
}

#[test]
fn try_prints_one_line_with_exactly_these_keys() {
    let toy = Toy::new().init();
    let wanted = [
        "best_value",
        "commit",
        "delta",
        "memory_gb",
        "metric",
        "outcome",
        "reason",
        "seconds",
        "status",
        "trial",
        "value",
    ];
    let keep = toy.attempt("6");
    assert_eq!(keys(&keep), wanted);
    assert_eq!(
        (&keep["trial"], &keep["value"], &keep["best_value"]),
        (&json!(2), &json!(10.0), &json!(10.0))
    );
    assert_eq!((&keep["metric"], &keep["delta"]), (&json!("loss"), &json!(-40.0)));
    let commit = keep["commit"].as_str().unwrap();
    assert!(commit.len() >= 7 && toy.git(&["rev-parse", "ratchet/bar"]).starts_with(commit));
    assert!(
        keep["seconds"].as_f64().unwrap() > 0.0 && keep["reason"].as_str().is_some_and(|r| !r.is_empty())
    );
    let discard = toy.attempt("9");
    assert_eq!(keys(&discard), wanted);
    assert_eq!(
        (&discard["value"], &discard["best_value"], &discard["delta"]),
        (&json!(37.0), &json!(10.0), &json!(27.0))
    );
    let crash = toy.attempt("crash");
    assert_eq!(keys(&crash), wanted);
    assert_eq!(
        (&crash["value"], &crash["delta"], &crash["best_value"]),
        (&Value::Null, &Value::Null, &json!(10.0))
    );
}

#[test]
fn status_has_exactly_these_keys_and_null_for_what_is_not_there() {
    let toy = Toy::new();
    let wanted = [
        "baseline",
        "best",
        "categories",
        "classes",
        "crashes",
        "discards",
        "drift",
        "duty_cycle",
        "hints",
        "keeps",
        "metric",
        "noise_sigma",
        "paused",
        "profile",
        "running",
        "search",
        "spent",
        "tag",
        "task",
        "trials",
        "unreviewed",
        "vetoed_s",
        "vetoes",
        "wasted",
    ];
    let before = toy.status();
    assert_eq!(keys(&before), wanted);
    assert_eq!(
        (&before["task"], &before["metric"], &before["tag"]),
        (&json!("toy"), &json!("loss"), &Value::Null)
    );
    assert_eq!(
        (&before["best"], &before["baseline"], &before["profile"]),
        (&Value::Null, &Value::Null, &Value::Null)
    );
    let toy = toy.init();
    for x in ["6", "9", "crash"] {
        toy.attempt(x);
    }
    let after = toy.status();
    assert_eq!(keys(&after), wanted);
    let counts = ["trials", "keeps", "discards", "crashes"].map(|key| after[key].as_u64().unwrap());
    assert_eq!(counts, [4, 2, 1, 1]);
    assert_eq!(keys(&after["best"]), ["commit", "trial", "value"]);
    assert_eq!((&after["best"]["trial"], &after["best"]["value"]), (&json!(2), &json!(10.0)));
    assert_eq!((&after["baseline"]["trial"], &after["baseline"]["value"]), (&json!(1), &json!(50.0)));
    assert_eq!((&after["tag"], &after["running"]), (&json!("bar"), &json!(false)));
}

#[test]
fn what_is_no_number_is_a_crash_with_a_null_value() {
    let toy = Toy::new().init();
    for x in
        ["nan", "inf", "huge", "null", "text", "missing", "list", "prose", "empty", "twice", "crash", "fails"]
    {
        let line = toy.attempt(x);
        assert_eq!((&line["status"], &line["value"]), (&json!("crash"), &Value::Null), "{x}: {line}");
        assert!(line["reason"].as_str().unwrap().len() > 5, "{x}: {line}");
        assert_eq!(line["best_value"], 50.0, "{x}");
        assert_eq!(toy.x(), "10", "{x}");
    }
    let rows = toy.rows();
    assert!(rows[1..].iter().all(|row| row["loss"] == "0.000000" && row["memory_gb"] == "0.0"));
    // The sentinel 0.000000 is lower than any loss here, and yet no champion.
    assert_eq!(toy.attempt("9")["status"], "keep");
}

#[test]
fn a_crash_names_what_went_wrong() {
    let toy = Toy::new().init();
    let reason = |x: &str| toy.attempt(x)["reason"].as_str().unwrap().to_lowercase();
    assert!(reason("missing").contains("loss"));
    assert!(reason("nan").contains("nan"));
    let boom = reason("crash");
    assert!(boom.contains('7') || boom.contains("boom"), "{boom}");
}

#[test]
fn a_higher_value_wins_where_the_goal_says_so() {
    let toy = Toy::with(|task| task.replace("minimize", "maximize")).init();
    assert_eq!(toy.attempt("6")["status"], "discard");
    let line = toy.attempt("12");
    assert_eq!((&line["status"], &line["delta"]), (&json!("keep"), &json!(32.0)));
    assert_eq!(toy.attempt("crash")["status"], "crash");
    assert_eq!(toy.status()["best"]["value"], 82.0);
}

#[test]
fn the_branch_is_exactly_the_kept_trials_with_trailers() {
    let toy = Toy::new().init();
    for x in ["6", "9", "crash", "4", "5", "3"] {
        toy.attempt(x);
    }
    let lineage = toy.lineage("bar");
    let kept: Vec<_> = toy.rows().into_iter().filter(|row| row["status"] == "keep").skip(1).collect();
    assert_eq!(lineage.len(), kept.len(), "the baseline is the user's own commit");
    for (commit, row) in lineage.iter().zip(&kept) {
        assert!(commit.starts_with(&row["commit"]), "{commit} {row:?}");
        let trailers = toy.git(&["log", "-1", "--format=%(trailers:only,unfold)", commit]);
        for line in [format!("Trial: {}", row["trial"]), "Delta: -".to_owned(), "Proposer: ".to_owned()] {
            assert!(trailers.contains(&line), "{line} is not in {trailers}");
        }
        let value: f64 = row["loss"].parse().unwrap();
        assert!(
            trailers.lines().any(|line| {
                line.to_lowercase().starts_with("loss: ")
                    && (line[6..].parse::<f64>().unwrap() - value).abs() < 1e-6
            }),
            "the metric's trailer is not in {trailers}"
        );
        assert_eq!(toy.git(&["show", "--format=", "--name-only", commit]), "cand/x.txt");
    }
    // Nothing that was tried is lost: each trial's tree stays under a ref of its own.
    let refs = toy.git(&["for-each-ref", "--format=%(refname)", "refs/ratchet/bar/trials"]);
    assert_eq!(refs.lines().count(), toy.rows().len(), "{refs}");
    assert!(toy.git(&["show", "refs/ratchet/bar/trials/0003:cand/x.txt"]).starts_with("x = 9 "));
    // The user stands where the user stood.
    assert_eq!(toy.git(&["rev-parse", "--abbrev-ref", "HEAD"]), "main");
    assert_eq!(toy.git(&["rev-list", "--count", "main"]), "1");
}

#[test]
fn the_first_try_scores_the_baseline_by_itself() {
    let toy = Toy::new();
    let line = toy.attempt("6");
    assert_eq!((&line["trial"], &line["status"]), (&json!(2), &json!("keep")));
    assert_eq!(toy.column("loss"), ["50.000000", "10.000000"]);
    assert_eq!(toy.column("status"), ["keep", "keep"]);
}

#[test]
fn a_description_cannot_break_the_table() {
    let toy = Toy::new().init();
    toy.set("6");
    toy.exits(0, &["try", "-m", "tab\there\nand \"a line\"\r\nmore", "--json"]);
    let rows = toy.rows();
    assert_eq!(rows.len(), 2);
    assert!(rows[1]["description"].contains("tab") && rows[1]["description"].contains("more"));
    assert_eq!(toy.lineage("bar").len(), 1);
}

#[test]
fn a_candidate_is_every_editable_file_new_ones_and_odd_names_included() {
    let toy = Toy::new();
    toy.write(".gitignore", ".ratchet/\ncand/*.o\n");
    toy.write("cand/old.txt", "old\n");
    toy.write("cand/a b \"ü\".txt", "odd\n");
    toy.commit("more files");
    let toy = toy.init();
    toy.write("cand/sub/new.txt", "new\n");
    toy.write("cand/built.o", "ignored\n");
    toy.write("cand/a b \"ü\".txt", "odder\n");
    std::fs::remove_file(toy.path("cand/old.txt")).unwrap();
    assert_eq!(toy.attempt("6")["status"], "keep");
    let files =
        toy.git(&["-c", "core.quotepath=off", "ls-tree", "-r", "-z", "--name-only", "ratchet/bar", "cand"]);
    assert_eq!(
        files.trim_end_matches('\0').split('\0').collect::<Vec<_>>(),
        ["cand/a b \"ü\".txt", "cand/sub/new.txt", "cand/x.txt"]
    );
    assert_eq!(toy.read("cand/sub/new.txt"), "new\n");
    assert!(!toy.path("cand/old.txt").exists());
    assert_eq!(toy.read("cand/built.o"), "ignored\n");
    // A discard takes the candidate's files back, and keeps them in the trial's ref.
    toy.write("cand/sub/worse.txt", "worse\n");
    toy.write("cand/a b \"ü\".txt", "oddest\n");
    assert_eq!(toy.attempt("12")["status"], "discard");
    assert_eq!(toy.read("cand/a b \"ü\".txt"), "odder\n");
    assert_eq!(toy.git(&["show", "refs/ratchet/bar/trials/0003:cand/sub/worse.txt"]), "worse");
    assert_eq!(toy.read("cand/built.o"), "ignored\n");
}
