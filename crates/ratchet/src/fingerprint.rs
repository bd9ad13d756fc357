//! Hashes of everything protected: in a commit by blob, in the worktree by content.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use prepare::manifest::hex;
use sha2::{Digest, Sha256};

use crate::{config::Editable, git::Files};

/// The two files of the root that are outside the fingerprint: the human's and the driver's.
pub const FREE: [&str; 2] = ["program.md", "results.tsv"];

/// One hash over path, mode and blob of every protected file of a commit.
pub fn protected(files: &Files, editable: &Editable) -> String {
    let mut hash = Sha256::new();
    for (path, entry) in files {
        if editable.contains(path) || FREE.iter().any(|free| path == Path::new(free)) {
            continue;
        }
        let name = path.as_os_str().as_bytes();
        hash.update((name.len() as u64).to_le_bytes());
        hash.update(name);
        hash.update(entry.mode.to_le_bytes());
        hash.update(entry.id.as_bytes());
    }
    hex(&hash.finalize())
}

/// Content hashes of files on disk, remembered while inode, size and times stay the same.
#[derive(Debug, Default)]
pub struct Watcher {
    known: HashMap<PathBuf, (Stamp, [u8; 32])>,
}

/// What the kernel changes when content changes; the change time cannot be set back by its owner.
type Stamp = (u64, u64, u64, u32, i64, i64, i64, i64);

/// Content of each watched file; `None` for one that is gone or no plain file.
pub type Snapshot = BTreeMap<PathBuf, Option<[u8; 32]>>;

impl Watcher {
    /// Hashes `paths` below `root`.
    pub fn snapshot<'a>(&mut self, root: &Path, paths: impl Iterator<Item = &'a Path>) -> Snapshot {
        paths.map(|path| (path.to_path_buf(), self.hash(root, path))).collect()
    }

    fn hash(&mut self, root: &Path, path: &Path) -> Option<[u8; 32]> {
        let full = root.join(path);
        let meta = fs::symlink_metadata(&full).ok()?;
        if meta.is_symlink() {
            let target = fs::read_link(&full).ok()?;
            return Some(Sha256::digest([b"link ", target.as_os_str().as_bytes()].concat()).into());
        }
        if !meta.is_file() {
            return None;
        }
        let stamp = (
            meta.dev(),
            meta.ino(),
            meta.size(),
            meta.mode(),
            meta.mtime(),
            meta.mtime_nsec(),
            meta.ctime(),
            meta.ctime_nsec(),
        );
        if let Some((known, hash)) = self.known.get(path)
            && *known == stamp
        {
            return Some(*hash);
        }
        let mut digest = Sha256::new();
        digest.update(meta.mode().to_le_bytes());
        digest.update(fs::read(&full).ok()?);
        let hash = digest.finalize().into();
        // a write within the clock's grain of the last one leaves the times as they are: too fresh to trust
        let changed = SystemTime::UNIX_EPOCH
            + Duration::new(meta.ctime().max(0) as u64, meta.ctime_nsec().max(0) as u32);
        if changed.elapsed().is_ok_and(|age| age > Duration::from_millis(50)) {
            self.known.insert(path.to_path_buf(), (stamp, hash));
        }
        Some(hash)
    }
}

/// The first path whose content differs.
pub fn difference(before: &Snapshot, after: &Snapshot) -> Option<PathBuf> {
    before.iter().find(|(path, hash)| after.get(*path) != Some(hash)).map(|(path, _)| path.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edit_that_keeps_size_and_modification_time_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("judge");
        fs::write(&path, "+ 1.0").unwrap();
        let old = fs::metadata(&path).unwrap().modified().unwrap();
        let mut watcher = Watcher::default();
        let mut look = || watcher.snapshot(dir.path(), [Path::new("judge")].into_iter());
        let before = look();
        assert_eq!(difference(&before, &look()), None);
        fs::write(&path, "+ 0.0").unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        assert_eq!(difference(&before, &look()), Some("judge".into()));
        fs::remove_file(&path).unwrap();
        assert_eq!(difference(&before, &look()), Some("judge".into()));
    }
}
