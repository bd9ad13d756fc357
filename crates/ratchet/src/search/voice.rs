//! The model that is asked about the search, and the record of what was said.

use std::{path::PathBuf, time::Instant};

use ::llm::{Answer, AskError, Call, Model, Turn, ask_as};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use super::evidence::{Evidence, Ground};
use crate::{
    error::{Error, Result},
    proposer::Usage,
    runlog::plain,
    secrets::secrets,
    state::write_atomic,
};

/// Bytes a token, at least, in English and JSON.
const BYTES_PER_TOKEN: usize = 3;
/// The system text of a folder's calls.
const SYSTEM_FILE: &str = "system.md";

/// The model, and how much may be said to it.
pub struct Voice<'m> {
    /// Who answers.
    pub model: &'m mut dyn Model,
    /// Tokens that an answer may have.
    pub max_output_tokens: u32,
    /// Tokens that it can read at once.
    pub context_tokens: u32,
}

impl Voice<'_> {
    /// The evidence in half of what is left beside `taken` bytes; the rest is for the conversation. `Err` says in
    /// one line that there is too little.
    pub(super) fn evidence(&self, ground: &Ground<'_>, taken: usize) -> Result<String, Unheard> {
        let all = self.context_tokens as usize * BYTES_PER_TOKEN;
        Evidence::of(ground).block(all.saturating_sub(taken) / 2).ok_or_else(|| {
            Unheard::Unanswered(AskError::Setup(format!(
                "the evidence does not fit beside program.md: context_tokens is {}, raise it",
                self.context_tokens
            )))
        })
    }
}

/// Why there is no answer.
#[derive(Debug)]
pub(super) enum Unheard {
    /// What was said could not be stored.
    Unstored(Error),
    /// The model has not answered, or nothing usable.
    Unanswered(AskError),
}

impl From<Error> for Unheard {
    fn from(error: Error) -> Self {
        Self::Unstored(error)
    }
}

impl From<AskError> for Unheard {
    fn from(error: AskError) -> Self {
        Self::Unanswered(error)
    }
}

/// One question as it was asked, and what was answered.
#[derive(Debug, Serialize, Deserialize)]
struct Exchange {
    purpose: String,
    model: String,
    prompt: Vec<Turn>,
    answer: Option<String>,
    truncated: bool,
    error: Option<AskError>,
    tokens: u64,
    usd: Option<f64>,
    seconds: f64,
}

/// Asks a model, and has each question on disk before it is asked, each answer before it is used.
pub(super) struct Scribe<'v, 'm> {
    voice: &'v mut Voice<'m>,
    system: String,
    folder: PathBuf,
    /// The file of the present conversation, and its exchanges: several where an answer had to be asked for again.
    file: String,
    exchanges: Vec<Exchange>,
    used: Usage,
    unstored: Option<Error>,
}

impl<'v, 'm> Scribe<'v, 'm> {
    /// Stores in `folder`; `system` begins every call.
    pub(super) fn new(voice: &'v mut Voice<'m>, folder: PathBuf, system: String) -> Result<Self> {
        write_atomic(&folder.join(SYSTEM_FILE), secrets().redact(&system).as_bytes())?;
        let (file, used) = (String::new(), Usage::default());
        Ok(Self { voice, system, folder, file, exchanges: Vec::new(), used, unstored: None })
    }

    /// Tokens and money of all answers, the unusable ones included.
    pub(super) fn used(&self) -> Usage {
        self.used
    }

    /// An answer of a given shape to one question; stored as `<purpose>.json`.
    pub(super) fn ask_for<T: DeserializeOwned + JsonSchema>(
        &mut self,
        purpose: &str,
        text: String,
    ) -> Result<T, Unheard> {
        self.begin(purpose);
        let (system, turns) = (self.system.clone(), [Turn::User(text)]);
        let max_output_tokens = self.voice.max_output_tokens;
        let call = Call { purpose, system: &system, turns: &turns, schema: None, max_output_tokens };
        let answer = ask_as(self, &call);
        self.unstored.take().map_or(Ok(()), Err)?;
        Ok(answer?.0)
    }

    /// Says `text` and gives the answer, which ends `turns` then; stored as `<name>.json`.
    pub(super) fn say(
        &mut self,
        purpose: &str,
        name: &str,
        turns: &mut Vec<Turn>,
        text: String,
    ) -> Result<Answer, Unheard> {
        self.begin(name);
        turns.push(Turn::User(text));
        let system = self.system.clone();
        let max_output_tokens = self.voice.max_output_tokens;
        let answer = self.ask(&Call { purpose, system: &system, turns, schema: None, max_output_tokens });
        self.unstored.take().map_or(Ok(()), Err)?;
        let answer = answer?;
        turns.push(Turn::Assistant(answer.text.clone()));
        Ok(answer)
    }

    fn begin(&mut self, name: &str) {
        self.file = format!("{name}.json");
        self.exchanges.clear();
    }

    /// Writes the conversation down as it stands.
    fn store(&mut self) -> Result<(), AskError> {
        let path = self.folder.join(&self.file);
        let json = serde_json::to_vec_pretty(&self.exchanges)
            .map_err(|error| AskError::Record(error.to_string()))?;
        write_atomic(&path, &json).map_err(|error| {
            let text = error.to_string();
            self.unstored = Some(error);
            AskError::Record(text)
        })
    }
}

impl Model for Scribe<'_, '_> {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        self.exchanges.push(Exchange {
            purpose: call.purpose.to_owned(),
            model: self.voice.model.name().to_owned(),
            prompt: call.turns.iter().map(without_secrets).collect(),
            answer: None,
            truncated: false,
            error: None,
            tokens: 0,
            usd: None,
            seconds: 0.0,
        });
        self.store()?;
        let began = Instant::now();
        let outcome = self.voice.model.ask(call);
        if let Some(exchange) = self.exchanges.last_mut() {
            exchange.seconds = began.elapsed().as_secs_f64();
            match &outcome {
                Ok(answer) => {
                    let used = Usage { tokens: answer.usage.tokens(), usd: answer.usage.usd };
                    self.used += used;
                    exchange.answer = Some(secrets().redact(&answer.text).into_owned());
                    exchange.truncated = answer.truncated;
                    (exchange.tokens, exchange.usd) = (used.tokens, used.usd);
                }
                Err(error) => exchange.error = Some(error.clone()),
            }
        }
        self.store()?;
        outcome
    }

    fn name(&self) -> &str {
        self.voice.model.name()
    }

    fn lost(&self) -> u32 {
        self.voice.model.lost()
    }
}

fn without_secrets(turn: &Turn) -> Turn {
    let text = secrets().redact(turn.text()).into_owned();
    match turn {
        Turn::User(_) => Turn::User(text),
        Turn::Assistant(_) => Turn::Assistant(text),
    }
}

/// A call without an answer, in one line.
pub(super) fn reason(error: &AskError) -> String {
    plain(&error.to_string(), 300)
}
