//! What is known of an agent's command line: how it runs without a person, and what its output says.

use std::path::Path;

use serde_json::Value as Json;

use super::{aider, claude, codex, gemini, opencode};
use crate::{config::Preset, exec::End, proposer::Usage};

/// The ways of one agent.
pub(super) struct Tool {
    /// Its command line, in which [`PROMPT`], [`FILES`] and [`TEMPORARY`] are replaced.
    pub(super) command: &'static [&'static str],
    /// What stands in its place where the driver's own sandbox is around it; empty where nothing need.
    pub(super) confined: &'static [&'static str],
    /// The flag that comes before a model's name.
    pub(super) model: &'static str,
    /// The flag that comes before the US dollars which one proposal may cost.
    pub(super) max_usd: Option<&'static str>,
    /// Whether it tells dollars, and not only tokens.
    pub(super) tells_usd: bool,
    /// Where it keeps what it knows of the user, and must be able to write; folders end with `/`.
    pub(super) settings: &'static [&'static str],
    /// Variables that it is given unless the user has set them.
    pub(super) set: &'static [(&'static str, &'static str)],
    /// Variables of an agent that the driver itself may have been started by.
    pub(super) unset: &'static [&'static str],
    /// Reads what a run of it has left.
    pub(super) read: fn(&Output<'_>) -> Said,
}

/// In a command: the path of a file that holds the prompt, which then does not come on stdin.
pub(super) const PROMPT: &str = "{prompt}";
/// In a command: the editable files, one an argument.
pub(super) const FILES: &str = "{files}";
/// In a command: a folder for temporary files.
pub(super) const TEMPORARY: &str = "{tmp}";

impl Preset {
    pub(super) fn tool(self) -> &'static Tool {
        match self {
            Self::Claude => &claude::TOOL,
            Self::Codex => &codex::TOOL,
            Self::Gemini => &gemini::TOOL,
            Self::Aider => &aider::TOOL,
            Self::Opencode => &opencode::TOOL,
        }
    }

    /// What is run.
    pub fn program(self) -> &'static str {
        self.tool().command[0]
    }

    /// Whether it can be told what one proposal may cost.
    pub fn takes_max_usd(self) -> bool {
        self.tool().max_usd.is_some()
    }
}

/// What a run of an agent has left. All of it is untrusted.
pub(super) struct Output<'a> {
    pub(super) end: &'a End,
    /// What it printed to standard output; of a flood, the last part.
    pub(super) out: &'a str,
    /// The same of standard error.
    pub(super) err: &'a str,
    /// Its folder for temporary files.
    pub(super) temporary: &'a Path,
}

impl Output<'_> {
    /// The JSON objects that stand on lines of their own on standard output.
    pub(super) fn events(&self) -> impl DoubleEndedIterator<Item = Json> {
        objects(self.out)
    }
}

/// The JSON objects that stand on lines of their own.
pub(super) fn objects(text: &str) -> impl DoubleEndedIterator<Item = Json> {
    text.lines().filter(|line| line.starts_with('{')).filter_map(|line| serde_json::from_str(line).ok())
}

/// The last JSON object of a text, on one line or several that begin and end with a brace.
pub(super) fn last_object(text: &str) -> Option<Json> {
    let begins = text.match_indices('{').filter(|(at, _)| *at == 0 || text.as_bytes()[at - 1] == b'\n');
    begins.rev().take(64).find_map(|(at, _)| {
        let object = serde_json::Deserializer::from_str(&text[at..]).into_iter().next()?;
        object.ok().filter(Json::is_object)
    })
}

/// The number at a path of keys; absent, negative or odd is 0.
pub(super) fn count(json: &Json, pointer: &str) -> u64 {
    json.pointer(pointer).and_then(Json::as_u64).unwrap_or(0)
}

/// What an agent said.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Said {
    /// `None` where it did not say.
    pub(super) usage: Option<Usage>,
    /// Its last words.
    pub(super) text: Option<String>,
    /// Why it did not end well; an edit that it left counts all the same.
    pub(super) trouble: Option<Trouble>,
}

/// Why an agent did not end well.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Trouble {
    /// It may work later: no network, a provider that is down or limits its rate.
    Down(String),
    /// It cannot work as it is set up: no login, a wrong key, an unknown model.
    SetUp(String),
    /// It met a limit of its own, or its turn failed.
    Ended(String),
}

impl Trouble {
    /// What an error means, by the provider's HTTP status where it is known, else by its words.
    pub(super) fn of(status: Option<u64>, message: &str) -> Self {
        const SET_UP: [&str; 9] = [
            "unauthorized",
            "authenticat",
            "api key",
            "api_key",
            "auth method",
            "logged in",
            "/login",
            "model_not_found",
            "does not exist",
        ];
        const DOWN: [&str; 11] = [
            "connect",
            "network",
            "lookup",
            "resolve",
            "timed out",
            "timeout",
            "rate limit",
            "overloaded",
            "unavailable",
            "error sending request",
            "internal server error",
        ];
        let lower = message.to_lowercase();
        let says = |words: &[&str]| words.iter().any(|word| lower.contains(word));
        let message = message.to_owned();
        match status {
            Some(401 | 403 | 404) => Self::SetUp(message),
            Some(408 | 429 | 500..) => Self::Down(message),
            _ if says(&SET_UP) => Self::SetUp(message),
            _ if says(&DOWN) => Self::Down(message),
            _ => Self::Ended(message),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_is_sorted_by_its_status_then_by_its_words() {
        // messages as the tools printed them
        let set_up = [
            (None, "unexpected status 401 Unauthorized: invalid key, url: http://127.0.0.1/v1/responses"),
            (None, "Not logged in · Please run /login"),
            (Some(404), "not found"),
        ];
        assert!(set_up.iter().all(|(status, text)| matches!(Trouble::of(*status, text), Trouble::SetUp(_))));
        let down = [
            (None, "API Error: Unable to connect to API (ConnectionRefused)"),
            (None, "stream disconnected before completion: failed to lookup address information"),
            (Some(529), "Overloaded"),
        ];
        assert!(down.iter().all(|(status, text)| matches!(Trouble::of(*status, text), Trouble::Down(_))));
        assert_eq!(Trouble::of(Some(400), "too long"), Trouble::Ended("too long".into()));
    }

    #[test]
    fn the_last_object_is_found_behind_other_text_and_may_have_several_lines() {
        let text = "Warning {odd}\n{\"a\": 1}\n{\n  \"b\": {\n    \"c\": 2\n  }\n}\nbye";
        assert_eq!(last_object(text).unwrap()["b"]["c"], 2);
        assert_eq!(last_object("3\n[1]\n\"{}\""), None);
    }
}
