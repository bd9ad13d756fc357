//! Candidates that are refused: exit 3, one JSON line, files as they were, no row.

use std::os::unix::fs::symlink;

use serde_json::{Value, json};

use crate::toy::{Toy, keys};

/// Tries what stands in the tree; asserts a refusal, and gives its reason.
#[track_caller]
fn refused(toy: &Toy) -> String {
    let rows = toy.rows().len();
    let ran = toy.exits(3, &["try", "-m", "refuse me", "--json"]);
    let line = ran.json();
    assert_eq!(keys(&line), ["reason", "status", "trial"], "{line}");
    assert_eq!((&line["trial"], &line["status"]), (&Value::Null, &json!("refused")));
    assert_eq!(toy.rows().len(), rows, "a refusal is no row");
    ran.says(&[]);
    line["reason"].as_str().unwrap().to_owned()
}

fn started() -> Toy {
    let toy = Toy::new().init();
    toy.attempt("6");
    toy
}

#[test]
fn an_empty_candidate() {
    let toy = started();
    assert!(!refused(&toy).is_empty());
    assert_eq!(toy.x(), "6");
}

#[test]
fn an_edit_of_the_referee_even_beside_a_fair_one() {
    let toy = started();
    let cheat = toy.read("score.sh").replace("+ 1 }", "+ 0 }");
    toy.write("score.sh", &cheat);
    toy.set("5");
    assert!(refused(&toy).contains("score.sh"));
    assert_eq!(toy.read("score.sh"), cheat, "left as it is");
    assert_eq!(toy.x(), "5", "left as it is");
}

#[test]
fn an_edit_of_the_referee_that_was_committed_after_init() {
    let toy = started();
    toy.write("score.sh", &toy.read("score.sh").replace("+ 1 }", "+ 0 }"));
    toy.git(&["commit", "-qam", "sneak"]);
    toy.set("5");
    let ran = toy.ratchet(&["try", "-m", "x", "--json"]);
    assert!(matches!(ran.code, Some(2 | 3)), "{:?} {}", ran.code, ran.stderr);
    assert_eq!(toy.rows().len(), 2);
}

#[test]
fn a_deleted_protected_file() {
    let toy = started();
    std::fs::remove_file(toy.path("score.sh")).unwrap();
    toy.set("5");
    assert!(refused(&toy).contains("score.sh"));
}

#[test]
fn a_link_inside_the_editable_part() {
    let toy = started();
    symlink("/etc/passwd", toy.path("cand/link")).unwrap();
    assert!(refused(&toy).contains("cand/link"));
    assert!(toy.path("cand/link").is_symlink(), "left as it is");
}

#[test]
fn an_editable_file_replaced_by_a_link() {
    let toy = started();
    std::fs::remove_file(toy.path("cand/x.txt")).unwrap();
    symlink("../score.sh", toy.path("cand/x.txt")).unwrap();
    assert!(refused(&toy).contains("cand/x.txt"));
    assert!(toy.path("cand/x.txt").is_symlink());
}

#[test]
fn what_was_tried_before_names_its_trial() {
    let toy = started();
    assert_eq!(toy.attempt("9")["trial"], 3);
    toy.set("9");
    assert!(refused(&toy).contains('3'));
    assert_eq!(toy.x(), "9", "left as it is");
    toy.set("10");
    assert!(refused(&toy).contains('1'), "the baseline's own tree");
}

#[test]
fn rust_is_compared_by_tokens_and_other_files_by_bytes() {
    let toy = Toy::new();
    toy.write("cand/m.rs", "pub const A: f64 = 1.0;\n");
    toy.commit("rust");
    let toy = toy.init();
    toy.attempt("6");
    toy.write("cand/m.rs", "//! Docs.\n\n/// More.\npub const A : f64 = 1.0; // why\n");
    refused(&toy);
    toy.write("cand/m.rs", "pub const A: f64 = 1.5;\n");
    toy.exits(0, &["try", "-m", "a literal", "--json"]);
    toy.write("cand/x.txt", &toy.read("cand/x.txt").replace("# knob", "#  knob"));
    toy.exits(0, &["try", "-m", "a byte", "--json"]);
}

#[test]
fn program_md_is_the_humans_and_never_part_of_a_candidate() {
    let toy = started();
    toy.write("program.md", "Try small steps.\n");
    refused(&toy); // nothing else changed
    let line = toy.attempt("5");
    assert_eq!(line["status"], "keep");
    assert_eq!(toy.read("program.md"), "Try small steps.\n");
    let head = toy.git(&["show", "--format=", "--name-only", "ratchet/bar"]);
    assert_eq!(head, "cand/x.txt");
}

#[test]
fn results_tsv_is_exempt_and_rebuilt() {
    let toy = started();
    let right = toy.read("results.tsv");
    toy.write("results.tsv", "edited\n");
    toy.attempt("5");
    assert!(toy.read("results.tsv").starts_with(&right));
}

#[test]
fn a_refusal_before_the_first_trial_leaves_no_row() {
    let toy = Toy::new().init();
    toy.write("score.sh", "echo '{\"loss\": 0}'\n");
    toy.set("5");
    let ran = toy.exits(3, &["try", "-m", "cheat", "--json"]);
    assert_eq!(ran.json()["status"], "refused");
    let rows = if toy.path("results.tsv").exists() { toy.rows().len() } else { 0 };
    assert!(rows <= 1, "no row but the baseline's");
}
