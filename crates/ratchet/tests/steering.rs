//! Steering from outside: a run that is paused, resumed and stopped from another terminal; hints; a draft for
//! `program.md`.

use std::fs;

use serde_json::{Value, json};

use crate::toy::{Toy, alive, until};

/// Scores (x − 3)² + 1; waits at the gate while `shut` is there.
const SCORE: &str = r#"if [ -e "$1/shut" ]; then
  echo $$ > "$1/started"; while [ ! -e "$1/open" ]; do sleep 0.01; done
fi
x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
awk -v x="$x" 'BEGIN { printf "{\"loss\": %.17g}\n", (x - 3) * (x - 3) + 1 }'
"#;

/// Lowers x by one.
const LOWER: &str = r#"cat > /dev/null
x=$(sed -n 's/^x = \([^ ]*\).*/\1/p' cand/x.txt)
echo "x = $((x - 1)) # knob: lin -20..20" > cand/x.txt
"#;

fn gated(toy: Toy) -> Toy {
    toy.write("score.sh", SCORE);
    toy.commit("a gate");
    toy.write("shut", "");
    toy
}

/// A toy whose proposer is this shell script.
fn agent(script: &str) -> Toy {
    let toy = Toy::and(
        "[proposer]\nkind = \"agent\"\n[proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\ntimeout_s = 20\n",
    );
    toy.write("agent.sh", script);
    toy.commit("an agent");
    toy
}

/// The waiting trial and all later ones go on.
fn free(toy: &Toy) {
    fs::remove_file(toy.path("shut")).unwrap();
    toy.open_the_gate();
}

#[test]
fn a_pause_begins_after_the_trial_and_ends_with_resume() {
    let toy = gated(Toy::new());
    let running = toy.at_the_gate(&["run", "--trials", "3", "--tag", "bar"]);
    toy.exits(0, &["pause"]).says(&["after its trial"]);
    assert_eq!(toy.status()["paused"], false);
    toy.exits(0, &["status"]).says(&["it pauses after its trial"]);
    free(&toy);
    until("paused", || toy.status()["paused"] == true);
    assert_eq!(toy.rows().len(), 1);
    toy.exits(0, &["status"]).says(&["paused, pid"]);
    toy.exits(0, &["resume"]);
    let ran = running.ended("the resumed run");
    assert_eq!((ran.code, toy.rows().len()), (Some(0), 3), "{}", ran.stderr);
    assert_eq!(ran.stderr.matches("paused:").count(), 1, "{}", ran.stderr);
    assert_eq!((toy.events("paused").len(), toy.events("resumed").len()), (1, 1));
    assert_eq!(toy.status()["paused"], false);
}

#[test]
fn stop_ends_a_run_after_its_trial_and_says_so() {
    let toy = gated(Toy::new());
    let running = toy.at_the_gate(&["run", "--trials", "3", "--tag", "bar"]);
    toy.exits(0, &["stop"]).says(&["after its trial"]);
    toy.exits(2, &["resume"]).says(&["asked to stop"]);
    free(&toy);
    let ran = running.ended("the stopped run");
    assert_eq!((ran.code, toy.rows().len()), (Some(0), 1), "{}", ran.stderr);
    ran.says(&["ended: stopped by `ratchet stop`"]);
    toy.exits(0, &["status"]).says(&["the last run ended: stopped by `ratchet stop`"]);
    assert_eq!(toy.events("run_ended")[0]["reason"], "stopped by `ratchet stop`");
    toy.exits(0, &["run", "--trials", "1"]); // the wish was that run's
    assert_eq!(toy.rows().len(), 2);
}

#[test]
fn stop_while_a_proposal_is_made_begins_no_further_trial() {
    let slow = format!(
        "echo $$ > \"$AGENT_DIR/started\"; while [ ! -e \"$AGENT_DIR/open\" ]; do sleep 0.01; done\n{LOWER}"
    );
    let toy = agent(&slow);
    let root = toy.root().to_str().unwrap().to_owned();
    let toy = toy.env("AGENT_DIR", &root);
    let running = toy.at_the_gate(&["run", "--trials", "3", "--tag", "bar"]);
    until("trials", || toy.status()["trials"] == 1);
    toy.exits(0, &["stop"]);
    toy.open_the_gate();
    let ran = running.ended("the stopped run");
    assert_eq!((ran.code, toy.rows().len()), (Some(0), 1), "{}", ran.stderr);
    ran.says(&["ended: stopped by `ratchet stop`"]);
}

