//! Files as a user may write them; what is right is said by the contract.

use std::fs;

use super::{check::referees, *};

/// Compiled patterns, for tests of other rooms.
pub(crate) fn editable(patterns: &[&str]) -> Editable {
    let list = patterns.iter().map(|p| format!("{p:?}")).collect::<Vec<_>>().join(", ");
    read(&TOY.replace("\"cand/**\"", &list)).unwrap().editable
}

const TOY: &str = "[task]\nname = \"toy\"\neditable = [\"cand/**\"]\n[metric]\nname = \"loss\"\n[score]\ncommand = [\"python3\", \"score.py\"]\n";

fn read(text: &str) -> Result<Task> {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join(FILE), text).unwrap();
    Task::read(dir.path())
}

fn message(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

#[test]
fn a_short_file_gets_the_documented_defaults() {
    let task = read(TOY).unwrap();
    assert_eq!(task.metric.goal, Goal::Minimize);
    assert_eq!(task.stop.max_crashes_in_a_row, 20);
    assert_eq!(task.proposer.repairs, 2);
    assert!(task.build.is_none() && task.fit.is_none() && !task.score.exam);
    assert!(task.editable().contains(Path::new("cand/deep/x.txt")));
    assert!(!task.editable().contains(Path::new("score.py")));
}

#[test]
fn an_unknown_key_is_named_with_its_line_and_the_known_ones() {
    let text = format!("{TOY}metrik = 3\n");
    let error = message(&text);
    assert!(error.contains("line 8") && error.contains("metrik") && error.contains("timeout_s"), "{error}");
    let error = message(&format!("{TOY}\n[metrik]\nname = 'x'\n"));
    assert!(error.contains("line 9") && error.contains("metrik") && error.contains("sandbox"), "{error}");
}

#[test]
fn own_files_inside_editable_are_refused() {
    for pattern in ["*", "**", "program.md", "ratchet.toml"] {
        let error = message(&TOY.replace("cand/**", pattern));
        assert!(error.contains("line 3") && error.contains("takes in"), "{pattern}: {error}");
    }
}

#[test]
fn a_pattern_without_a_match_and_a_referee_inside_are_refused_by_line() {
    let dir = tempfile::tempdir().unwrap();
    let tracked = |paths: &[&str]| paths.iter().map(std::path::PathBuf::from).collect::<Vec<_>>();
    fs::write(dir.path().join("score.py"), "").unwrap();
    fs::write(dir.path().join(FILE), TOY).unwrap();
    let task = Task::read(dir.path()).unwrap();
    let error = task.check_files(dir.path(), &tracked(&["score.py"])).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("matches no committed file"), "{error}");
    task.check_files(dir.path(), &tracked(&["score.py", "cand/x"])).unwrap();
    let error = task.check_files(dir.path(), &tracked(&["cand/x"])).unwrap_err().to_string();
    assert!(error.contains("not committed"), "{error}");

    fs::write(dir.path().join(FILE), TOY.replace("cand/**", "*.py")).unwrap();
    let task = Task::read(dir.path()).unwrap();
    let error = task.check_files(dir.path(), &tracked(&["score.py"])).unwrap_err().to_string();
    assert!(error.contains("line 3") && error.contains("referee"), "{error}");
}

#[test]
fn inputs_of_a_referee_may_be_editable() {
    let words = |command: &str| referees(&command.split(' ').map(str::to_owned).collect::<Vec<_>>());
    assert_eq!(words("python3 -u score.py cand/x.txt"), ["python3", "score.py"]);
    assert_eq!(words("./score.sh cand/x.txt"), ["score.sh"]);
    assert_eq!(words("python3 -m judge.main cand/x"), ["python3", "judge/main.py"]);
    assert_eq!(words("sh -c cat cand/x.txt"), ["sh"]);
}

#[test]
fn the_contract_holds_what_decides_a_value_and_nothing_else() {
    let base = read(TOY).unwrap().contract();
    assert_eq!(base, read(&format!("{TOY}[stop]\nmax_crashes_in_a_row = 3\n")).unwrap().contract());
    assert_ne!(base, read(&TOY.replace("\"loss\"", "\"loss\"\ngoal = \"maximize\"")).unwrap().contract());
    assert_ne!(base, read(&format!("{TOY}[accept]\nrule = \"strict\"\n")).unwrap().contract());
}

#[test]
fn a_proposer_that_cannot_work_is_named_before_anything_runs() {
    let llm = "[proposer.llm]\nprovider = \"anthropic\"\n";
    let cases = [
        ("[proposer]\nusd_per_day = -1.0\n", "usd_per_day"),
        ("[proposer]\nusd_per_day = nan\n", "usd_per_day"),
        ("[proposer]\nnight = \"\"\n", "night is empty"),
        ("[proposer]\nkind = \"llm\"\n", "no [proposer.llm]"),
        ("[proposer]\nkind = \"replay\"\n", "no recorded night"),
        (&format!("{llm}model = \" \"\n"), "model is empty"),
        (&format!("{llm}model = \"m\"\ncontext_tokens = 0\n"), "context_tokens is 0"),
        (&format!("{llm}model = \"m\"\ntimeout_s = 18446744073709551615\n"), "timeout_s"),
        (&format!("{llm}model = \"m\"\nkey_variable = \"A\"\nkey_file = \"f\"\n"), "both key_variable"),
        (&format!("{llm}model = \"m\"\nkey_file = \"\"\n"), "key_file is empty"),
        (&format!("{llm}model = \"m\"\nkey_variable = \"\"\n"), "no name of an environment variable"),
        ("[proposer.agent]\ncommand = [\"x\"]\ntimeout_s = 9223372036854775807\n", "a week"),
        ("[proposer.agent]\ncommand = [\"x\"]\nsettings = [\"/\"]\n", "settings"),
        ("[proposer.agent]\ncommand = [\"x\"]\nsettings = [\"~/\"]\n", "settings"),
        ("[proposer.agent]\ncommand = [\"x\"]\nsettings = [\"~/../..\"]\n", "settings"),
        ("[proposer.agent]\ncommand = [\"x\"]\nsettings = [\"\"]\n", "settings"),
    ];
    for (text, words) in cases {
        let error = message(&format!("{TOY}{text}"));
        assert!(error.contains(words) && error.contains("[proposer"), "{text}: {error}");
    }
    let pasted = message(&format!("{TOY}{llm}model = \"m\"\nkey_variable = \"sk-ant-0123-secret\"\n"));
    assert!(!pasted.contains("0123"), "a key in its place is not repeated: {pasted}");
    read(&format!("{TOY}[proposer.agent]\ncommand = [\"x\"]\nsettings = [\"~/.x\", \"/opt/x/\"]\n")).unwrap();
}
