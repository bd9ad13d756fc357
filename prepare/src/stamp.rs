//! Remembers the SHA-256 of large files by inode, size, mtime and ctime, so that a gigabyte is hashed once.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

/// Files below this are hashed at every opening: it takes milliseconds.
const LARGE: u64 = 32 << 20;

/// File systems date changes by a clock that ticks some 250 times a second. A file changed this shortly
/// before it was looked at might change again under the same date: it is not remembered yet.
const SETTLED: Duration = Duration::from_millis(50);

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

    /// Remembers the hash of a large file that had `meta` at the time `seen`, before it was hashed.
    pub(crate) fn remember(&mut self, name: &str, meta: &Metadata, seen: SystemTime, sha256: &str) {
        let stamp = Stamp::of(meta, sha256);
        let changed = SystemTime::UNIX_EPOCH + Duration::from_nanos(stamp.ctime_ns.max(0) as u64);
        let settled = seen.duration_since(changed).is_ok_and(|age| age >= SETTLED);
        if meta.len() >= LARGE && settled {
            self.known.insert(name.to_owned(), stamp);
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::FileExt;

    /// Remembers a new sparse file of `bytes` as seen a minute from now.
    fn remembered(dir: &Path, bytes: u64) -> (Stamps, PathBuf) {
        let path = dir.join("tokens");
        File::create(&path).unwrap().set_len(bytes).unwrap();
        let mut stamps = Stamps::read(&dir.join("verified.json"));
        let later = SystemTime::now() + Duration::from_secs(60);
        stamps.remember("tokens", &fs::metadata(&path).unwrap(), later, "aa");
        (stamps, path)
    }

    #[test]
    fn large_files_are_remembered_on_disk_and_small_ones_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let (stamps, path) = remembered(dir.path(), LARGE);
        stamps.save();
        let stamps = Stamps::read(&dir.path().join("verified.json"));
        assert_eq!(stamps.known("tokens", &fs::metadata(&path).unwrap()).as_deref(), Some("aa"));
        let (stamps, path) = remembered(dir.path(), LARGE - 1);
        assert_eq!(stamps.known("tokens", &fs::metadata(&path).unwrap()), None);
    }

    #[test]
    fn a_change_is_noticed_though_size_and_mtime_are_put_back() {
        let dir = tempfile::tempdir().unwrap();
        let (stamps, path) = remembered(dir.path(), LARGE);
        let before = fs::metadata(&path).unwrap();
        let file = File::options().write(true).open(&path).unwrap();
        loop {
            // until the file system's clock has ticked
            file.write_at(b"x", 1000).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
            let now = fs::metadata(&path).unwrap();
            if (now.ctime(), now.ctime_nsec()) != (before.ctime(), before.ctime_nsec()) {
                break;
            }
        }
        let now = fs::metadata(&path).unwrap();
        assert_eq!((now.len(), now.modified().unwrap()), (before.len(), before.modified().unwrap()));
        assert_eq!(stamps.known("tokens", &now), None);
    }

    #[test]
    fn a_file_changed_just_now_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let (mut stamps, path) = remembered(dir.path(), LARGE - 1);
        File::create(&path).unwrap().set_len(LARGE).unwrap();
        let meta = fs::metadata(&path).unwrap();
        stamps.remember("tokens", &meta, meta.modified().unwrap(), "aa");
        assert_eq!(stamps.known("tokens", &meta), None);
    }

    #[test]
    fn rubbish_is_nothing_known() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("verified.json");
        fs::write(&path, "[1, 2").unwrap();
        assert!(Stamps::read(&path).known.is_empty());
    }
}
