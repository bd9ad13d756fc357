//! Coding agents from outside. Stand-ins, `tests/agents/bin/`, take the flags of the real tools and no others, and
//! print what those print; a transcript of each is kept in `tests/agents/transcripts/`.
//!
//! To accept transcripts that have changed on purpose: `INSTA_UPDATE=always cargo test -p ratchet agents::`.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::toy::{Toy, alive};

/// The toy, proposed to by a stand-in; `more` are further lines of `[proposer.agent]`.
fn toy(preset: &str, conduct: &str, more: &str) -> Toy {
    let toy = Toy::and(&format!(
        "[proposer]\nkind = \"agent\"\n[proposer.agent]\npreset = \"{preset}\"\ntimeout_s = 20\n{more}"
    ));
    toy.env("PATH", &path_with(&stand_ins())).env("STAND_IN", conduct).env("CLAUDECODE", "1")
}

pub(crate) fn stand_ins() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/agents/bin")
}

pub(crate) fn path_with(folder: &Path) -> String {
    format!("{}:{}", folder.display(), std::env::var("PATH").unwrap())
}

/// What came of the proposals that led to no trial, as (kind, reason).
fn in_vain(toy: &Toy) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let journal = toy.read(".ratchet/tags/bar/journal.jsonl");
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let nothing = events.filter(|event| event["event"] == "no_proposal");
    nothing.map(|event| (text(&event["kind"]), text(&event["reason"]))).collect()
}

/// One trial by a stand-in, as it can be read afterwards.
fn transcript(preset: &str, more: &str) -> String {
    let toy = toy(preset, "edit", more);
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    let trial = ".ratchet/tags/bar/trials/0002";
    let prompt = toy.read(&format!("{trial}/prompt.md"));
    let (head, _) = prompt.split_once(". ").unwrap();
    let answer = toy.read(&format!("{trial}/answer.log"));
    let (command, answer) = answer.split_once('\n').unwrap();
    let proposal: Value = serde_json::from_str(&toy.read(&format!("{trial}/proposal.json"))).unwrap();
    let scratch = toy.path(".ratchet/tags/bar/ahead/proposing").display().to_string();
    let row = &toy.rows()[1];
    let row: Vec<String> = ["trial", "status", "loss", "delta", "proposer", "description", "outcome"]
        .iter()
        .map(|name| format!("{name:12} {}", row[*name]))
        .collect();
    format!(
        "== command\n{command}\n\n== prompt, its first sentence\n{}\n\n== answer\n{}\n\n== usage read\n{}\n\n== row\n{}\n",
        head,
        answer.trim_end(),
        proposal["usage"],
        row.join("\n")
    )
    .replace(&scratch, "SCRATCH")
}

#[test]
fn each_preset_is_run_without_a_person_and_its_answer_is_read() {
    let presets = [
        ("claude", "model = \"claude-sonnet-5\"\nmax_usd = 0.5\n"),
        ("codex", "model = \"gpt-6\"\n"),
        ("gemini", ""),
        ("aider", "model = \"openai/gpt-6\"\n"),
        ("opencode", "model = \"anthropic/claude-sonnet-5\"\n"),
    ];
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path("agents/transcripts");
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| {
        for (preset, more) in presets {
            insta::assert_snapshot!(preset, transcript(preset, more));
        }
    });
}

