//! What tokens cost: LiteLLM's file shape, a bundled snapshot, and a user's file over it.

use std::{collections::HashMap, fs, path::Path};

use serde::Deserialize;

use crate::{AskError, Usage};

/// The bundled snapshot; its own first entry says of which day.
const SNAPSHOT: &str = include_str!("../prices.json");
/// Prompts above this many tokens have the `*_above_200k_tokens` prices.
const LONG_PROMPT_TOKENS: u64 = 200_000;

/// US dollars a token, as LiteLLM's `model_prices_and_context_window.json` names them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
pub struct Price {
    #[serde(rename = "input_cost_per_token")]
    input: f64,
    #[serde(rename = "output_cost_per_token")]
    output: f64,
    #[serde(rename = "cache_read_input_token_cost")]
    cached: Option<f64>,
    #[serde(rename = "cache_creation_input_token_cost")]
    written: Option<f64>,
    #[serde(rename = "input_cost_per_token_above_200k_tokens")]
    long_input: Option<f64>,
    #[serde(rename = "output_cost_per_token_above_200k_tokens")]
    long_output: Option<f64>,
    #[serde(rename = "cache_read_input_token_cost_above_200k_tokens")]
    long_cached: Option<f64>,
    #[serde(rename = "cache_creation_input_token_cost_above_200k_tokens")]
    long_written: Option<f64>,
}

impl Price {
    /// What models on one's own machine cost.
    pub const FREE: Self = Self {
        input: 0.0,
        output: 0.0,
        cached: None,
        written: None,
        long_input: None,
        long_output: None,
        long_cached: None,
        long_written: None,
    };

    /// US dollars. Cache reads and writes without a price of their own cost what other input costs.
    pub fn of(&self, usage: &Usage) -> f64 {
        let long = usage.input > LONG_PROMPT_TOKENS;
        let at = |above: Option<f64>, usual: f64| if long { above.unwrap_or(usual) } else { usual };
        let input = at(self.long_input, self.input);
        let output = at(self.long_output, self.output);
        let cached = at(self.long_cached, self.cached.unwrap_or(input));
        let written = at(self.long_written, self.written.unwrap_or(input));
        let plain = usage.input.saturating_sub(usage.cached).saturating_sub(usage.written);
        plain as f64 * input
            + usage.cached as f64 * cached
            + usage.written as f64 * written
            + usage.output as f64 * output
    }

    /// The most that `input` and `output` tokens can cost, whatever the cache does.
    pub fn worst(&self, input: u64, output: u64) -> f64 {
        let plain = Usage { input, output, ..Usage::default() };
        self.of(&plain).max(self.of(&Usage { written: input, ..plain }))
    }
}

/// Prices by model.
#[derive(Clone, Debug)]
pub struct Prices(HashMap<String, Price>);

impl Prices {
    /// The bundled snapshot.
    ///
    /// # Errors
    /// [`AskError::Record`] where the snapshot itself is broken (a test holds it whole).
    pub fn bundled() -> Result<Self, AskError> {
        parse(SNAPSHOT).map(Self).map_err(|error| AskError::Record(format!("bundled prices.json: {error}")))
    }

    /// The bundled snapshot with the entries of `file` over it; entries without both token prices (images,
    /// audio, the sample) are passed over.
    ///
    /// # Errors
    /// [`AskError::Setup`] naming the file, where it cannot be read, is not of the shape, or has a price below 0.
    pub fn with_file(file: &Path) -> Result<Self, AskError> {
        let wrong =
            |error: &dyn std::fmt::Display| AskError::Setup(format!("prices in {}: {error}", file.display()));
        let text = fs::read_to_string(file).map_err(|error| wrong(&error))?;
        let over = parse(&text).map_err(|error| wrong(&error))?;
        let mut prices = Self::bundled()?;
        prices.0.extend(over);
        Ok(prices)
    }

    /// The price of `model`: under its own name, else under a provider's prefix.
    pub fn of(&self, model: &str) -> Option<Price> {
        const PREFIXES: [&str; 5] = ["openrouter", "gemini", "deepseek", "anthropic", "openai"];
        let prefixed = || PREFIXES.iter().find_map(|prefix| self.0.get(&format!("{prefix}/{model}")));
        self.0.get(model).or_else(prefixed).copied()
    }
}

fn parse(text: &str) -> Result<HashMap<String, Price>, serde_json::Error> {
    let entries: HashMap<String, serde_json::Value> = serde_json::from_str(text)?;
    let priced = |entry: &serde_json::Value| {
        ["input_cost_per_token", "output_cost_per_token"].iter().all(|key| entry[key].is_number())
    };
    entries
        .into_iter()
        .filter(|(_, entry)| priced(entry))
        .map(|(model, entry)| {
            let costs = entry.as_object().into_iter().flatten().filter(|(key, _)| key.contains("cost"));
            let mut below =
                costs.filter(|(_, cost)| cost.as_f64().is_some_and(|cost| cost < 0.0)).map(|(key, _)| key);
            match below.next() {
                Some(key) => Err(serde::de::Error::custom(format!("{model}: {key} is below 0"))),
                None => Ok((model, serde_json::from_value(entry)?)),
            }
        })
        .collect()
}
