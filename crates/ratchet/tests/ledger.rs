//! `results.tsv` is a projection of the journal: lost, edited or unwritable, nothing is lost with it.

use std::fs;

use crate::toy::Toy;

fn some() -> Toy {
    let toy = Toy::new().init();
    for x in ["6", "9", "crash"] {
        toy.attempt(x);
    }
    toy
}

#[test]
fn a_lost_ledger_is_rebuilt() {
    let toy = some();
    let before = toy.read("results.tsv");
    fs::remove_file(toy.path("results.tsv")).unwrap();
    toy.attempt("5");
    assert!(toy.read("results.tsv").starts_with(&before));
    fs::remove_file(toy.path("results.tsv")).unwrap();
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.rows().len(), 6);
    assert!(toy.read("results.tsv").starts_with(&before));
}

#[test]
fn an_edited_ledger_changes_no_verdict_and_is_rebuilt() {
    let toy = some();
    let before = toy.read("results.tsv");
    toy.write("results.tsv", &before.replace("50.000000", "0.000001").replace("discard", "keep"));
    let line = toy.attempt("5");
    assert_eq!((&line["status"], &line["best_value"]), (&"keep".into(), &5.0.into()));
    assert!(toy.read("results.tsv").starts_with(&before));
}

#[test]
fn a_shipped_header_only_ledger_is_filled() {
    let toy = Toy::new();
    toy.write("results.tsv", "commit\tloss\tmemory_gb\tstatus\tdescription\n");
    toy.commit("a ledger with a header");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert_eq!(toy.rows().len(), 2);
}

#[test]
fn the_ledger_holds_the_current_tag_and_log_shows_any() {
    let toy = some();
    toy.exits(0, &["init", "--tag", "other"]);
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.rows().len(), 1);
    let log = toy.exits(0, &["log", "--tag", "bar"]).stdout;
    for description in ["x is 6", "x is 9", "x is crash"] {
        assert!(log.contains(description), "{log}");
    }
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    assert_eq!(toy.rows().len(), 5, "the tag resumed");
}

#[test]
fn a_ledger_that_cannot_be_written_is_said_and_loses_nothing() {
    let toy = Toy::new().init();
    toy.attempt("6");
    fs::remove_file(toy.path("results.tsv")).unwrap();
    fs::create_dir(toy.path("results.tsv")).unwrap();
    toy.set("5");
    let ran = toy.ratchet(&["try", "-m", "x is 5", "--json"]);
    assert_ne!(ran.code, Some(0));
    ran.says(&["results.tsv"]);
    fs::remove_dir(toy.path("results.tsv")).unwrap();
    toy.set("4");
    toy.exits(0, &["try", "-m", "x is 4", "--json"]);
    let losses = toy.column("loss");
    assert!(
        losses == ["50.000000", "10.000000", "2.000000"]
            || losses == ["50.000000", "10.000000", "5.000000", "2.000000"],
        "{losses:?}"
    );
}

#[test]
fn a_state_directory_that_cannot_be_made_is_said() {
    let toy = Toy::new();
    toy.write(".ratchet", "a file in its place");
    let ran = toy.ratchet(&["run", "--trials", "1", "--tag", "bar"]);
    assert!(matches!(ran.code, Some(1 | 2 | 4)), "{:?}", ran.code);
    ran.says(&[".ratchet"]);
    assert_eq!(toy.read(".ratchet"), "a file in its place");
}

#[test]
fn a_torn_last_line_of_the_journal_is_no_trial() {
    let toy = some();
    let path = toy.path(".ratchet/tags/bar/journal.jsonl");
    let whole = fs::read_to_string(&path).unwrap();
    // A power cut in the middle of an append.
    fs::write(&path, format!("{whole}{}", &whole.lines().last().unwrap()[..20])).unwrap();
    assert_eq!(toy.status()["trials"], 4);
    assert_eq!(toy.attempt("5")["trial"], 5);
    assert_eq!(toy.rows().len(), 5);
}

#[test]
fn each_trial_leaves_its_record() {
    let toy = some();
    for (number, files) in [
        ("0002", &["diff.patch", "run.log", "verdict.json", "env.json", "proposal.json"][..]),
        ("0004", &["run.log", "verdict.json"]),
    ] {
        for file in files {
            let path = toy.path(&format!(".ratchet/tags/bar/trials/{number}/{file}"));
            assert!(path.exists(), "{}", path.display());
        }
    }
    assert!(toy.read(".ratchet/tags/bar/trials/0002/diff.patch").contains("+x = 6 "));
    assert!(toy.read(".ratchet/tags/bar/trials/0004/run.log").contains("boom: no such tensor"));
    let verdict: serde_json::Value =
        serde_json::from_str(&toy.read(".ratchet/tags/bar/trials/0002/verdict.json")).unwrap();
    assert_eq!(verdict["rule"], "strict");
}

#[test]
fn a_results_file_of_the_users_own_is_put_aside_whole() {
    let toy = Toy::new();
    toy.write("results.tsv", "my own results, one line");
    toy.commit("a file of that name");
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]).says(&["results-before.tsv"]);
    assert_eq!(toy.read(".ratchet/results-before.tsv"), "my own results, one line");
    toy.write("results.tsv", "another\n");
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.read(".ratchet/results-before-2.tsv"), "another\n");
    assert_eq!(toy.column("trial"), ["1", "2"]);
}
