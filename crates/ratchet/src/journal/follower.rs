//! A journal that is read while a run appends to it.

use std::{
    io::{Read, Seek, SeekFrom},
    os::unix::fs::MetadataExt,
    path::Path,
};

use super::{Event, LINES};
use crate::{
    error::{Doing, Result},
    history::History,
    plain_file,
};

/// A journal that is read as it grows; of what was read before nothing is read again.
#[derive(Debug, Default)]
pub struct Follower {
    history: History,
    /// Bytes of whole lines that were read, and the file they were in.
    read: u64,
    lines: usize,
    inode: u64,
}

impl Follower {
    /// What it adds up to so far.
    pub fn history(&self) -> &History {
        &self.history
    }

    /// Reads what was added; whether anything was.
    pub fn catch_up(&mut self, path: &Path) -> Result<bool> {
        let mut file = plain_file::open(path).doing("read the journal", path)?;
        let meta = file.metadata().doing("look at the journal", path)?;
        if meta.ino() != self.inode || meta.len() < self.read {
            *self = Self { inode: meta.ino(), ..Self::default() }; // another tag's, or one that began anew
        }
        if meta.len() == self.read {
            return Ok(false);
        }
        let mut text = Vec::new();
        file.seek(SeekFrom::Start(self.read)).doing("read the journal", path)?;
        file.read_to_end(&mut text).doing("read the journal", path)?;
        let (events, whole) = LINES.parse::<Event>(&text, self.lines, path)?;
        let grew = !events.is_empty();
        self.lines += events.len();
        events.into_iter().for_each(|event| self.history.apply(event));
        self.read += whole as u64;
        Ok(grew)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{
        Journal, Status, read,
        tests::{closed, init},
    };

    #[test]
    fn a_follower_knows_what_a_reader_of_the_whole_knows() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("journal.jsonl");
        let mut journal = Journal::create(&path, init()).unwrap();
        let mut follower = Follower::default();
        let known = |follower: &Follower| format!("{:?}", follower.history());
        for trial in 1..5 {
            journal.append(closed(trial, Status::Discard, Some(1.0))).unwrap();
            assert!(follower.catch_up(&path).unwrap() && !follower.catch_up(&path).unwrap());
            assert_eq!(follower.history().trials(), read(&path).unwrap().trials());
            let whole = std::fs::read(&path).unwrap();
            std::fs::write(&path, [&whole[..], b"nonsense\n"].concat()).unwrap();
            let damage = read(&path).unwrap_err().to_string();
            assert_eq!(follower.catch_up(&path).unwrap_err().to_string(), damage);
            std::fs::write(&path, &whole).unwrap();
        }
        // a line that is being written is read when it is whole
        let whole = std::fs::read(&path).unwrap();
        journal.append(closed(5, Status::Keep, Some(0.5))).unwrap();
        let longer = std::fs::read(&path).unwrap();
        std::fs::write(&path, &longer[..whole.len() + 9]).unwrap();
        assert!(!follower.catch_up(&path).unwrap());
        std::fs::write(&path, &longer).unwrap();
        assert!(follower.catch_up(&path).unwrap());
        assert_eq!(follower.history().champion().map(|record| record.trial), Some(5));
        // a journal in its place is read from its beginning
        std::fs::remove_file(&path).unwrap();
        Journal::create(&path, init()).unwrap();
        assert!(follower.catch_up(&path).unwrap());
        assert!(follower.history().trials().is_empty(), "{}", known(&follower));
    }
}
