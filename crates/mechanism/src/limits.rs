//! How far a script may go.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// What one script may use. `Default` has the limits that ship; the page names them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Operations of the language in one call; the built-in scripts need a few ten thousand.
    pub operations: u64,
    /// Time for one call, and for the start; the child is killed when it is over.
    pub wall: Duration,
    /// Memory beyond what the child's program itself takes.
    pub memory_bytes: u64,
    /// Calls inside calls, and values inside values of a state or an answer.
    pub depth: usize,
    /// The longest string in a script.
    pub text_bytes: usize,
    /// The longest text in an answer.
    pub answer_bytes: usize,
    /// A state, as JSON.
    pub state_bytes: usize,
    /// A script.
    pub script_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            operations: 2_000_000,
            wall: Duration::from_secs(2),
            memory_bytes: 128 << 20,
            depth: 24,
            text_bytes: 64 << 10,
            answer_bytes: 2000,
            state_bytes: 64 << 10,
            script_bytes: 32 << 10,
        }
    }
}
