//! `docs/reference/commands.md`: what `--help` says of every command, and the exit codes.

use std::{
    fmt::Write,
    process::{Command, Stdio},
};

use ratchet::error::Kind;
use syn::Item;

use super::{MADE, page, types::Types};
use crate::source::{doc, first};

#[test]
fn the_commands_page_is_what_help_says() {
    let mut text = format!(
        "# Commands\n\n{MADE}\n\nWhat `ratchet COMMAND --help` prints. In a shell, `ratchet completions` and `ratchet man` \
         give completions and manual pages of the same.\n\n## Exit codes\n\n| | |\n|---|---|\n\
         | 0 | done, whatever the verdict; also when a stop rule or Ctrl-C ended a run |\n"
    );
    let types = Types::read();
    let Some(Item::Enum(kinds)) = types.find("Kind", "ratchet::error").map(|found| found.item) else {
        panic!("no Kind")
    };
    let codes =
        [Kind::Internal, Kind::Usage, Kind::Refused, Kind::Environment, Kind::Locked].map(Kind::exit_code);
    assert_eq!(kinds.variants.len(), codes.len());
    for (variant, code) in kinds.variants.iter().zip(codes) {
        let about = first(&doc(&variant.attrs));
        let about =
            about.strip_suffix(&format!(": {code}.")).unwrap_or_else(|| panic!("{about} is not {code}"));
        let about = about.replacen(&about[..1], &about[..1].to_lowercase(), 1);
        let _ = writeln!(text, "| {code} | {about} |");
    }
    text += "| 130 | a second Ctrl-C ended the program at once |\n";
    for (words, help) in all() {
        let title = format!("ratchet {}", words.join(" "));
        let _ = write!(text, "\n## {}\n\n```text\n{}\n```\n", title.trim_end(), help.trim_end());
    }
    page("commands", &text);
}

#[test]
fn every_command_has_an_example_and_fits_into_a_hundred_columns() {
    let mut without = Vec::new();
    for (words, help) in all() {
        let title = words.join(" ");
        match help.split_once("\nExamples:\n") {
            Some((_, examples)) => {
                let start = format!("  ratchet {title}");
                let own = examples
                    .lines()
                    .filter(|line| line.starts_with(start.trim_end()) || line.contains("claude"));
                assert!(own.count() > 0, "ratchet {title}: its examples are of another command");
            }
            None => without.push(title.clone()),
        }
        for line in help.lines() {
            assert!(line.chars().count() <= 100, "ratchet {title} --help: {line}");
        }
    }
    assert!(without.is_empty(), "without `Examples:` in src/bin/ratchet/examples.rs: {without:?}");
}

/// Every command that is shown, and what its help says; `ratchet` itself first.
pub(super) fn all() -> Vec<(Vec<String>, String)> {
    let mut found = Vec::new();
    let mut queue = vec![Vec::new()];
    while !queue.is_empty() {
        let words: Vec<String> = queue.remove(0);
        let help = help(&words);
        let below = help.split_once("\nCommands:\n").map_or("", |(_, rest)| rest);
        let names = below
            .lines()
            .take_while(|line| !line.is_empty())
            .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
        let names = names.filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help");
        queue.splice(0..0, names.map(|name| [&words[..], &[name.to_owned()]].concat()));
        found.push((words, help));
    }
    assert!(found.len() > 20);
    found
}

fn help(words: &[String]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ratchet"));
    command.args(words).arg("--help").env_remove("COLUMNS").stdin(Stdio::null());
    let output = command.output().unwrap();
    assert!(output.status.success(), "ratchet {words:?} --help fails");
    String::from_utf8(output.stdout).unwrap()
}