#[test]
fn an_agent_that_leaves_no_edit_is_journalled_with_its_own_reason() {
    let cases = [
        ("claude", "refuse", "empty", "I cannot help with that."),
        ("claude", "silent", "empty", "the proposer changed nothing"),
        ("claude", "turns", "empty", "limit of turns"),
        ("claude", "budget", "empty", "limit of money"),
        ("claude", "protected", "refused", "score.sh is protected"),
        ("claude", "link", "refused", "cand/x.txt is a link"),
        ("codex", "refuse", "empty", "I cannot help with that."),
        ("codex", "fails", "empty", "longer than the model can hold"),
        ("codex", "down", "down", "failed to lookup address"),
        ("gemini", "refuse", "empty", "I cannot help with that."),
        ("gemini", "turns", "empty", "limit of turns"),
        ("gemini", "down", "down", "The model is overloaded"),
        ("aider", "refuse", "empty", "I cannot help with that."),
        ("aider", "misses", "empty", "Added cand/x.txt"),
        ("aider", "down", "down", "Connection error."),
        ("opencode", "refuse", "empty", "I cannot help with that."),
        ("opencode", "down", "down", "Overloaded"),
    ];
    for (preset, conduct, kind, reason) in cases {
        let toy = toy(preset, conduct, "");
        toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
        let nothing = in_vain(&toy);
        assert!(!nothing.is_empty(), "{preset} {conduct}");
        for (found, said) in nothing {
            assert_eq!(found, kind, "{preset} {conduct}: {said}");
            assert!(said.contains(reason), "{preset} {conduct}: {said}");
        }
        assert_eq!(toy.column("proposer")[1], "knobs", "{preset} {conduct}: the night goes on");
    }
}

#[test]
fn an_agent_that_cannot_work_as_it_is_set_up_ends_the_run_before_anyone_is_asleep() {
    let cases = [
        ("claude", "key", "invalid key"),
        ("claude", "login", "Please run /login"),
        ("codex", "key", "401 Unauthorized"),
        ("gemini", "login", "GEMINI_API_KEY"),
        ("gemini", "key", "invalid key"),
        ("aider", "key", "AuthenticationError"),
        ("opencode", "key", "invalid key"),
    ];
    for (preset, conduct, reason) in cases {
        toy(preset, conduct, "").exits(4, &["run", "--trials", "2", "--tag", "bar"]).says(&[reason]);
    }
}

#[test]
fn an_agent_that_is_not_installed_ends_the_run_before_it_begins() {
    let empty = tempfile::tempdir().unwrap();
    for program in ["sh", "git"] {
        std::os::unix::fs::symlink(format!("/usr/bin/{program}"), empty.path().join(program)).unwrap();
    }
    for preset in ["claude", "codex", "gemini", "aider", "opencode"] {
        let toy = toy(preset, "edit", "").env("PATH", empty.path().to_str().unwrap());
        let ran = toy.exits(4, &["run", "--trials", "2", "--tag", "bar"]);
        ran.says(&[preset, "not installed", "--proposer knobs"]);
        assert!(!toy.path("results.tsv").exists() || toy.rows().is_empty(), "no time was spent");
    }
}

#[test]
fn an_edit_counts_whatever_its_agent_ended_with() {
    for conduct in ["turns_after_edit", "flood"] {
        let toy = toy("claude", conduct, "");
        toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
        assert_eq!(toy.column("loss"), ["50.000000", "37.000000"], "{conduct}");
        assert_eq!(toy.column("proposer")[1], "agent");
        let proposal: Value =
            serde_json::from_str(&toy.read(".ratchet/tags/bar/trials/0002/proposal.json")).unwrap();
        assert_eq!(proposal["usage"]["tokens"], 4701, "{conduct}: as the stand-in says it");
    }
}

#[test]
fn what_came_to_nothing_counts_against_the_caps() {
    // a refusal of the stand-in costs 4,701 tokens and 0.0475 USD
    for (cap, value, spent) in [("--max-tokens", "9000", "9402 tokens"), ("--max-usd", "0.05", "0.10 USD")] {
        let toy = toy("claude", "refuse", "");
        let ran = toy.exits(0, &["run", "--trials", "9", cap, value, "--tag", "bar"]);
        ran.says(&[spent]);
        assert_eq!((in_vain(&toy).len(), toy.rows().len()), (2, 1), "{cap}");
    }
}

#[test]
fn a_cap_that_could_not_be_kept_is_refused_before_the_run_begins() {
    for preset in ["codex", "gemini"] {
        let ran = toy(preset, "edit", "").exits(2, &["run", "--trials", "2", "--max-usd", "1"]);
        ran.says(&[preset, "does not tell what it costs", "--max-tokens"]);
    }
}

