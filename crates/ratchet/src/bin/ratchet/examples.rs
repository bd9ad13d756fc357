//! The command line as a reader meets it: what `args.rs` declares, with an example of each command.

use clap::{Command, CommandFactory};

use crate::args::Cli;

/// Examples of a command, by its words; a line each, what it is for after `#`.
const EXAMPLES: &[(&str, &[&str])] = &[
    (
        "",
        &[
            "ratchet run --trials 3        # three trials, the baseline among them",
            "ratchet status                # where it stands",
            "ratchet report                # the night as a page",
        ],
    ),
    ("init", &["ratchet init --tag deeper --profile laptop"]),
    ("try", &["ratchet try -m \"a warm-up twice as long\"", "ratchet try -m \"tied embeddings\" --json"]),
    (
        "run",
        &[
            "ratchet run --until 07:00                     # a night",
            "ratchet run --trials 3 --profile smoke --tag demo",
            "ratchet run --proposer llm --max-usd 5        # what stands under [proposer.llm] proposes",
        ],
    ),
    ("record", &["ratchet record night.jsonl"]),
    ("sync", &["ratchet sync        # then edit, then: ratchet try -m TEXT"]),
    ("rerun", &["ratchet rerun 7"]),
    ("noise", &["ratchet noise --runs 4"]),
    ("audit", &["ratchet audit", "ratchet audit --tag 2026-11-29"]),
    (
        "sample",
        &[
            "ratchet sample --prompt \"The sea was\" --tokens 100",
            "ratchet sample --temperature 0        # the likeliest token each time",
            "ratchet sample --trial 1 --seed 7     # how the baseline writes, the same each time",
        ],
    ),
    (
        "transfer",
        &[
            "ratchet transfer --budget 30m --depth 12",
            "ratchet transfer --budget 2h --depth 12 --leave-one-out",
        ],
    ),
    ("status", &["ratchet status", "ratchet status --json"]),
    ("mcp", &["claude mcp add research -- ratchet -C /path/of/the/task mcp"]),
    ("show", &["ratchet show 7"]),
    ("log", &["ratchet log", "ratchet log --tag 2026-11-29"]),
    ("report", &["ratchet report", "ratchet report --out ~/night"]),
    ("watch", &["ratchet watch        # q leaves it; the run goes on"]),
    ("review", &["ratchet review", "ratchet review 7 --accept"]),
    ("accept", &["ratchet accept       # what review has accepted, as a branch of its own"]),
    ("schedule", &["ratchet schedule --at 23:00 --until 07:00 --install", "ratchet schedule --remove"]),
    (
        "hint",
        &[
            "ratchet hint \"try a longer warm-up\"",
            "ratchet hint                # what waits",
            "ratchet hint --remove 1",
        ],
    ),
    ("brief", &["ratchet brief", "ratchet brief --suggest"]),
    ("mechanisms", &["ratchet mechanisms", "ratchet mechanisms enable tabu"]),
    ("mechanisms show", &["ratchet mechanisms show tabu"]),
    ("mechanisms enable", &["ratchet mechanisms enable tabu plateau"]),
    ("mechanisms disable", &["ratchet mechanisms disable tabu"]),
    ("mechanisms test", &["ratchet mechanisms test mine.rhai"]),
    ("pause", &["ratchet pause"]),
    ("resume", &["ratchet resume"]),
    ("stop", &["ratchet stop", "ratchet stop --now"]),
    ("ablate", &["ratchet ablate --groups A,D,R --repeats 5 --trials 30 --task sim"]),
    ("doctor", &["ratchet doctor"]),
    (
        "completions",
        &[
            "ratchet completions bash > ~/.local/share/bash-completion/completions/ratchet",
            "ratchet completions zsh > ~/.zfunc/_ratchet",
            "ratchet completions fish > ~/.config/fish/completions/ratchet.fish",
        ],
    ),
    ("man", &["ratchet man ~/.local/share/man/man1        # then: man ratchet"]),
];

/// What is parsed, and shown as help.
pub(crate) fn command() -> Command {
    taught(Cli::command(), "")
}

/// The same without what only the program itself calls.
pub(crate) fn for_people() -> Command {
    let all = command();
    let shown = all.get_subcommands().filter(|sub| !sub.is_hide_set()).cloned();
    let mut bare = Command::new("ratchet").args(all.get_arguments().cloned()).subcommands(shown);
    bare = bare.about(all.get_about().cloned().unwrap_or_default());
    bare = bare.after_help(all.get_after_help().cloned().unwrap_or_default());
    bare.version(env!("CARGO_PKG_VERSION"))
}

/// A command, and all below it, with their examples. `words` are those that lead to it.
fn taught(command: Command, words: &str) -> Command {
    let command = command.mut_subcommands(|sub| {
        let words = format!("{words} {}", sub.get_name());
        taught(sub, words.trim_start())
    });
    match EXAMPLES.iter().find(|(of, _)| *of == words) {
        Some((_, lines)) => command.after_help(format!("Examples:\n  {}", lines.join("\n  "))),
        None => command,
    }
}
