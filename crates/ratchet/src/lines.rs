//! Files of JSON lines that are only ever appended to, each line with the version of its format.
//!
//! A last line without its newline was being written when its writer died, and counts for nothing.

use std::path::Path;

use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// One kind of such a file.
pub(crate) struct Lines {
    /// What it is called, with its article.
    pub(crate) name: &'static str,
    /// `was` or `were`, as its name asks for.
    pub(crate) was: &'static str,
    /// The version of the lines written; a newer one is not read.
    pub(crate) version: u32,
    /// What a person can do about a line that is damaged.
    pub(crate) remedy: &'static str,
}

#[derive(Serialize, Deserialize)]
struct Line<T> {
    v: u32,
    #[serde(flatten)]
    record: T,
}

#[derive(Deserialize)]
struct Version {
    v: u32,
}

impl Lines {
    /// A record as a line, with its newline.
    pub(crate) fn line<T: Serialize>(&self, record: &T, path: &Path) -> Result<Vec<u8>> {
        let mut line = serde_json::to_vec(&Line { v: self.version, record }).map_err(|error| {
            Error::internal(format!("could not write {}", self.name)).at(path).because(error)
        })?;
        line.push(b'\n');
        Ok(line)
    }

    /// The records, and the length of the whole lines; `before` lines of the file lie before these.
    ///
    /// Fails naming the line that is damaged.
    pub(crate) fn parse<T: DeserializeOwned>(
        &self,
        text: &[u8],
        before: usize,
        path: &Path,
    ) -> Result<(Vec<T>, usize)> {
        let mut records = Vec::new();
        let mut whole = 0;
        for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if !line.ends_with(b"\n") {
                break;
            }
            let damaged = |error: serde_json::Error| {
                Error::internal(format!("line {} of {} is damaged", before + number + 1, self.name))
                    .at(path)
                    .because(error)
                    .hint(self.remedy)
            };
            let version: Version = serde_json::from_slice(line).map_err(damaged)?;
            if version.v > self.version {
                return Err(Error::usage(format!(
                    "{} {} written by a newer ratchet (format {})",
                    self.name, self.was, version.v
                ))
                .at(path));
            }
            records.push(serde_json::from_slice::<Line<T>>(line).map_err(damaged)?.record);
            whole += line.len();
        }
        Ok((records, whole))
    }
}
