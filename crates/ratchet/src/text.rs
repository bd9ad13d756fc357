//! `ratchet sample`: text from a kept model, by its own binary, confined as when it was scored.
//!
//! What comes is contestant's output: it is shown as it comes, without anything that could steer a terminal, and no
//! more of it than the tokens asked for can hold.

use prepare::utf8::take_whole;

use crate::{
    config::{FILE, Step},
    error::{Error, Result},
    git::remove,
    journal::Status,
    measure::{Failure, NoText},
    progress::Observer,
    runlog::harmless,
    session::Session,
};

/// Bytes that one token can stand for.
const MOST_TOKEN_BYTES: usize = 255;

/// What text is asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Wanted {
    /// What it goes on from.
    pub prompt: String,
    /// Tokens at most.
    pub tokens: u32,
    /// 0 takes the likeliest token; 1 draws as the model says.
    pub temperature: f64,
    /// Draw among so many of the likeliest tokens only.
    pub top_k: Option<u32>,
    /// Of the draws.
    pub seed: u64,
    /// A kept trial's model, in place of the champion's.
    pub trial: Option<u64>,
}

impl Wanted {
    /// What is put behind the contract's command; the prompt goes on standard input.
    fn arguments(&self) -> Vec<String> {
        let mut all = vec![
            "--tokens".to_owned(),
            self.tokens.to_string(),
            "--temperature".to_owned(),
            self.temperature.to_string(),
            "--seed".to_owned(),
            self.seed.to_string(),
        ];
        if let Some(k) = self.top_k {
            all.extend(["--top-k".to_owned(), k.to_string()]);
        }
        all
    }
}

impl Session {
    /// Has a kept model write text, and gives `hear` each piece as it comes. False when a stop was asked for.
    ///
    /// Exit code 2 where the task, the tag or the model's binary has no text to give.
    pub fn write_text(
        &mut self,
        wanted: &Wanted,
        hear: &mut dyn FnMut(&str),
        observer: &mut dyn Observer,
    ) -> Result<bool> {
        let Some(step) = self.task.sample.clone() else {
            return Err(Error::usage("this task says nothing of text").at(FILE).hint(
                "give it a [sample] section with a command that writes text with the model in {trial}",
            ));
        };
        let trial = self.model_of(wanted.trial)?;
        self.ensure_data(observer)?;
        let dir = self.dir.path().join("sample");
        let mut shown = Shown { open: Vec::new(), left: most_bytes(wanted), hear };
        let ended = self.with_model(trial, dir.clone(), |bench| {
            bench.text(&step, &wanted.arguments(), &wanted.prompt, &mut |bytes| shown.take(bytes))
        });
        shown.close();
        if dir.exists() {
            remove(&dir)?;
        }
        self.restore()?;
        match ended? {
            Ok(()) => Ok(true),
            Err(NoText::Failed(Failure::Stopped)) => Ok(false),
            Err(NoText::Failed(Failure::Crash(crash))) => Err(Error::internal(crash.reason)),
            Err(NoText::Unknown) => Err(unknown(trial, &step)),
        }
    }

    /// The trial whose model is meant; it is there.
    fn model_of(&self, asked: Option<u64>) -> Result<u64> {
        let trial = match asked {
            Some(trial) => {
                let record = self.history().trial(trial).filter(|record| record.status == Status::Keep);
                record.map(|record| record.trial).ok_or_else(|| {
                    Error::usage(format!("trial {trial} was not kept"))
                        .hint("`ratchet log` lists those that were")
                })?
            }
            None => self.history().champion().map(|record| record.trial).ok_or_else(|| {
                Error::usage("there is no champion yet")
                    .hint("`ratchet run --trials 1` trains the baseline, which is the first")
            })?,
        };
        let model = self.dir.model(trial);
        if !model.join("out").is_dir() {
            return Err(Error::usage(format!("the model of trial {trial} is no longer kept"))
                .at(model)
                .hint("leave --trial out for the champion's, or make it again: `ratchet rerun`"));
        }
        Ok(trial)
    }
}

fn unknown(trial: u64, step: &Step) -> Error {
    let program = step.command.first().map(String::as_str).unwrap_or_default();
    Error::usage(format!("the model of trial {trial} was built before its program could write text"))
        .at(FILE)
        .hint(format!("begin a new tag, whose models can; or see that [sample] is a command of {program}"))
}

/// The most that a text of so many tokens can hold, its prompt included.
fn most_bytes(wanted: &Wanted) -> usize {
    wanted.prompt.len() + (wanted.tokens as usize).saturating_mul(MOST_TOKEN_BYTES)
}

/// Text on its way to a terminal.
struct Shown<'a> {
    /// The beginning of a character.
    open: Vec<u8>,
    /// Bytes that may still come.
    left: usize,
    hear: &'a mut dyn FnMut(&str),
}

impl Shown<'_> {
    fn take(&mut self, bytes: &[u8]) {
        let taken = &bytes[..bytes.len().min(self.left)];
        self.left -= taken.len();
        self.open.extend_from_slice(taken);
        let text = take_whole(&mut self.open);
        self.tell(&text);
    }

    /// What never became a character.
    fn close(mut self) {
        let rest = String::from_utf8_lossy(&std::mem::take(&mut self.open)).into_owned();
        self.tell(&rest);
    }

    fn tell(&mut self, text: &str) {
        let text: String = text.chars().filter(|c| *c != '\r').map(harmless).collect();
        if !text.is_empty() {
            (self.hear)(&text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(pieces: &[&[u8]], left: usize) -> String {
        let mut text = String::new();
        let mut hear = |piece: &str| text.push_str(piece);
        let mut shown = Shown { open: Vec::new(), left, hear: &mut hear };
        pieces.iter().for_each(|piece| shown.take(piece));
        shown.close();
        text
    }

    #[test]
    fn text_keeps_its_lines_and_loses_what_steers_a_terminal() {
        let hostile = "a\tb\r\nc\u{1b}[2J\u{9b}0m\u{7}\u{202e}d\u{feff}\0".as_bytes();
        assert_eq!(shown(&[hostile], 99), "a\tb\nc\u{fffd}[2J\u{fffd}0m\u{fffd}\u{fffd}d\u{fffd}\u{fffd}");
        assert_eq!(shown(&[b"\xe2\x82", b"\xac!\xff", b"\xf0\x9f"], 99), "€!\u{fffd}\u{fffd}");
    }

    #[test]
    fn no_more_comes_than_the_tokens_can_hold() {
        let flood = vec![b'x'; 4096];
        assert_eq!(shown(&[&flood, &flood], 5000).len(), 5000);
        let wanted = Wanted {
            prompt: "ab".to_owned(),
            tokens: 3,
            temperature: 1.0,
            top_k: None,
            seed: 1,
            trial: None,
        };
        assert_eq!(most_bytes(&wanted), 2 + 3 * 255);
    }
}