#[test]
fn stop_now_ends_the_trial_without_a_row() {
    let toy = gated(Toy::new());
    let running = toy.at_the_gate(&["run", "--trials", "3", "--tag", "bar"]);
    let referee = toy.read("started");
    toy.exits(0, &["stop", "--now"]);
    let ran = running.ended("the stopped run");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
    ran.says(&["ended: stopped by `ratchet stop`"]);
    assert!(!alive(&referee), "the referee is gone");
    assert!(!toy.path("results.tsv").exists() || toy.rows().is_empty());
    free(&toy);
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(toy.column("trial"), ["1"]);
}

#[test]
fn a_paused_run_can_be_stopped() {
    let toy = gated(Toy::new());
    let running = toy.at_the_gate(&["run", "--trials", "3", "--tag", "bar"]);
    toy.exits(0, &["pause"]);
    free(&toy);
    until("paused", || toy.status()["paused"] == true);
    toy.exits(0, &["stop"]);
    running.ended("the stopped run").says(&["stopped by `ratchet stop`"]);
    assert_eq!((toy.events("resumed").len(), toy.rows().len()), (1, 1));
}

#[test]
fn where_no_run_is_under_way_steering_exits_2_with_the_remedy() {
    let toy = Toy::new().init();
    for args in [&["pause"][..], &["resume"], &["stop"], &["stop", "--now"]] {
        toy.exits(2, args).says(&["no run is under way", "ratchet run"]);
    }
    let toy = gated(toy);
    toy.set("9");
    let running = toy.at_the_gate(&["try", "-m", "nine"]);
    for args in [&["pause"][..], &["stop", "--now"]] {
        toy.exits(2, args).says(&["no `ratchet run`"]);
    }
    free(&toy);
    assert_eq!(running.ended("the try").code, Some(0));
}

#[test]
fn what_an_earlier_run_was_asked_means_nothing_to_the_next() {
    let toy = Toy::new().init();
    for left in ["{\"pid\":1,\"wish\":\"stop\"}", "{\"pid\":", ""] {
        toy.write(".ratchet/control.json", left);
        toy.exits(0, &["run", "--trials", "2"]).says(&["2 trials done"]);
    }
    assert!(!toy.path(".ratchet/control.json").exists());
}

#[test]
fn hints_are_taken_up_in_order_each_by_one_trial_that_bears_it() {
    let toy = agent(&LOWER.replace("cat > /dev/null", "cat >> \"$AGENT_DIR/prompts\""));
    let out = Toy::no_repository();
    let toy = toy.env("AGENT_DIR", out.root().to_str().unwrap());
    toy.exits(2, &["hint", "too early"]).says(&["no tag yet"]);
    let toy = toy.init();
    for hint in ["a first idea", "never mind", "a second idea"] {
        toy.exits(0, &["hint", hint]);
    }
    toy.exits(0, &["hint", "--remove", "2"]).says(&["never mind"]);
    toy.exits(2, &["hint", "--remove", "3"]).says(&["`ratchet hint` lists them"]);
    toy.exits(0, &["hint"]).says(&["  1  a first idea\n  2  a second idea\n"]);
    assert_eq!(toy.status()["hints"], 2);
    toy.exits(0, &["run", "--trials", "4"]);
    let hints: Vec<Value> =
        toy.events("closed").iter().map(|event| event["demand"]["hint"].clone()).collect();
    assert_eq!(json!(hints), json!([null, "a first idea", "a second idea", null]));
    toy.exits(0, &["show", "2"]).says(&["hint         a first idea"]);
    toy.exits(0, &["hint"]).says(&["no hints are waiting"]);
    assert_eq!(fs::read_dir(toy.path(".ratchet/tags/bar/hints")).unwrap().count(), 0);
    let prompts = out.read("prompts");
    // a proposal made ahead that does not fit is made anew, with the same hint
    assert!(["a first idea", "a second idea"].iter().all(|hint| prompts.contains(hint)));
    assert!(!prompts.contains("never mind"));
}

