//! What keeps a search from going in circles: classes of edits, duplicates, excursions.

use serde_json::{Value, json};

use crate::toy::Toy;

#[test]
fn a_discard_may_be_tried_again_when_what_it_was_tried_against_has_changed() {
    let toy = Toy::new();
    toy.write("cand/y.txt", "y = 1\n");
    toy.write(
        "score.sh",
        "sed -n 's/^x = \\([^ ]*\\).*/\\1/p' cand/x.txt | awk -v y=\"$(sed 's/y = //' cand/y.txt)\" \
         '{ printf \"{\\\"loss\\\": %d}\\n\", ($1 - 3) * ($1 - 3) + 10 * y }'\n",
    );
    toy.commit("two files");
    let toy = toy.init();
    assert_eq!(toy.attempt("11")["status"], "discard");
    toy.set("11");
    toy.exits(3, &["try", "-m", "again"]).says(&["was tried as trial 2"]);
    toy.set("10");
    toy.write("cand/y.txt", "y = 0\n");
    assert_eq!(toy.exits(0, &["try", "-m", "y", "--json"]).json()["status"], "keep");
    assert_eq!(toy.attempt("11")["trial"], 4, "on another champion it is another tree");
}

#[test]
fn status_counts_edits_by_class_and_trials_by_category() {
    let toy = Toy::new();
    toy.exits(0, &["run", "--trials", "3", "--tag", "bar"]);
    toy.exits(0, &["sync"]);
    toy.write("cand/new.txt", "a new file\n");
    toy.exits(0, &["try", "-m", "a file"]);
    let status = toy.status();
    let classes: Vec<(Value, Value)> = (status["classes"].as_array().unwrap().iter())
        .map(|class| (class["name"].clone(), class["tried"].clone()))
        .collect();
    assert_eq!(json!(classes), json!([["constant", 2], ["structural", 1]]));
    assert_eq!(status["classes"][1]["keep_rate"], 0.0);
    assert_eq!(status["categories"], json!([]), "a knob's name is no category");
    toy.exits(0, &["status"]).says(&["edits     2 constant (67 %"]);
    toy.exits(0, &["show", "4"]).says(&["edit         structural"]);
}

/// Worse for long, once with a step that pays only together with a second one, which it takes where it finds
/// the first.
const WANDERER: &str = r#"cat > "$AGENT_DIR/prompt"
n=$(($(cat "$AGENT_DIR/n" 2>/dev/null || echo 0) + 1)); echo $n > "$AGENT_DIR/n"
if grep -q first cand/steps.txt; then
  cp "$AGENT_DIR/prompt" "$AGENT_DIR/excursion"; echo second >> cand/steps.txt
elif [ $n = 4 ]; then echo first >> cand/steps.txt
else echo "x = $((20 + n)) # knob: lin -20..99" > cand/x.txt
fi
"#;

#[test]
fn an_excursion_steps_back_and_what_it_finds_is_one_commit_on_the_champions_line() {
    let toy = Toy::and(
        "[proposer]\nkind = \"agent\"\nlookahead = false\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\n",
    );
    toy.write("agent.sh", WANDERER);
    toy.write("cand/steps.txt", "none\n");
    toy.write(
        "score.sh",
        "if grep -q second cand/steps.txt; then echo '{\"loss\": 1}'\n\
         elif grep -q first cand/steps.txt; then echo '{\"loss\": 51}'\n\
         else sed -n 's/^x = \\([^ ]*\\).*/{\"loss\": \\10}/p' cand/x.txt; fi\n",
    );
    toy.set("5");
    toy.commit("a valley behind a hill");
    let out = Toy::no_repository();
    let toy = toy.env("AGENT_DIR", out.root().to_str().unwrap());
    toy.exits(0, &["run", "--trials", "14", "--tag", "bar"]);
    let rows = toy.rows();
    assert_eq!((rows[4]["loss"].as_str(), rows[13]["status"].as_str()), ("51.000000", "keep"), "{rows:?}");
    assert!(rows[1..13].iter().all(|row| row["status"] == "discard"));
    let lineage = toy.lineage("bar");
    assert_eq!(lineage.len(), 1);
    assert_eq!(toy.git(&["rev-parse", "ratchet/bar~1"]), toy.git(&["rev-parse", "main"]));
    assert_eq!(toy.git(&["show", "ratchet/bar:cand/steps.txt"]), "none\nfirst\nsecond");
    toy.exits(0, &["show", "14"]).says(&["excursion    from the files of trial 5"]);
    assert!(out.read("excursion").contains("trial 5"), "the agent is told where it stands");
}
