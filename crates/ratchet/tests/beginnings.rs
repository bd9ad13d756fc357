//! Tags that are not there yet, and tags whose baseline has not run yet.

use crate::toy::Toy;

/// A toy whose committed baseline crashes, after one run of it.
fn broken() -> Toy {
    let toy = Toy::new();
    toy.set("crash");
    toy.commit("broken");
    toy.exits(1, &["run", "--trials", "3", "--tag", "bar"]).says(&["commit the repair"]);
    toy
}

/// Where the tag's branch stands.
fn tip(toy: &Toy) -> String {
    toy.git(&["rev-parse", "ratchet/bar"])
}

#[test]
fn a_commit_that_repairs_a_crashed_baseline_is_what_the_next_run_starts_from() {
    let toy = broken();
    toy.set("10");
    toy.commit("repaired");
    toy.exits(0, &["run", "--trials", "2"]).says(&["has no baseline yet"]);
    assert_eq!(toy.column("status")[..2], ["crash", "keep"], "the crashed row stays");
    assert_eq!(toy.column("loss")[1], "50.000000");
    assert_eq!(toy.git(&["merge-base", "main", "ratchet/bar"]), toy.git(&["rev-parse", "main"]));
    // from the first keep on the tag has its base, whatever is committed
    let before = tip(&toy);
    toy.write("notes.txt", "mine");
    toy.commit("later");
    toy.exits(0, &["sync"]);
    assert_eq!(tip(&toy), before);
}

#[test]
fn a_repair_of_the_referee_or_the_contract_counts_for_try_as_well() {
    let toy = broken();
    toy.write("judge.sh", &toy.read("score.sh").replace("exit 7", "echo '{\"loss\": 70.0}'"));
    toy.git(&["rm", "-q", "score.sh"]);
    toy.write("ratchet.toml", &toy.read("ratchet.toml").replace("score.sh", "judge.sh"));
    toy.commit("another referee");
    let line = toy.attempt("6");
    assert_eq!((&line["trial"], &line["status"]), (&3.into(), &"keep".into()));
    assert_eq!(toy.column("loss"), ["0.000000", "70.000000", "10.000000"]);
    assert_eq!(toy.git(&["diff", "--name-only", "main", "ratchet/bar"]), "cand/x.txt");
}

#[test]
fn a_repair_that_is_not_committed_does_not_count_and_a_note_says_so() {
    let toy = broken();
    let before = tip(&toy);
    toy.set("10");
    toy.write("score.sh", &format!("{}# more\n", toy.read("score.sh")));
    toy.exits(1, &["run", "--trials", "2"]).says(&["cand/x.txt differs", "not part of it: score.sh"]);
    assert_eq!((toy.column("status"), tip(&toy)), (vec!["crash".into(), "crash".into()], before));
    assert_eq!(toy.x(), "10");
}

#[test]
fn a_kill_between_the_new_base_and_the_branch_is_made_good() {
    let toy = broken();
    let old = tip(&toy);
    toy.set("10");
    toy.commit("repaired");
    toy.exits(0, &["sync"]);
    // as it stands when the journal has the new base and the branch has not followed
    let journal = toy.read(".ratchet/tags/bar/journal.jsonl");
    let cut = journal.trim_end().rfind('\n').unwrap() + 1;
    assert!(journal[cut..].contains("advanced"), "{}", &journal[cut..]);
    toy.write(".ratchet/tags/bar/journal.jsonl", &journal[..cut]);
    toy.git(&["update-ref", "refs/heads/ratchet/bar", &old]);
    toy.set("9");
    toy.commit("repaired again");
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.column("loss"), ["0.000000", "37.000000"]);
    assert_eq!(tip(&toy), toy.git(&["rev-parse", "main"]));
}

#[test]
fn a_branch_that_someone_moved_is_not_taken_along() {
    let toy = broken();
    let elsewhere = toy.git(&["commit-tree", "-m", "someone else", "main^{tree}"]);
    toy.git(&["update-ref", "refs/heads/ratchet/bar", &elsewhere]);
    toy.set("10");
    toy.commit("repaired");
    toy.exits(2, &["run", "--trials", "1"]).says(&["ratchet/bar"]);
    assert_eq!(tip(&toy), elsewhere);
}

#[test]
fn sync_and_rerun_create_no_tag_and_name_those_there_are() {
    let toy = Toy::new();
    for args in [&["sync"][..], &["rerun", "1"], &["sync", "--tag", "foo"]] {
        toy.exits(2, args).says(&["no tag", "ratchet run"]);
    }
    assert!(!toy.path(".ratchet").exists());
    let toy = toy.init();
    for args in [&["sync", "--tag", "foo"][..], &["rerun", "1", "--tag", "foo"]] {
        toy.exits(2, args).says(&["no tag foo", "bar", "ratchet run"]);
    }
    assert_eq!(toy.git(&["branch", "--list", "ratchet/*", "--format=%(refname:short)"]), "ratchet/bar");
    assert_eq!(toy.status()["tag"], "bar");
}

#[test]
fn a_try_that_is_refused_begins_no_tag() {
    let toy = Toy::new();
    let nothing = || {
        assert_eq!(toy.git(&["branch", "--list", "ratchet/*"]), "");
        assert!(!toy.path("results.tsv").exists() && !toy.path(".ratchet/current").exists());
    };
    toy.exits(3, &["try", "-m", "nothing"]).says(&["nothing is changed"]);
    nothing();
    toy.write("score.sh", "echo '{\"loss\": 0}'\n");
    toy.set("5");
    let ran = toy.exits(3, &["try", "-m", "cheat", "--json"]);
    assert_eq!(ran.json()["status"], "refused");
    nothing();
    for blank in ["", " \t "] {
        toy.exits(2, &["try", "-m", blank]).says(&["what the edit does"]);
    }
    nothing();
}
