//! What the documents tell a reader to type exists. The oracle is the program's own help.

use std::{collections::BTreeSet, path::Path, process::Command};

use crate::reference::links::pages;

fn help(args: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_ratchet")).args(args).arg("--help").output().unwrap();
    assert!(output.status.success(), "ratchet {args:?} --help fails");
    String::from_utf8(output.stdout).unwrap()
}

fn document(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Code of a Markdown page, a line each: what stands in backticks or between fences, and lines indented by four.
fn code(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut fenced = false;
    for line in text.lines() {
        if line.trim_start().starts_with("```") {
            fenced = !fenced;
        } else if fenced {
            found.push(line.trim().trim_start_matches("$ "));
        } else if let Some(line) = line.strip_prefix("    ") {
            found.push(line);
        } else {
            found.extend(line.split('`').skip(1).step_by(2));
        }
    }
    found
}

#[test]
fn every_command_and_flag_in_the_documents_exists() {
    let mut seen = BTreeSet::new();
    for page in pages() {
        let page = page.to_str().unwrap();
        let text = document(page);
        for line in code(&text) {
            let Some((_, call)) = line
                .split_once("ratchet -- ")
                .or_else(|| line.trim().split_once("ratchet ").filter(|(b, _)| b.is_empty()))
            else {
                continue;
            };
            let words: Vec<&str> =
                call.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
            let Some(&command) = words.first().filter(|word| word.chars().all(|c| c.is_ascii_lowercase()))
            else {
                continue;
            };
            let help = help(&[command]);
            seen.insert(command.to_owned());
            for flag in words.iter().filter_map(|word| word.trim_start_matches('[').strip_prefix("--")) {
                let name = flag.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
                assert!(help.contains(&format!("--{name}")), "{page}: `ratchet {command}` has no --{name}");
            }
        }
    }
    for command in [
        "run",
        "try",
        "status",
        "show",
        "log",
        "sync",
        "rerun",
        "init",
        "noise",
        "audit",
        "transfer",
        "doctor",
        "hint",
        "pause",
        "resume",
        "stop",
        "brief",
        "record",
        "mcp",
        "sample",
        "completions",
        "man",
    ] {
        assert!(seen.contains(command), "no document shows `ratchet {command}`");
    }
}

#[test]
fn the_settings_in_the_readme_are_settings() {
    let text = document("README.md");
    let blocks = text.split("```toml\n").skip(1).filter_map(|rest| Some(rest.split_once("```")?.0));
    let mut count = 0;
    for block in blocks {
        let toy = crate::toy::Toy::and(block).env("ANTHROPIC_API_KEY", "a-key-of-no-provider-at-all");
        let report = toy.ratchet(&["doctor"]);
        report.says(&["ok    task", "ok    proposer"]);
        count += 1;
    }
    assert!(count > 0);
}

#[test]
fn the_tree_in_the_readme_is_the_tree() {
    let text = document("README.md");
    let (_, tree) = text.split_once("## The tree").unwrap();
    let names = tree.lines().filter_map(|line| line.strip_prefix("    ")?.split_whitespace().next());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut count = 0;
    for name in names {
        assert!(root.join(name).exists(), "README.md names {name}, which does not exist");
        count += 1;
    }
    assert!(count > 8);
}
