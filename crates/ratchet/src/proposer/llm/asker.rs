//! Asks a model within a conversation, and adds up what that costs.

use ::llm::{Answer, AskError, Call, Model, Turn, ask_as};
use schemars::JsonSchema;
use serde::de::DeserializeOwned;

use crate::proposer::Usage;

/// A model, and what it has consumed so far.
pub(super) struct Asker<'m> {
    model: &'m mut dyn Model,
    max_output_tokens: u32,
    used: Usage,
}

impl<'m> Asker<'m> {
    pub(super) fn new(model: &'m mut dyn Model, max_output_tokens: u32) -> Self {
        Self { model, max_output_tokens, used: Usage::default() }
    }

    /// Tokens and money of all calls that were answered.
    pub(super) fn usage(&self) -> Usage {
        self.used
    }

    /// Says `text` and gives the answer, which ends `turns` then.
    pub(super) fn say(
        &mut self,
        purpose: &str,
        system: &str,
        turns: &mut Vec<Turn>,
        text: String,
    ) -> Result<Answer, AskError> {
        turns.push(Turn::User(text));
        let max_output_tokens = self.max_output_tokens;
        let answer = self.model.ask(&Call { purpose, system, turns, schema: None, max_output_tokens })?;
        self.heard(turns, &answer);
        Ok(answer)
    }

    /// The same with an answer of a given shape.
    pub(super) fn ask<T: DeserializeOwned + JsonSchema>(
        &mut self,
        purpose: &str,
        system: &str,
        turns: &mut Vec<Turn>,
        text: String,
    ) -> Result<T, AskError> {
        turns.push(Turn::User(text));
        let max_output_tokens = self.max_output_tokens;
        let (value, answer) =
            ask_as(self.model, &Call { purpose, system, turns, schema: None, max_output_tokens })?;
        self.heard(turns, &answer);
        Ok(value)
    }

    fn heard(&mut self, turns: &mut Vec<Turn>, answer: &Answer) {
        turns.push(Turn::Assistant(answer.text.clone()));
        self.used += Usage { tokens: answer.usage.tokens(), usd: answer.usage.usd };
    }
}
