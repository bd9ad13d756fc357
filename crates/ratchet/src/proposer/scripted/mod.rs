//! A script in place of a language model, so that a search can be watched and measured without a key.
//!
//! It is asked through the same calls as a model and sees the same prompts. It is no good researcher, on purpose: it
//! has a prior, repeats itself, and heeds advice half of the time, as models have been seen to do. Its dice depend on
//! its name and on what it is told, so that a night with the same trials is the same night.

mod levels;
mod prior;
mod prompt;

use ::llm::{Answer, AskError, Call, Model, Usage};
use rand::{SeedableRng, rngs::StdRng};
use sha2::{Digest, Sha256};

use self::prompt::Prompt;
use crate::search::{
    cycle::SETTINGS,
    research::{CRITIQUE, EXPLORE, GENERATE, SPECIFY},
};

/// Bytes a token, as English and JSON have; only an estimate, so that costs can be compared.
const BYTES_PER_TOKEN: usize = 4;

/// The model of `provider = "scripted"`.
#[derive(Clone, Debug)]
pub struct Scripted {
    name: String,
}

impl Scripted {
    /// `name` gives it its dice.
    pub fn new(name: &str) -> Self {
        Self { name: name.to_owned() }
    }

    /// The same for the same call.
    fn dice(&self, call: &Call<'_>) -> StdRng {
        let mut hash = Sha256::new();
        let told = call.turns.iter().map(::llm::Turn::text);
        for part in [&self.name, call.purpose, call.system].into_iter().chain(told) {
            hash.update(part.len().to_le_bytes());
            hash.update(part);
        }
        StdRng::from_seed(hash.finalize().into())
    }
}

impl Model for Scripted {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        let mut dice = self.dice(call);
        let prompt = Prompt(call);
        let text = match call.purpose {
            "plan" => prior::plan(&prompt, &mut dice),
            "edit" | "mend" => prior::edit(&prompt),
            SETTINGS => levels::settings(&prompt),
            EXPLORE => levels::explore(&prompt),
            CRITIQUE => levels::critique(&prompt),
            SPECIFY => levels::specify(&prompt),
            GENERATE => levels::generate(&prompt),
            other => Err(format!("the scripted model plays no role for {other:?}; use roles = \"solo\"")),
        };
        let text = text.map_err(AskError::Rejected)?;
        let told: usize = call.turns.iter().map(|turn| turn.text().len()).sum();
        let tokens = |bytes: usize| bytes.div_ceil(BYTES_PER_TOKEN) as u64;
        let usage =
            Usage { input: tokens(call.system.len() + told), output: tokens(text.len()), ..Usage::default() };
        Ok(Answer { text, usage, truncated: false })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

#[cfg(test)]
mod tests;
