//! `reviews.jsonl`: every decision of a person about a tag's keeps, the latest of each trial in force.
//!
//! One JSON object a line, appended under a lock of the file itself: a run may be under way, and two people
//! may review at once. A last line without its newline was being written when its writer died, and counts
//! for nothing. Nothing is ever rewritten.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{ErrorKind, Read, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::{
    error::{Doing, Result},
    lines::Lines,
    plain_file,
    state::{TagDir, sync_folder},
};

/// How they are written.
const LINES: Lines = Lines {
    name: "the reviews",
    was: "were",
    version: 1,
    remedy: "restore the file, or remove that line: its decision then counts no more",
};

/// What a person decides of a keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// `ratchet accept` takes it to a branch.
    Accepted,
    /// It is not wanted.
    Rejected,
    /// It was looked at; whether it is wanted is open.
    Deferred,
}

impl Decision {
    /// As it is written for people and tools.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Rejected => "rejected",
            Self::Deferred => "deferred",
        }
    }
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Review {
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// Of which trial.
    pub trial: u64,
    /// Its commit as it was looked at.
    pub commit: String,
    /// What was decided.
    pub decision: Decision,
    /// Why, in the person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Who, as git is configured: `Name <address>`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// The decisions of one tag.
#[derive(Clone, Debug)]
pub struct Reviews {
    path: PathBuf,
}

impl Reviews {
    /// Of a tag; creates nothing.
    pub fn of(tag: &TagDir) -> Self {
        Self { path: tag.path().join("reviews.jsonl") }
    }

    /// The latest decision of each trial; none while there is no file.
    ///
    /// Fails naming the line that is damaged.
    pub fn latest(&self) -> Result<BTreeMap<u64, Review>> {
        Ok(self.all()?.into_iter().map(|review| (review.trial, review)).collect())
    }

    /// Every decision, oldest first.
    pub fn all(&self) -> Result<Vec<Review>> {
        match plain_file::read_whole(&self.path) {
            Ok(text) => LINES.parse(&text, 0, &self.path).map(|(reviews, _)| reviews),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).doing("read the reviews", &self.path),
        }
    }

    /// Writes a decision down; when this returns it is on disk.
    pub fn add(&self, review: Review) -> Result<()> {
        let mut file = self.open()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).doing("read the reviews", &self.path)?;
        let (_, whole) = LINES.parse::<Review>(&text, 0, &self.path)?;
        let line = LINES.line(&review, &self.path)?;
        // whoever wrote half a line held this lock, and is dead
        if whole < text.len() {
            file.set_len(whole as u64).doing("cut the torn end off the reviews", &self.path)?;
        }
        let written = file.write_all(&line).and_then(|()| file.sync_data());
        if written.is_err() {
            let _ = file.set_len(whole as u64); // half a line would be read as damage behind the next one
        }
        written.doing("write the reviews", &self.path)
    }

    /// The file, locked until it is dropped.
    fn open(&self) -> Result<File> {
        let there = match plain_file::open(&self.path) {
            Ok(_) => true,
            Err(error) if error.kind() == ErrorKind::NotFound => false,
            Err(error) => return Err(error).doing("open the reviews", &self.path), // a FIFO would block
        };
        let mut options = OpenOptions::new();
        let file = options.read(true).append(true).create(true).open(&self.path);
        let file = file.doing("open the reviews", &self.path)?;
        if !there {
            sync_folder(self.path.parent().unwrap_or(Path::new(".")))?;
        }
        flock(&file, FlockOperation::LockExclusive)
            .map_err(std::io::Error::from)
            .doing("lock the reviews", &self.path)?;
        Ok(file)
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, thread};

    use super::*;
    use crate::state::{State, Tag};

    fn reviews(dir: &tempfile::TempDir) -> Reviews {
        let tag = State::new(dir.path()).tag(&Tag::parse("t").unwrap());
        fs::create_dir_all(tag.path()).unwrap();
        Reviews::of(&tag)
    }

    fn review(trial: u64, decision: Decision) -> Review {
        let (at, commit) = ("2026-01-01T00:00:00Z".to_owned(), "0".repeat(40));
        Review { at, trial, commit, decision, note: Some("line\none".to_owned()), by: None }
    }

    #[test]
    fn the_latest_decision_is_in_force_and_every_one_is_kept() {
        let dir = tempfile::tempdir().unwrap();
        let reviews = reviews(&dir);
        assert!(reviews.latest().unwrap().is_empty());
        for decision in [Decision::Deferred, Decision::Rejected, Decision::Accepted] {
            reviews.add(review(2, decision)).unwrap();
        }
        assert_eq!(reviews.latest().unwrap()[&2], review(2, Decision::Accepted));
        assert_eq!((reviews.all().unwrap().len(), reviews.latest().unwrap().len()), (3, 1));
    }

    #[test]
    fn a_torn_last_line_counts_for_nothing_and_hides_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let reviews = reviews(&dir);
        reviews.add(review(2, Decision::Accepted)).unwrap();
        let whole = fs::read(&reviews.path).unwrap();
        for torn in [1, 20, whole.len() - 1] {
            fs::write(&reviews.path, [&whole[..], &whole[..torn]].concat()).unwrap();
            assert_eq!(reviews.all().unwrap().len(), 1);
            reviews.add(review(3, Decision::Rejected)).unwrap();
            assert_eq!(reviews.all().unwrap().len(), 2);
        }
    }

    #[test]
    fn damage_is_named_by_line_and_nothing_is_written_behind_it() {
        let dir = tempfile::tempdir().unwrap();
        let reviews = reviews(&dir);
        reviews.add(review(2, Decision::Accepted)).unwrap();
        let whole = fs::read(&reviews.path).unwrap();
        let bad: [&[u8]; 5] = [b"\n", b"{}\n", b"{\"v\":1}\n", b"\xff\xfe\n", b"{\"v\":2}\n"];
        for line in bad {
            let text = [&whole[..], line, &whole[..]].concat();
            fs::write(&reviews.path, &text).unwrap();
            let errors =
                [reviews.latest().unwrap_err(), reviews.add(review(3, Decision::Accepted)).unwrap_err()];
            for error in errors.map(|error| error.to_string()) {
                assert!(error.contains("line 2") || error.contains("newer ratchet"), "{error}");
                assert!(!error.contains('\n'), "{error}");
            }
            assert_eq!(fs::read(&reviews.path).unwrap(), text);
        }
        fs::remove_file(&reviews.path).unwrap();
        fs::create_dir(&reviews.path).unwrap();
        reviews.latest().unwrap_err();
        reviews.add(review(3, Decision::Accepted)).unwrap_err();
    }

    #[test]
    fn two_at_once_lose_no_decision() {
        let dir = tempfile::tempdir().unwrap();
        let reviews = reviews(&dir);
        thread::scope(|scope| {
            for from in [0, 100] {
                let reviews = &reviews;
                scope.spawn(move || {
                    for trial in from..from + 50 {
                        reviews.add(review(trial, Decision::Accepted)).unwrap();
                    }
                });
            }
        });
        assert_eq!(reviews.latest().unwrap().len(), 100);
    }
}
