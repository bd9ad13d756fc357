//! The model that is asked about the search, and the record of what was said.

use ::llm::Model;

/// The model, and how much may be said to it.
pub struct Voice<'m> {
    /// Who answers.
    pub model: &'m mut dyn Model,
    /// What an answer may cost.
    pub max_output_tokens: u32,
    /// What it can read at once.
    pub context_tokens: u32,
}
