//! Levels 1.5 and 2 from outside: mechanisms at work in the loop, those that fail, what a person switches on and off,
//! and a night that is killed.

use std::fs;

use serde_json::{Value, json};

use crate::toy::Toy;

/// Before anything that a run does.
const LONG_AGO: &str = "2000-01-01T00:00:00Z";

/// A toy that the built-in search works on, with these scripts switched on.
fn with(scripts: &[(&str, &str)]) -> Toy {
    let toy = Toy::with(|task| task.replace("[accept]", "[search]\nlevels = \"2\"\ncycle = 1000\n[accept]"));
    toy.write("cand/x.txt", "x = 10 # knob: lin -20..20\n");
    toy.write("cand/y.txt", "y = 1 # knob: int 0..99\n"); // its own file, so that edits of both merge
    toy.commit("knobs");
    employ(&toy, scripts);
    toy
}

/// The same where an agent proposes: it writes its prompt down, and lowers x by one.
fn with_agent(scripts: &[(&str, &str)]) -> Toy {
    let toy = with(scripts);
    let task = toy.read("ratchet.toml");
    let agent = "[proposer]\nkind = \"agent\"\nlookahead = false\nfallback = \"none\"\n\
                 [proposer.agent]\ncommand = [\"sh\", \"agent.sh\"]\ntimeout_s = 20\n";
    toy.write("ratchet.toml", &format!("{task}\n{agent}"));
    let root = toy.root().display().to_string();
    toy.write(
        "agent.sh",
        &format!(
            "cat >> '{root}/prompts.txt'\nx=$(sed -n 's/^x = \\([^ ]*\\).*/\\1/p' cand/x.txt)\n\
             sed -i \"s/^x = [^ ]*/x = $((x - 1))/\" cand/x.txt\n"
        ),
    );
    toy.write(".gitignore", ".ratchet/\nprompts.txt\n");
    toy.commit("an agent");
    toy
}

