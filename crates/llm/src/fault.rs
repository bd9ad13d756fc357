//! What one failed attempt means: which error it is, whether to try again, whether it may be billed.

use std::{fmt, time::Duration};

use genai::{Error as Wire, webc};
use reqwest::{StatusCode, header::HeaderMap};
use serde_json::Value;

use crate::{AskError, key::Key};

/// Characters of a provider's own words in an error.
const SHOWN_CHARS: usize = 200;

/// One failed attempt.
#[derive(Debug)]
pub(crate) struct Fault {
    /// What to tell the caller, where this was the last attempt.
    pub(crate) error: AskError,
    /// Whether another attempt may go better.
    pub(crate) again: bool,
    /// What the provider asks to wait before it.
    pub(crate) wait: Option<Duration>,
    /// Whether the provider may bill it: it had begun to answer.
    pub(crate) billed: bool,
}

/// What an attempt was about, for its messages.
#[derive(Clone, Copy)]
pub(crate) struct About<'a> {
    pub(crate) model: &'a str,
    pub(crate) base_url: &'a str,
    pub(crate) key: Option<&'a Key>,
}

impl Fault {
    /// An attempt that may go better the next time.
    pub(crate) fn down(message: impl Into<String>, billed: bool) -> Self {
        Self { error: AskError::Down(message.into()), again: true, wait: None, billed }
    }

    /// An attempt that would fail again.
    pub(crate) fn lasting(error: AskError, billed: bool) -> Self {
        Self { error, again: false, wait: None, billed }
    }

    /// What genai's error means. `begun`: a part of an answer was seen.
    pub(crate) fn from_wire(error: &Wire, begun: bool, about: About<'_>) -> Self {
        let malformed = |what: &dyn fmt::Display| {
            Self::lasting(AskError::Malformed(plain(&what.to_string(), about)), true)
        };
        match error {
            Wire::HttpError { status, body, headers, .. }
            | Wire::WebModelCall {
                webc_error: webc::Error::ResponseFailedStatus { status, body, headers },
                ..
            } => Self::from_status(*status, body, headers, about),
            Wire::WebModelCall { webc_error: webc::Error::Reqwest(error), .. } => {
                Self::from_reqwest(error, begun, about)
            }
            Wire::WebModelCall {
                webc_error: webc::Error::ResponseFailedInvalidJson { cause, .. }, ..
            } => malformed(cause),
            Wire::WebModelCall {
                webc_error: webc::Error::ResponseFailedNotJson { content_type, .. },
                ..
            } => malformed(&format!("{content_type:?} in place of JSON")),
            Wire::WebStream { error, .. } => {
                if let Some(wire) = error.downcast_ref::<Wire>() {
                    Self::from_wire(wire, begun, about)
                } else if let Some(error) = error.downcast_ref::<reqwest::Error>() {
                    Self::from_reqwest(error, begun, about)
                } else {
                    Self::down(plain(&error.to_string(), about), begun)
                }
            }
            // An error in place of an answer, mid-stream.
            Wire::ChatResponse { body, .. } => Self::down(plain(&message_in(body), about), begun),
            Wire::StreamParse { serde_error, .. } => malformed(serde_error),
            Wire::ChatResponseGeneration { cause, .. } => malformed(cause),
            Wire::JsonValueExt(error) => malformed(error),
            Wire::SerdeJson(error) => malformed(error),
            // What is left fails before anything is sent.
            other => Self::lasting(AskError::Setup(plain(&other.to_string(), about)), false),
        }
    }

    fn from_reqwest(error: &reqwest::Error, begun: bool, about: About<'_>) -> Self {
        let message = plain(&format!("{}: {}", about.base_url, root_cause(error)), about);
        if error.is_builder() {
            return Self::lasting(AskError::Setup(message), false);
        }
        // Without a connection, nobody began anything.
        Self::down(message, begun && !error.is_connect())
    }

    fn from_status(status: StatusCode, body: &str, headers: &HeaderMap, about: About<'_>) -> Self {
        let said =
            serde_json::from_str(body).map_or_else(|_| body.to_owned(), |body: Value| message_in(&body));
        let said = plain(&format!("{}: {said}", status.as_u16()), about);
        match status.as_u16() {
            401 | 403 => Self::lasting(
                AskError::Key {
                    variable: about.key.map_or("no key", Key::source).to_owned(),
                    message: format!("the provider refuses the key: {said}"),
                },
                false,
            ),
            408 | 425 | 429 | 500.. => {
                Self { error: AskError::Down(said), again: true, wait: retry_after(headers), billed: false }
            }
            404 => Self::lasting(
                AskError::Model(plain(&format!("{} at {}: {said}", about.model, about.base_url), about)),
                false,
            ),
            400 if names_unknown_model(body) => {
                Self::lasting(AskError::Model(plain(&format!("{}: {said}", about.model), about)), false)
            }
            _ => Self::lasting(AskError::Rejected(said), false),
        }
    }
}

/// What an error rests on: the outer ones say no more than "builder error".
pub(crate) fn root_cause<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> &'a (dyn std::error::Error + 'static) {
    let mut cause = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause
}

/// Whether a 400 is about the model's name, which providers say in many ways.
fn names_unknown_model(body: &str) -> bool {
    let body = body.to_lowercase();
    ["model_not_found", "model not found", "model not exist", "not a valid model"]
        .iter()
        .any(|phrase| body.contains(phrase))
}

/// The provider's own words in an error's body.
fn message_in(body: &Value) -> String {
    let message = [&body["error"]["message"], &body["message"], &body["error"]];
    let message = message.into_iter().find_map(Value::as_str);
    message.map_or_else(|| body.to_string(), str::to_owned)
}

/// `retry-after-ms`, else `retry-after` in seconds (no provider sends the date form).
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name| headers.get(name)?.to_str().ok()?.parse::<f64>().ok();
    let seconds = number("retry-after-ms").map(|ms| ms / 1000.0).or_else(|| number("retry-after"))?;
    Duration::try_from_secs_f64(seconds).ok()
}

/// One short line without control characters and without the key.
pub(crate) fn plain(text: &str, about: About<'_>) -> String {
    let text = match about.key {
        Some(key) => text.replace(key.secret(), "[key]"),
        None => text.to_owned(),
    };
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words: Vec<&str> = text.split_whitespace().collect();
    words.join(" ").chars().take(SHOWN_CHARS).collect()
}
