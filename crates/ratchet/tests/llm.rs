//! Language models from outside: the real binary, and a local server that speaks the providers' protocols.
//!
//! Oracles: what the server was asked and answered, the journal, git, and the contract of `docs/design.md`.

mod ahead;
mod caps;
mod compatible;
mod down;
mod model;
mod night;
mod protocols;
mod setup;
mod team;
mod untrusted;

use std::{fs, path::Path};

use serde_json::Value;
use standin::{Protocol, Server};

use crate::toy::Toy;

/// The key that every toy here has in its environment.
const KEY: &str = "sk-test-0123456789abcdef";

/// The toy, proposed to by the model at `server`; `proposer` and `llm` are further lines of the two sections.
fn toy(server: &Server, protocol: Protocol, proposer: &str, llm: &str) -> Toy {
    let (provider, variable) = match protocol {
        Protocol::OpenaiChat => ("openai", "OPENAI_API_KEY"),
        Protocol::OpenaiResponses => ("openai-responses", "OPENAI_API_KEY"),
        Protocol::Anthropic => ("anthropic", "ANTHROPIC_API_KEY"),
        Protocol::Gemini | Protocol::Ollama => panic!("no test here speaks {protocol:?}"),
    };
    let url = server.url(protocol);
    Toy::and(&format!(
        "[proposer]\nkind = \"llm\"\n{proposer}\n[proposer.llm]\nprovider = \"{provider}\"\n\
         model = \"model-1\"\nbase_url = \"{url}\"\nmax_output_tokens = 1000\n{llm}\n"
    ))
    .env(variable, KEY)
}

/// One that asks over OpenAI's chat completions, alone.
fn chat(server: &Server, proposer: &str, llm: &str) -> Toy {
    toy(server, Protocol::OpenaiChat, proposer, llm)
}

/// The journal's events of one kind.
fn events(toy: &Toy, tag: &str, kind: &str) -> Vec<Value> {
    let journal = toy.read(&format!(".ratchet/tags/{tag}/journal.jsonl"));
    let events = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    events.filter(|event| event["event"] == kind).collect()
}

/// What came of the proposals that led to no trial, as (kind, reason).
fn in_vain(toy: &Toy) -> Vec<(String, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let nothing = events(toy, "bar", "no_proposal");
    nothing.iter().map(|event| (text(&event["kind"]), text(&event["reason"]))).collect()
}

/// The calls recorded in a folder of the tag `bar`, and below it.
fn calls(toy: &Toy, folder: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for path in files(&toy.path(&format!(".ratchet/tags/bar/{folder}"))) {
        let name = path.file_name().unwrap().to_str().unwrap();
        if name.starts_with("calls") {
            let text = fs::read_to_string(&path).unwrap();
            found.extend(text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()));
        }
    }
    found
}

/// All plain files below a folder, in order.
fn files(folder: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return found };
    for entry in entries.map(Result::unwrap) {
        match entry.file_type().unwrap() {
            kind if kind.is_dir() => found.extend(files(&entry.path())),
            kind if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
    found.sort();
    found
}

/// `proposal.json` of a trial of the tag `bar`.
fn proposal(toy: &Toy, trial: u64) -> Value {
    serde_json::from_str(&toy.read(&format!(".ratchet/tags/bar/trials/{trial:04}/proposal.json"))).unwrap()
}
