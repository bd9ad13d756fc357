//! Completions in a real shell, and manual pages in a real `man`.

use std::{
    fs,
    process::{Command, Stdio},
};

use crate::toy::Toy;

fn is_there(program: &str) -> bool {
    let found =
        Command::new(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok();
    if !found {
        eprintln!("skipped: {program} is not installed");
    }
    found
}

/// What bash offers for these words, the last of which is being typed.
fn offered(toy: &Toy, words: &[&str]) -> Vec<String> {
    let script = "eval \"$($1 completions bash)\"; shift; COMP_WORDS=(ratchet \"$@\"); COMP_CWORD=$#; \
                  _ratchet ratchet \"${@: -1}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"; printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut command = Command::new("bash");
    command.args(["--norc", "-c", script, "-", env!("CARGO_BIN_EXE_ratchet")]).args(words);
    let out = command.current_dir(toy.root()).output().unwrap();
    assert!(out.status.success() && out.stderr.is_empty(), "{}", String::from_utf8_lossy(&out.stderr));
    let mut all: Vec<String> = String::from_utf8(out.stdout).unwrap().lines().map(str::to_owned).collect();
    all.sort();
    all
}

#[test]
fn bash_completes_commands_and_flags_that_people_use() {
    if !is_there("bash") {
        return;
    }
    let toy = Toy::no_repository();
    assert_eq!(offered(&toy, &["st"]), ["status", "stop"]);
    assert_eq!(offered(&toy, &["stop", "--n"]), ["--now"]);
    assert_eq!(offered(&toy, &["mechanisms", "en"]), ["enable"]);
    assert_eq!(offered(&toy, &["run", "--proposer", ""]), ["agent", "knobs", "llm", "replay"]);
    let all = offered(&toy, &[""]);
    assert!(
        !all.iter().any(|word| word.contains("forbidden") || word == "ahead"),
        "hidden commands are hidden: {all:?}"
    );
    for shell in ["zsh", "fish", "elvish", "powershell"] {
        assert!(toy.exits(0, &["completions", shell]).stdout.contains("sample"), "{shell}");
    }
}

/// The oracle is man itself, asked to warn.
#[test]
fn every_command_has_a_manual_page_that_man_reads_without_a_warning() {
    let toy = Toy::no_repository();
    toy.exits(0, &["man", "pages/of mine"]);
    let mut pages: Vec<_> =
        fs::read_dir(toy.path("pages/of mine")).unwrap().map(|entry| entry.unwrap().path()).collect();
    pages.sort();
    let names: Vec<&str> = pages.iter().map(|page| page.file_name().unwrap().to_str().unwrap()).collect();
    for name in ["ratchet.1", "ratchet-run.1", "ratchet-sample.1", "ratchet-mechanisms-show.1"] {
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("ahead") || name.contains("forbidden")), "{names:?}");
    assert!(toy.exits(0, &["man"]).stdout.contains(".TH ratchet 1"));
    if !is_there("man") {
        return;
    }
    for page in &pages {
        let mut man = Command::new("man");
        man.args(["--warnings=w", "-E", "UTF-8", "-l"])
            .arg(page)
            .env("LC_ALL", "C.UTF-8")
            .env("MANWIDTH", "80");
        let out = man.output().unwrap();
        let said = String::from_utf8_lossy(&out.stderr);
        assert!(out.status.success() && said.is_empty(), "{}: {said}", page.display());
        assert!(String::from_utf8_lossy(&out.stdout).contains("Examples:"), "{}", page.display());
    }
}
