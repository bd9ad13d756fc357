//! Remembers the SHA-256 of large files by inode, size, mtime and ctime, so that a gigabyte is hashed once.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Files below this are hashed at every opening: it takes milliseconds.
const LARGE: u64 = 32 << 20;

/// Everything about a file that changes with its content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Stamp {
    device: u64,
    inode: u64,
    bytes: u64,
    mtime_ns: i64,
    ctime_ns: i64,
    sha256: String,
}

impl Stamp {
    fn of(meta: &Metadata, sha256: &str) -> Stamp {
        let ns = |seconds: i64, ns: i64| seconds * 1_000_000_000 + ns; // in i64 until the year 2262
        Stamp {
            device: meta.dev(),
            inode: meta.ino(),
            bytes: meta.len(),
            mtime_ns: ns(meta.mtime(), meta.mtime_nsec()),
            ctime_ns: ns(meta.ctime(), meta.ctime_nsec()),
            sha256: sha256.to_owned(),
        }
    }
}

/// The remembered hashes of one profile's files.
#[derive(Debug)]
pub(crate) struct Stamps {
    path: PathBuf,
    known: BTreeMap<String, Stamp>,
    changed: bool,
}

impl Stamps {
    /// Reads `path`; nothing is known when it is missing or unreadable.
    pub(crate) fn read(path: &Path) -> Stamps {
        let text = std::fs::read(path).unwrap_or_default();
        let known = serde_json::from_slice(&text).unwrap_or_default();
        Stamps { path: path.to_owned(), known, changed: false }
    }

    /// The hash of file `name`, if it has not changed since it was remembered.
    pub(crate) fn known(&self, name: &str, meta: &Metadata) -> Option<String> {
        let stamp = self.known.get(name)?;
        (*stamp == Stamp::of(meta, &stamp.sha256)).then(|| stamp.sha256.clone())
    }

    /// Remembers the hash of a large file whose metadata was `meta` before it was hashed.
    pub(crate) fn remember(&mut self, name: &str, meta: &Metadata, sha256: &str) {
        if meta.len() >= LARGE {
            self.known.insert(name.to_owned(), Stamp::of(meta, sha256));
            self.changed = true;
        }
    }

    /// Writes what was learnt. A cache that cannot be written is hashed again next time, which is slow but
    /// right, so failure is no error.
    pub(crate) fn save(&self) {
        if !self.changed {
            return;
        }
        let (Some(dir), Ok(text)) = (self.path.parent(), serde_json::to_vec(&self.known)) else { return };
        if let Ok(mut file) = tempfile::NamedTempFile::new_in(dir)
            && file.write_all(&text).is_ok()
        {
            let _ = file.persist(&self.path);
        }
    }
}
