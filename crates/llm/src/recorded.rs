//! A line for each call made, and playing those lines back without a provider.

use std::{
    collections::VecDeque,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{Answer, AskError, Call, Model, Turn, Usage};

/// One line of `calls.jsonl`.
#[derive(Debug, Serialize, Deserialize)]
struct Line {
    purpose: String,
    model: String,
    /// Hexadecimal; the system text itself is the same for many calls.
    system_sha256: String,
    prompt: Vec<Turn>,
    answer: Option<String>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    usage: Usage,
    /// Retries included.
    seconds: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    error: Option<AskError>,
}

/// A model whose calls are written down, one JSON line each, before their answer is returned.
pub struct Recording<M, R> {
    model: M,
    path: PathBuf,
    redact: R,
}

impl<M: Model, R: Fn(&str) -> String> Recording<M, R> {
    /// Appends to `path`; `redact` goes over every prompt and answer.
    pub fn new(model: M, path: impl Into<PathBuf>, redact: R) -> Self {
        Self { model, path: path.into(), redact }
    }

    fn write(&self, line: &Line) -> std::io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        OpenOptions::new().append(true).create(true).open(&self.path)?.write_all(&bytes)
    }

    fn redacted(&self, turn: &Turn) -> Turn {
        match turn {
            Turn::User(text) => Turn::User((self.redact)(text)),
            Turn::Assistant(text) => Turn::Assistant((self.redact)(text)),
        }
    }
}

impl<M: Model, R: Fn(&str) -> String> Model for Recording<M, R> {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        let began = Instant::now();
        let outcome = self.model.ask(call);
        let answer = outcome.as_ref().ok();
        let line = Line {
            purpose: call.purpose.to_owned(),
            model: self.model.name().to_owned(),
            system_sha256: Sha256::digest(call.system).iter().map(|byte| format!("{byte:02x}")).collect(),
            prompt: call.turns.iter().map(|turn| self.redacted(turn)).collect(),
            answer: answer.map(|answer| (self.redact)(&answer.text)),
            truncated: answer.is_some_and(|answer| answer.truncated),
            usage: answer.map(|answer| answer.usage).unwrap_or_default(),
            seconds: began.elapsed().as_secs_f64(),
            error: outcome.as_ref().err().cloned(),
        };
        self.write(&line).map_err(|error| AskError::file(&self.path, &error))?;
        outcome
    }

    fn name(&self) -> &str {
        self.model.name()
    }

    fn lost(&self) -> u32 {
        self.model.lost()
    }
}

/// The answers of an earlier night, in order, errors included.
#[derive(Debug)]
pub struct Recorded {
    lines: VecDeque<Line>,
    /// Lines given so far.
    given: usize,
    name: String,
}

impl Recorded {
    /// Reads `calls.jsonl`; a last line without its newline was being written when its process died, and is
    /// left out.
    ///
    /// # Errors
    /// [`AskError::Record`] naming the file and the line.
    pub fn read(path: &Path) -> Result<Self, AskError> {
        let text = fs::read_to_string(path).map_err(|error| AskError::file(path, &error))?;
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let parsed = whole.lines().zip(1..).map(|(line, number)| {
            serde_json::from_str(line)
                .map_err(|error| AskError::Record(format!("{} line {number}: {error}", path.display())))
        });
        let lines: VecDeque<Line> = parsed.collect::<Result<_, _>>()?;
        let name = lines.front().map_or_else(|| "recorded".to_owned(), |line: &Line| line.model.clone());
        Ok(Self { lines, given: 0, name })
    }
}

impl Model for Recorded {
    fn ask(&mut self, call: &Call<'_>) -> Result<Answer, AskError> {
        self.given += 1;
        let at = self.given;
        let Some(line) = self.lines.pop_front() else {
            return Err(AskError::Record(format!(
                "the recording ends before call {at}, \"{}\"",
                call.purpose
            )));
        };
        if line.purpose != call.purpose {
            return Err(AskError::Record(format!(
                "call {at} asks for \"{}\" where the recording has \"{}\"",
                call.purpose, line.purpose
            )));
        }
        self.name = line.model;
        match (line.answer, line.error) {
            (_, Some(error)) => Err(error),
            (Some(text), None) => Ok(Answer { text, usage: line.usage, truncated: line.truncated }),
            (None, None) => Err(AskError::Record(format!("call {at} has neither answer nor error"))),
        }
    }

    fn name(&self) -> &str {
        &self.name
    }
}
