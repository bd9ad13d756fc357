//! Keys: where they come from, and a holder that does not show them.

use std::{
    fmt, fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use crate::{AskError, Provider};

/// No key is longer than this.
const MOST_BYTES: u64 = 16 * 1024;

/// Where the key is read from, once, when a [`crate::Live`] is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum KeySource {
    /// The provider's own variable, for example `ANTHROPIC_API_KEY`; none for Ollama and compatible servers.
    #[default]
    Provider,
    /// Another environment variable.
    Variable(String),
    /// A plain file that holds the key and nothing else, and that its owner alone may read.
    File(PathBuf),
}

/// A provider's key and where it came from.
pub(crate) struct Key {
    secret: String,
    source: String,
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key(from {})", self.source)
    }
}

impl Key {
    /// Reads the key; `None` for a provider that needs none.
    pub(crate) fn read(source: &KeySource, provider: Provider) -> Result<Option<Self>, AskError> {
        let read = match source {
            KeySource::Provider => match provider.key_variable() {
                Some(variable) => from_variable(variable),
                None => return Ok(None),
            },
            KeySource::Variable(variable) => from_variable(variable),
            KeySource::File(path) => {
                let source = path.display().to_string();
                from_file(path)
                    .and_then(|text| checked(&text, source.clone()))
                    .map_err(|message| (source, message))
            }
        };
        read.map(Some).map_err(|(variable, message)| AskError::Key { variable, message })
    }

    /// The key itself, for the request alone.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// The variable or the file it came from.
    pub(crate) fn source(&self) -> &str {
        &self.source
    }
}

fn from_variable(variable: &str) -> Result<Key, (String, String)> {
    let read = match std::env::var(variable) {
        Ok(text) => checked(&text, variable.to_owned()),
        Err(std::env::VarError::NotPresent) => Err("is not set; export the provider's key in it".to_owned()),
        Err(std::env::VarError::NotUnicode(_)) => Err("does not hold text".to_owned()),
    };
    read.map_err(|message| (variable.to_owned(), message))
}

fn from_file(path: &Path) -> Result<String, String> {
    let about = fs::metadata(path).map_err(|error| error.to_string())?;
    if !about.is_file() || about.len() > MOST_BYTES {
        return Err("is not a file that holds a key".to_owned());
    }
    if about.permissions().mode() & 0o077 != 0 {
        return Err(format!("can be read by others; run \"chmod 600 {}\"", path.display()));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

/// The key in `text`, which has to fit into a header.
fn checked(text: &str, source: String) -> Result<Key, String> {
    let secret = text.trim();
    if secret.is_empty() {
        return Err("is empty".to_owned());
    }
    if !secret.chars().all(|c| c.is_ascii_graphic()) {
        return Err("holds characters that no key has".to_owned());
    }
    Ok(Key { secret: secret.to_owned(), source })
}
