//! Edits as a model writes them: search and replace blocks, or whole files, each under the path of its file.
//!
//! An answer is untrusted text in which blocks stand between prose. Whatever it holds, the worst that comes of
//! it is a file of the given set with other text in it: nothing here touches a disk or runs anything.

mod parse;
mod place;

use std::{
    collections::BTreeMap,
    fmt,
    path::{Component, Path},
    time::Duration,
};

use similar::TextDiff;

pub(super) use self::parse::{Form, parse};
use self::place::{Miss, place};
use crate::{
    config::Editable,
    proposer::context::{line, start},
};

/// Files by path.
pub(super) type Files = BTreeMap<String, String>;

/// The largest file that an edit may leave, bytes: no person would read a larger one.
const LARGEST: usize = 256 << 10;
/// Bytes of a block or of a file that are quoted back to the model.
const QUOTED: usize = 2_000;
/// What a diff may take; a hostile answer has no more.
const DIFF_LIMIT: Duration = Duration::from_secs(2);

/// One change that an answer asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// As written, which need not be a path at all.
    pub(super) path: String,
    pub(super) change: Change,
}

/// What becomes of a file. Texts are whole lines, each with its newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    /// Some lines in place of others. No lines to look for: a new file.
    Replace { search: String, replace: String },
    /// The whole file.
    Whole(String),
}

/// A block that could not be applied, or text that would be one.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Failure {
    /// The file, where the answer names one.
    pub(super) path: Option<String>,
    why: Why,
}

#[derive(Clone, Debug, PartialEq)]
enum Why {
    /// What is wrong with the text itself.
    Malformed(&'static str),
    /// No plain path inside the tree, or not one that may be edited.
    NotEditable,
    NoSuchFile,
    Exists,
    TooLarge,
    Missed {
        search: String,
        miss: Miss,
    },
}

impl Failure {
    pub(super) fn malformed(path: Option<String>, what: &'static str) -> Self {
        Self { path, why: Why::Malformed(what) }
    }

    /// The file that, written whole, could get over it.
    pub(super) fn helped_by_whole_file(&self) -> Option<&str> {
        self.path.as_deref().filter(|_| !matches!(self.why, Why::NotEditable | Why::TooLarge))
    }
}

/// For the model, which is to mend it.
impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = line(self.path.as_deref().unwrap_or("(no path)"), 120);
        match &self.why {
            Why::Malformed(what) => write!(f, "{path}: {what}"),
            Why::NotEditable => write!(f, "{path}: not editable; the edit of it is dropped"),
            Why::NoSuchFile => {
                write!(f, "{path}: there is no such file; a new one needs an empty SEARCH part")
            }
            Why::Exists => {
                write!(f, "{path}: the SEARCH part is empty, which makes a new file, but this one exists")
            }
            Why::TooLarge => write!(f, "{path}: would be larger than {} KiB", LARGEST >> 10),
            Why::Missed { search, miss } => {
                write!(f, "{path}: {miss}\nThe SEARCH part was:\n{}", head(search, QUOTED))
            }
        }
    }
}

/// Applies blocks in order, each to what the ones before it have left. Those that fail change nothing.
pub(super) fn apply(files: &mut Files, blocks: Vec<Block>, editable: &Editable) -> Vec<Failure> {
    blocks.into_iter().filter_map(|block| apply_one(files, block, editable).err()).collect()
}

fn apply_one(files: &mut Files, Block { path, change }: Block, editable: &Editable) -> Result<(), Failure> {
    let inside = |path: &Path| path.components().all(|part| matches!(part, Component::Normal(_)));
    let failed = |why| Failure { path: Some(path.clone()), why };
    if !inside(Path::new(&path)) || !editable.contains(Path::new(&path)) {
        return Err(failed(Why::NotEditable));
    }
    let text = match (change, files.get(&path)) {
        (Change::Whole(text), Some(old)) if old.contains("\r\n") => text.replace('\n', "\r\n"),
        (Change::Whole(text), _) => text,
        (Change::Replace { search, replace }, None) if search.is_empty() => replace.replace("\r\n", "\n"),
        (Change::Replace { .. }, None) => return Err(failed(Why::NoSuchFile)),
        (Change::Replace { search, .. }, Some(old)) if search.is_empty() && !old.is_empty() => {
            return Err(failed(Why::Exists));
        }
        (Change::Replace { search, replace }, Some(old)) => {
            place(old, &search, &replace).map_err(|miss| failed(Why::Missed { search, miss }))?
        }
    };
    if text.len() > LARGEST {
        return Err(failed(Why::TooLarge));
    }
    files.insert(path, text);
    Ok(())
}

/// What changed between two sets of files, as a unified diff.
pub(super) fn diff(before: &Files, after: &Files) -> String {
    let empty = String::new();
    let mut text = String::new();
    for (path, new) in after {
        let old = before.get(path).unwrap_or(&empty);
        if old != new {
            let diff = TextDiff::configure().timeout(DIFF_LIMIT).diff_lines(old, new);
            text += &diff.unified_diff().header(path, path).to_string();
        }
    }
    text
}

/// The first `most` bytes of a text at most, and a mark where it was cut.
pub(super) fn head(text: &str, most: usize) -> String {
    match text.len() <= most {
        true => text.to_owned(),
        false => format!("{}\n[… cut]\n", start(text, most)),
    }
}

#[cfg(test)]
mod tests;