#[test]
fn an_agent_that_ignores_its_end_or_leaves_processes_is_ended_whole() {
    for (conduct, timeout_s) in [("hang", 1), ("leaves", 20)] {
        let out = tempfile::tempdir().unwrap();
        let toy = Toy::and(&format!(
            "[proposer]\nkind = \"agent\"\n[proposer.agent]\npreset = \"claude\"\ntimeout_s = {timeout_s}\n"
        ));
        let toy = toy.env("PATH", &path_with(&stand_ins())).env("STAND_IN", conduct);
        let toy = toy.env("AGENT_DIR", out.path().to_str().unwrap());
        toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
        let pid = |name: &str| fs::read_to_string(out.path().join(name)).unwrap();
        assert!(!alive(&pid("child.pid")), "{conduct}");
        assert_eq!(toy.column("loss"), ["50.000000", "37.000000"], "{conduct}");
        if conduct == "hang" {
            assert!(!alive(&pid("agent.pid")));
            assert_eq!(in_vain(&toy)[0].0, "timed_out");
        }
    }
}

#[test]
fn a_secret_that_an_agent_prints_or_writes_down_goes_nowhere() {
    let secret = "0123456789abcdef-a-secret";
    let toy = toy("claude", "secret", "").env("WEATHER_API_KEY", secret);
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]).says(&["WEATHER_API_KEY"]);
    assert_eq!(toy.column("proposer")[1], "knobs");
    let mut grep = std::process::Command::new("grep");
    grep.args(["-rlF", secret, ".ratchet/tags", "results.tsv"]).current_dir(toy.root());
    let found = grep.output().unwrap();
    let found = String::from_utf8(found.stdout).unwrap();
    assert_eq!(found, "", "the secret is in these files");
}

#[test]
fn a_command_of_ones_own_may_take_the_prompt_as_a_file_and_the_files_by_name() {
    let toy = Toy::and(
        "[proposer]\nkind = \"agent\"\n[proposer.agent]\ntimeout_s = 20\n\
         command = [\"sh\", \"agent.sh\", \"--prompt={prompt}\", \"{tmp}/notes\", \"{files}\"]\n",
    );
    toy.write(
        "agent.sh",
        "grep -q 'What you may edit' \"${1#--prompt=}\" || exit 1\n\
         echo note > \"$2\" || exit 1\n\
         [ \"$3 $#\" = 'cand/x.txt 3' ] || exit 1\n\
         if read -r line; then exit 1; fi\n\
         echo 'x = 4 # knob: lin -20..20' > \"$3\"\n",
    );
    toy.commit("an agent");
    toy.exits(0, &["run", "--trials", "2", "--tag", "bar"]);
    assert_eq!(toy.column("loss"), ["50.000000", "2.000000"]);
}

#[test]
fn what_a_preset_cannot_be_told_is_a_mistake_of_the_file() {
    for (lines, words) in [
        ("preset = \"codex\"\nmax_usd = 1.0\n", "max_usd"),
        ("preset = \"claude\"\nmax_usd = -1.0\n", "max_usd is -1"),
        ("command = [\"x\"]\nmodel = \"m\"\n", "go with a preset"),
        ("preset = \"claud\"\n", "claude"),
        ("preset = \"claude\"\ntimeout_s = 0\n", "could never finish"),
    ] {
        let toy = Toy::and(&format!("[proposer.agent]\n{lines}"));
        toy.exits(2, &["run", "--trials", "1"]).says(&[words]);
    }
}

#[test]
fn stand_ins_can_be_run() {
    for preset in ["claude", "codex", "gemini", "aider", "opencode"] {
        let mode = fs::metadata(stand_ins().join(preset)).unwrap().permissions().mode();
        assert_eq!(mode & 0o111, 0o111, "{preset}");
    }
}