#[test]
fn a_hint_survives_a_proposal_that_comes_to_nothing_and_a_killed_trial() {
    let once = format!(
        "if [ ! -e \"$AGENT_DIR/asked\" ]; then touch \"$AGENT_DIR/asked\"; cat > /dev/null; exit 0; fi\n{LOWER}"
    );
    let out = Toy::no_repository();
    let toy = agent(&once).env("AGENT_DIR", out.root().to_str().unwrap());
    let toy = gated(toy);
    fs::remove_file(toy.path("shut")).unwrap();
    toy.exits(0, &["run", "--trials", "1", "--tag", "bar"]);
    toy.exits(0, &["hint", "an idea"]);
    toy.write("shut", "");
    let mut running = toy.at_the_gate(&["run", "--trials", "1"]);
    assert_eq!(toy.events("no_proposal").len(), 1, "the first came to nothing");
    assert_eq!(toy.status()["hints"], 0, "the trial that runs has it");
    running.0.kill().unwrap();
    running.0.wait().unwrap();
    assert_eq!(toy.status()["hints"], 1, "it is back");
    free(&toy);
    toy.exits(0, &["run", "--trials", "2"]);
    let hints: Vec<Value> =
        toy.events("closed").iter().map(|event| event["demand"]["hint"].clone()).collect();
    assert_eq!(json!(hints), json!([null, "an idea", null]));
}

#[test]
fn what_is_no_hint_is_one_clear_line_and_exit_2() {
    let toy = agent(LOWER).init();
    let long = "x".repeat(100_000);
    for bad in ["", "  ", "a\u{1b}[2Jb", &long] {
        let ran = toy.exits(2, &["hint", bad]);
        assert_eq!(ran.says(&["the hint"]).stderr.lines().count(), 1, "{}", ran.stderr);
        assert!(ran.stderr.len() < 300);
    }
    let toy = Toy::new().init();
    toy.exits(0, &["hint", "an idea"]).says(&["takes up no hints"]);
    toy.exits(0, &["run", "--trials", "3"]);
    assert_eq!(toy.status()["hints"], 1, "it waits");
}

#[test]
fn an_edited_program_is_the_next_proposals_and_each_trial_bears_its_version() {
    let toy = agent(LOWER);
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    toy.write("program.md", "Structural share: lots\n");
    let ran = toy.exits(0, &["run", "--trials", "2"]);
    assert_eq!(ran.stderr.matches("program.md, line 1").count(), 1, "noted once: {}", ran.stderr);
    let closed = toy.events("closed");
    let version = |i: usize| closed[i]["program"].as_str().unwrap().to_owned();
    assert_eq!(version(2), version(3));
    assert_ne!(version(1), version(2));
    let file = format!(".ratchet/briefs/{}.md", version(2));
    assert_eq!(toy.read(&file), "Structural share: lots\n");
    toy.exits(0, &["show", "3"]).says(&[&format!("{}.md", version(2))]);
}

#[test]
fn a_brief_is_what_a_proposer_would_be_told_also_while_a_run_is_under_way() {
    let toy = gated(agent(LOWER));
    toy.exits(0, &["brief"]).says(&["Lower the loss. Edit cand/x.txt.", "cand/x.txt"]);
    let running = toy.at_the_gate(&["run", "--trials", "2", "--tag", "bar"]);
    toy.exits(0, &["brief"]).says(&["Lower the loss."]);
    free(&toy);
    assert_eq!(running.ended("the run").code, Some(0));
    toy.exits(0, &["brief"]).says(&["The champion is trial 2"]);
}

#[test]
fn a_suggestion_is_a_patch_that_git_applies_and_nobody_else_does() {
    let toy = Toy::new();
    toy.exits(0, &["brief", "--suggest", "-C", "."]).says(&["nothing yet"]);
    toy.exits(0, &["run", "--trials", "12", "--tag", "bar"]);
    let before = toy.read("program.md");
    let ran = toy.exits(0, &["brief", "--suggest"]);
    ran.says(&["git apply .ratchet/briefs/suggestions/bar-0012-"]);
    assert_eq!(toy.read("program.md"), before, "nothing is applied");
    assert_eq!(toy.exits(0, &["brief", "--suggest"]).stdout, ran.stdout, "the same trials, the same draft");
    let apply = ran.stderr.split('`').nth(1).unwrap();
    assert_eq!(toy.read(apply.strip_prefix("git apply ").unwrap()), ran.stdout);
    let args: Vec<&str> = apply.split(' ').skip(1).collect();
    toy.git(&args);
    let after = toy.read("program.md");
    assert!(after.starts_with(&before) && after.contains("## What the trials say"), "{after}");
    assert!(after.contains("`x` "), "the only knob: {after}");
    toy.exits(0, &["brief", "--suggest"]).says(&["nothing yet"]);
    fs::remove_file(toy.path("program.md")).unwrap();
    toy.exits(2, &["brief", "--suggest"]).says(&["no program.md"]);
}
