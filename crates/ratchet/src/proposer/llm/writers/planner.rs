//! The planner: picks one direction, says why, and what is to be expected of it.

use ::llm::Turn;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::{asker::Asker, refused};
use crate::proposer::{Proposal, ProposeError, context::line};

/// The one experiment to make next.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct Plan {
    /// Why it should help, from what is known.
    hypothesis: String,
    /// What to change where, precisely, for whoever writes the edit.
    #[expect(dead_code, reason = "stays in the conversation, where the engineer reads it")]
    plan: String,
    /// One line for the list of trials: what changes, with old and new values.
    description: String,
    /// One word for the kind of change, such as optimizer, schedule, architecture, initialization, throughput or
    /// simplification; a word used before where it fits.
    category: String,
    /// The change of the metric that you expect, in its own sign: negative is lower; null where you cannot say.
    expected_delta: Option<f64>,
}

impl Plan {
    pub(super) fn proposal(self) -> Proposal {
        Proposal {
            description: line(&self.description, 160),
            hypothesis: line(&self.hypothesis, 600),
            category: line(&self.category, 40),
            expected_delta: self.expected_delta,
            ..Proposal::default()
        }
    }
}

/// Begins a conversation with everything that is known; it goes on with the edit.
pub(super) fn plan(
    asker: &mut Asker<'_>,
    system: &str,
    turns: &mut Vec<Turn>,
    known: &str,
) -> Result<Plan, ProposeError> {
    let text = format!(
        "{known}# Now: the plan\n\nChoose the one experiment to make next and describe it. Do not write code yet."
    );
    asker.ask("plan", system, turns, text).map_err(refused)
}
