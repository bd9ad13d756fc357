//! How a script fails.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::view::Hook;

/// The longest message, in characters: it is shown to a generator and in a table.
const MESSAGE_CHARS: usize = 400;

/// A script that did not do what it should; the trial goes on without it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fault {
    /// What kind of failure.
    pub kind: FaultKind,
    /// The hook that was called; `None` before the first call.
    pub hook: Option<Hook>,
    /// What and where, in one line without control characters.
    pub message: String,
}

/// The kinds of failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// It does not parse, or a hook takes other arguments than it is given.
    Syntax,
    /// It has no hook.
    NoHook,
    /// It threw, or did what the language refuses.
    Thrown,
    /// It used up its operations.
    Operations,
    /// It used up its time.
    Time,
    /// It used up its memory.
    Memory,
    /// Calls in calls or values in values, too deep.
    Depth,
    /// A text, state, answer or script that is too large.
    Size,
    /// An answer of the wrong type, or a number that is not finite.
    Type,
    /// An answer of the right type that is not allowed.
    Illegal,
    /// Two answers to the same question.
    Nondeterministic,
    /// Its process ended, or answered what no script can.
    Died,
}

impl fmt::Display for FaultKind {
    /// The word that it has in the journal.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

impl Fault {
    pub(crate) fn new(kind: FaultKind, message: impl AsRef<str>) -> Self {
        Self { kind, hook: None, message: one_line(message.as_ref()) }
    }

    pub(crate) fn at(self, hook: Hook) -> Self {
        Self { hook: Some(hook), ..self }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.hook {
            Some(hook) => write!(f, "{hook}: {}: {}", self.kind, self.message),
            None => write!(f, "{}: {}", self.kind, self.message),
        }
    }
}

impl std::error::Error for Fault {}

/// A text of a script as one short line: what would steer a terminal or turn text around is a space.
pub(crate) fn one_line(text: &str) -> String {
    let mut line: String =
        text.chars().take(MESSAGE_CHARS).map(|c| if steers(c) { ' ' } else { c }).collect();
    if text.chars().nth(MESSAGE_CHARS).is_some() {
        line.push('…');
    }
    line
}

/// Whether a character is none that one sees: control characters, line and paragraph separators, those that change
/// the direction of text, and the most usual of those without width.
pub(crate) fn steers(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}