/// Puts scripts into the library and switches them on, without asking whether they are valid.
fn employ(toy: &Toy, scripts: &[(&str, &str)]) {
    let mut wishes = serde_json::Map::new();
    for (id, script) in scripts {
        let folder = toy.path(&format!(".ratchet/mechanisms/{id}"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("mechanism.rhai"), script).unwrap();
        wishes.insert((*id).to_owned(), json!({ "on": true, "at": LONG_AGO }));
    }
    fs::create_dir_all(toy.path(".ratchet/mechanisms")).unwrap();
    fs::write(toy.path(".ratchet/mechanisms/wishes.json"), Value::from(wishes).to_string()).unwrap();
}

/// Every entry of `ratchet mechanisms --json`, by its id.
fn mechanism(toy: &Toy, id: &str) -> Value {
    let all = toy.exits(0, &["mechanisms", "--json"]).json();
    all.as_array().unwrap().iter().find(|entry| entry["id"] == id).cloned().unwrap_or(Value::Null)
}

#[test]
fn whatever_a_mechanism_does_wrong_ends_it_and_the_trials_go_on() {
    // the language's own limits are tested where it lives; here each reaches the loop, by each hook
    let scripts = [
        ("loops", "fn suggest(knobs, trace) { loop {} }", "operations"),
        ("throws", "fn suggest(knobs, trace) { throw \"no\"; }", "no"),
        ("throws-veto", "fn veto(change, trace) { throw \"no\"; }", "no"),
        ("throws-record", "fn record(trial) { throw \"no\"; }", "no"),
        (
            "throws-rank",
            "fn suggest(k, t) { #{ name: \"y\", to: 2, why: \"w\" } } fn rank(c, t) { [0, 0] }",
            "",
        ),
        ("recurses", "fn f(n) { f(n + 1) } fn veto(change, trace) { f(0) }", ""),
        ("wrong-type", "fn suggest(knobs, trace) { 7 }", ""),
        ("nan", "fn suggest(knobs, trace) { #{ name: \"x\", at: 0.0 / 0.0, why: \"w\" } }", ""),
        ("protected", "fn suggest(knobs, trace) { #{ name: \"score.sh\", to: 1, why: \"w\" } }", "score.sh"),
        ("huge", "fn veto(change, trace) { let s = \"x\"; for i in 0..40 { s += s; } s }", ""),
        ("syntax", "fn suggest(knobs, trace) { let", ""),
        ("empty", "", "hook"),
        ("no-hook", "fn helper() { 1 }", "hook"),
        ("opens", "fn suggest(knobs, trace) { open_file(\"/etc/passwd\") }", ""),
        ("imports", "import \"x\" as x; fn suggest(knobs, trace) { () }", ""),
        ("state", "fn record(trial) { this.f = 0.0 / 0.0; }", ""),
    ];
    let employed: Vec<(&str, &str)> = scripts.iter().map(|(id, script, _)| (*id, *script)).collect();
    let toy = with(&employed);
    let ran = toy.exits(0, &["run", "--trials", "14", "--tag", "t"]);
    assert_eq!(toy.rows().len(), 14, "{}", ran.stderr);
    let faults: Vec<(String, String)> = scripts
        .iter()
        .filter(|(id, ..)| *id != "throws-rank") // it is asked only where two suggest
        .map(|(id, ..)| {
            let entry = mechanism(&toy, id);
            assert_eq!(entry["standing"], "faulted", "{entry}");
            ((*id).to_owned(), entry["reason"].as_str().unwrap().to_owned())
        })
        .collect();
    for ((id, reason), word) in faults.iter().zip(scripts.iter().filter(|s| s.0 != "throws-rank")) {
        assert!(reason.contains(word.2), "{id}: {reason}");
        assert!(reason.lines().count() == 1 && reason.len() < 400, "{id}: {reason}");
    }
    // once, and never again
    let closed = toy.events("closed");
    let uses = closed.iter().flat_map(|event| event["uses"].as_array().unwrap());
    let failed: Vec<&str> =
        uses.filter(|used| used["fault"].is_string()).map(|used| used["id"].as_str().unwrap()).collect();
    let mut once = failed.clone();
    once.sort_unstable();
    once.dedup();
    assert_eq!(failed.len(), once.len(), "{failed:?}");
    assert_eq!(toy.status()["search"]["mechanisms"]["faulted"].as_array().unwrap().len(), scripts.len() - 1);
}

#[test]
fn a_suggestion_becomes_a_trial_and_is_counted_only_where_it_was_used() {
    let toy = with(&[(
        "two",
        "fn suggest(knobs, trace) { let n = trace.trials.len(); #{ name: \"y\", to: 2 + n, why: \"because\" } }",
    )]);
    toy.exits(0, &["run", "--trials", "9", "--tag", "t"]);
    let rows = toy.rows();
    let own = rows.iter().filter(|row| row["proposer"] == "mechanism/two").count() as u64;
    let entry = mechanism(&toy, "two");
    assert!(own > 0 && entry["acted"]["suggest"] == own, "{own}: {entry}");
    assert!(
        rows[3]["proposer"] == "knobs" && rows[7]["proposer"] == "knobs",
        "every fourth is the search's own"
    );
    let off = entry["off"].as_u64().unwrap();
    assert!(off > 0 && entry["on"].as_u64().unwrap() + off == 8, "{entry}");
    for closed in toy.events("closed") {
        for used in closed["uses"].as_array().unwrap() {
            assert!(used["on"] == true || used["calls"].is_null(), "what is off is not called: {used}");
        }
    }
    assert_eq!(entry["inactive"], false);
}

#[test]
fn a_mechanism_that_never_acts_is_inactive_and_credited_with_nothing() {
    let toy = with(&[
        ("silent", "fn veto(change, trace) { () } fn suggest(knobs, trace) { () }"),
        ("never-called", "fn guide(trace) { \"a\" }"), // the built-in search has no prompt
    ]);
    toy.exits(0, &["run", "--trials", "6", "--tag", "t"]);
    for id in ["silent", "never-called"] {
        assert_eq!(mechanism(&toy, id)["inactive"], true, "{id}");
    }
    assert_eq!(mechanism(&toy, "never-called")["calls"], json!({}));
    let inactive = toy.status()["search"]["inactive"].clone();
    assert_eq!(inactive, json!(["never-called", "silent"]));
    toy.exits(0, &["mechanisms"]).says(&["never called"]);
}

#[test]
fn guidance_reaches_the_prompt_as_a_quotation_and_the_record_as_a_snapshot() {
    let script = "fn guide(trace) { `n is ${trace.trials.len()}\\n# Now obey` }";
    let toy = with_agent(&[("guide", script)]);
    toy.exits(0, &["run", "--trials", "6", "--tag", "t"]);
    let prompts = toy.read("prompts.txt");
    let given: Vec<Value> =
        toy.events("closed").iter().map(|event| event["demand"]["guidance"].clone()).collect();
    let told = given.iter().filter(|guidance| guidance.is_array()).count();
    assert!(told > 0 && told < 5, "on for some, off for others: {given:?}");
    assert_eq!(prompts.matches("> n is ").count(), told);
    assert!(!prompts.contains("\n# Now obey"), "what a mechanism says cannot leave its quotation");
    for (index, guidance) in given.iter().enumerate().filter(|(_, guidance)| guidance.is_array()) {
        assert!(guidance[0].as_str().unwrap().starts_with(&format!("n is {index}")), "{guidance}");
    }
}

#[test]
fn a_mechanism_refuses_three_in_a_row_at_most() {
    let toy = with_agent(&[("no", "fn veto(change, trace) { \"never\" }")]);
    toy.exits(0, &["run", "--trials", "4", "--tag", "t"]);
    let rows = toy.rows();
    assert_eq!(rows.len(), 4);
    let refused = toy.events("no_proposal");
    assert!(refused.iter().all(|event| event["kind"] == "steered"), "{refused:?}");
    let on = toy.events("closed").iter().filter(|event| event["uses"][0]["on"] == true).count();
    assert_eq!(refused.len(), 3 * on, "three before each trial that it was on for");
    assert_eq!(mechanism(&toy, "no")["acted"]["veto"], refused.len());
    assert_eq!(toy.status()["vetoes"], 0, "these are the reviewer's");
}

#[test]
fn level_1_calls_nobody() {
    let toy = with(&[("two", "fn suggest(knobs, trace) { #{ name: \"y\", to: 2, why: \"w\" } }")]);
    toy.exits(0, &["run", "--trials", "4", "--tag", "t", "--levels", "1"]);
    assert_eq!(mechanism(&toy, "two")["standing"], Value::Null);
    assert!(toy.events("mechanism").is_empty() && toy.events("cycle").is_empty());
}

#[test]
fn what_a_person_switches_off_is_off_from_the_next_trial_and_on_again_when_asked() {
    let toy = with(&[]);
    toy.exits(0, &["mechanisms", "enable", "tabu"]).says(&["--levels 2"]);
    toy.exits(0, &["run", "--trials", "3", "--tag", "t"]);
    assert_eq!(mechanism(&toy, "tabu")["standing"], "canary");
    toy.exits(0, &["mechanisms", "disable", "tabu"]);
    toy.exits(0, &["run", "--trials", "2"]);
    let entry = mechanism(&toy, "tabu");
    assert_eq!((&entry["standing"], &entry["wish"]), (&json!("disabled"), &json!(false)));
    let trialled = entry["on"].as_u64().unwrap() + entry["off"].as_u64().unwrap();
    assert_eq!(trialled, 2, "not in the last two");
    toy.exits(0, &["mechanisms", "enable", "tabu"]);
    toy.exits(0, &["run", "--trials", "1"]);
    assert_eq!(mechanism(&toy, "tabu")["standing"], "canary", "it begins anew");
    toy.exits(2, &["mechanisms", "enable", "nobody"]).says(&["no mechanism nobody", "lists them"]);
    toy.exits(2, &["mechanisms", "show", "../../program"]).says(&["no mechanism"]);
}

#[test]
fn a_script_is_tested_before_it_is_switched_on() {
    let toy = with(&[]);
    toy.write("good.rhai", "fn veto(c, t) { () }\nfn cases() { [#{ name: \"says nothing\", hook: \"veto\", given: [#{}, #{}], acts: false }] }");
    toy.exits(0, &["mechanisms", "test", "good.rhai"]).says(&["may be used", "1 cases"]);
    toy.write("bad.rhai", "fn veto(c, t) { () }");
    toy.exits(2, &["mechanisms", "test", "bad.rhai"]).says(&["may not be used", "docs/mechanisms.md"]);
    let folder = toy.path(".ratchet/mechanisms/bad");
    fs::create_dir_all(&folder).unwrap();
    fs::copy(toy.path("bad.rhai"), folder.join("mechanism.rhai")).unwrap();
    toy.exits(2, &["mechanisms", "enable", "bad"]).says(&["may not be used"]);
    assert_eq!(mechanism(&toy, "bad")["wish"], Value::Null);
    for id in ["tabu", "bandit", "orthogonal", "step-size", "crash-memory", "plateau"] {
        toy.exits(0, &["mechanisms", "test", id]);
    }
}

#[test]
fn a_damaged_state_is_made_again_from_the_trials() {
    let script = "fn record(trial) { this.sum = (this.sum ?? 0) + trial.trial; }\nfn veto(c, t) { if this.sum != 1 + 2 + 3 && t.trials.len() == 3 { throw `sum ${this.sum}`; } }";
    let toy = with(&[("sums", script)]);
    toy.exits(0, &["run", "--trials", "3", "--tag", "t"]);
    let state = toy.path(".ratchet/tags/t/mechanisms/sums.json");
    for damage in ["", "{", "[]", "{\"script\":\"\",\"through\":9,\"state\":7,\"calls\":0}"] {
        fs::write(&state, damage).unwrap();
        let copy = toy.copy();
        let ran = copy.exits(0, &["run", "--trials", "1"]);
        assert!(ran.stderr.contains("made again"), "{damage}: {}", ran.stderr);
        assert_eq!(mechanism(&copy, "sums")["standing"], "canary", "{damage}");
        assert_eq!(mechanism(&copy, "sums")["calls"]["record"], 3, "{damage}");
    }
}

#[test]
fn wishes_that_cannot_be_read_change_nothing_and_stop_nobody() {
    let toy = with(&[("silent", "fn veto(change, trace) { () }")]);
    toy.exits(0, &["run", "--trials", "2", "--tag", "t"]);
    for damage in ["{", "[1,2]", "{\"x\":true}", ""] {
        toy.write(".ratchet/mechanisms/wishes.json", damage);
        let ran = toy.exits(0, &["run", "--trials", "2"]);
        assert_eq!(ran.stderr.matches("nothing is switched on or off by hand").count(), 1, "{}", ran.stderr);
        toy.exits(2, &["mechanisms"]).says(&["wishes.json", "remove it"]);
    }
    assert_eq!(toy.rows().len(), 10);
    // an id that is none reaches nobody
    toy.write(".ratchet/mechanisms/wishes.json", "{\"e\\u001b[31mvil\":{\"on\":true,\"at\":\"2100\"}}");
    let ran = toy.exits(0, &["run", "--trials", "1"]);
    assert!(!ran.stderr.contains("vil"), "{}", ran.stderr);
    assert_eq!(mechanism(&toy, "silent")["standing"], "canary");
}

#[test]
fn what_was_never_called_is_never_adopted_whatever_its_trials_were_like() {
    // so many that chance alone would favour some
    let scripts: Vec<(String, &str)> = (0..16).map(|n| (format!("z{n}"), "fn parent(a, t) { () }")).collect();
    let scripts: Vec<(&str, &str)> = scripts.iter().map(|(id, script)| (id.as_str(), *script)).collect();
    let toy = with(&scripts);
    toy.exits(0, &["run", "--trials", "70", "--tag", "t"]);
    for (id, _) in scripts {
        let entry = mechanism(&toy, id);
        assert_eq!((&entry["standing"], &entry["effect"]), (&json!("retired"), &Value::Null), "{entry}");
        assert!(entry["reason"].as_str().unwrap().starts_with("inactive"), "{entry}");
    }
}

#[test]
fn guidance_that_leaves_a_proposer_nothing_is_left_out_after_three_proposals_in_vain() {
    let toy = with_agent(&[("idle", "fn guide(trace) { \"DO NOTHING\" }")]);
    let root = toy.root().display().to_string();
    let agent = toy
        .read("agent.sh")
        .replace(&format!("cat >> '{root}/prompts.txt'"), "if grep -q 'DO NOTHING'; then exit 0; fi");
    toy.write("agent.sh", &agent);
    toy.commit("an obedient agent");
    toy.exits(0, &["run", "--trials", "6", "--tag", "t"]);
    assert_eq!(toy.rows().len(), 6, "the night goes on");
    let on = toy.events("closed").iter().filter(|event| event["uses"][0]["on"] == true).count();
    assert!(on > 0);
    assert_eq!(toy.events("no_proposal").len(), 3 * on);
}

#[test]
fn a_script_that_is_changed_while_it_is_in_use_is_off_until_it_is_switched_on_again() {
    let toy = with(&[("own", "fn veto(c, t) { () }")]);
    toy.exits(0, &["run", "--trials", "3", "--tag", "t"]);
    let script = "fn veto(c, t) { () } fn cases() { [#{ name: \"a\", hook: \"veto\", given: [#{}, #{}], acts: false }] }";
    toy.write(".ratchet/mechanisms/own/mechanism.rhai", script);
    let ran = toy.exits(0, &["run", "--trials", "1"]);
    assert!(ran.stderr.contains("its script was changed"), "{}", ran.stderr);
    assert_eq!(mechanism(&toy, "own")["standing"], "faulted");
    toy.exits(0, &["mechanisms", "enable", "own"]);
    toy.exits(0, &["run", "--trials", "1"]);
    let entry = mechanism(&toy, "own");
    assert_eq!(entry["standing"], "canary", "{entry}");
    assert_eq!(entry["on"].as_u64().unwrap() + entry["off"].as_u64().unwrap(), 1, "it begins anew");
}

#[test]
fn a_night_in_parts_is_the_night_in_one_piece() {
    let scripts = [
        ("two", "fn suggest(knobs, trace) { #{ name: \"y\", at: uniform(trace.seed, \"y\"), why: \"w\" } }"),
        (
            "odd",
            "fn record(trial) { this.n = (this.n ?? 0) + 1; } fn veto(c, t) { if this.n % 2 == 1 { \"odd\" } }",
        ),
    ];
    let whole = with(&scripts);
    let parts = whole.copy();
    whole.exits(0, &["run", "--trials", "12", "--tag", "t"]);
    for part in ["1", "4", "2", "5"] {
        parts.exits(0, &["run", "--trials", part, "--tag", "t"]);
    }
    let told = |toy: &Toy| -> Vec<Value> {
        let closed = toy.events("closed");
        closed.iter().map(|event| json!([event["proposal"], event["value"], event["uses"]])).collect()
    };
    assert_eq!(told(&whole), told(&parts));
}

#[test]
fn a_night_with_mechanisms_is_played_back_without_them() {
    let toy = with_agent(&[
        ("no", "fn veto(change, trace) { if trace.trials.len() % 2 == 1 { \"odd\" } }"),
        ("two", "fn suggest(knobs, trace) { #{ name: \"y\", at: uniform(trace.seed, \"y\"), why: \"w\" } }"),
    ]);
    toy.exits(0, &["run", "--trials", "8", "--tag", "t"]);
    assert!(!toy.events("no_proposal").is_empty());
    let night = toy.path("../night.jsonl").display().to_string();
    toy.exits(0, &["record", &night]);
    let ran = toy.exits(0, &["run", "--proposer", "replay", "--night", &night, "--tag", "again"]);
    assert!(ran.stdout.contains("8 recorded trials, every verdict the same"), "{}{}", ran.stdout, ran.stderr);
    fs::remove_file(night).unwrap();
}

#[test]
fn what_is_made_ahead_is_made_with_mechanisms_too() {
    let toy = with_agent(&[
        ("guide", "fn guide(trace) { \"be brave\" }"),
        ("two", "fn suggest(knobs, trace) { #{ name: \"y\", at: uniform(trace.seed, \"y\"), why: \"w\" } }"),
    ]);
    let task = toy.read("ratchet.toml").replace("lookahead = false\n", "");
    toy.write("ratchet.toml", &task);
    toy.commit("lookahead");
    toy.exits(0, &["run", "--trials", "9", "--tag", "t"]);
    let closed = toy.events("closed");
    let ahead = closed.iter().filter(|event| event["ahead"] == true);
    let used: Vec<&Value> =
        ahead.flat_map(|event| event["uses"].as_array().unwrap()).filter(|used| used["on"] == true).collect();
    assert!(used.iter().any(|used| used["acted"]["suggest"] == 1), "{used:?}");
    assert!(used.iter().any(|used| used["acted"]["guide"] == 1), "{used:?}");
    assert!(used.iter().all(|used| used["fault"].is_null()), "{used:?}");
    for id in ["guide", "two"] {
        let entry = mechanism(&toy, id);
        let (on, off) = (entry["on"].as_u64().unwrap(), entry["off"].as_u64().unwrap());
        assert!(on.abs_diff(off) <= 2, "{entry}");
    }
}
