//! Why a call has no answer.

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// Why a call has no answer. Messages are one line of at most 300 characters and hold no key.
#[derive(Clone, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AskError {
    /// Network, 5xx, 429 or time-outs, after the retries: worth asking again later.
    #[error("the provider is down: {0}")]
    Down(String),
    /// The provider cannot be asked as configured: no base URL, no HTTP client.
    #[error("{0}")]
    Setup(String),
    /// The key is missing or refused.
    #[error("{variable}: {message}")]
    Key {
        /// The environment variable, or the file, that holds the key.
        variable: String,
        /// What is wrong with it.
        message: String,
    },
    /// The provider does not know the model.
    #[error("model not found: {0}")]
    Model(String),
    /// A spending cap leaves no room for the call, which was not made.
    #[error("spending cap: {0}")]
    Cap(String),
    /// The provider refuses the request as it is, or what it says breaks off at its content filter.
    #[error("the provider refused the request: {0}")]
    Rejected(String),
    /// The answer is larger than 1 MiB.
    #[error("the answer is larger than 1 MiB")]
    TooLarge,
    /// No text, or not what the protocol or the schema demands.
    #[error("unusable answer: {0}")]
    Malformed(String),
    /// A stop was asked for while waiting.
    #[error("stopped while waiting for an answer")]
    Stopped,
    /// The file of spendings or of recorded calls cannot be used, or does not hold this call.
    #[error("{0}")]
    Record(String),
}

impl AskError {
    /// Names a file that could not be read or written.
    pub(crate) fn file(path: &std::path::Path, error: &std::io::Error) -> Self {
        Self::Record(format!("{}: {error}", path.display()))
    }
}
