//! What stands in a working tree that a commit does not hold.

use std::path::{Path, PathBuf};

use git2::{Delta, DiffOptions, FileMode, Index, IndexEntry, IndexTime, Repository, Tree};

use super::{Entry, bytes_of, path_of};
use crate::error::{Doing, Error, Result};

/// One path that differs, by content or mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Relative to the root.
    pub path: PathBuf,
    /// How.
    pub kind: ChangeKind,
    /// What stands there now; `None` when nothing does.
    pub new: Option<Entry>,
}

/// How a path differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// In both, differently.
    Modified,
    /// Only in the commit.
    Deleted,
    /// Only in the working tree, and known to its index.
    Added,
    /// Only in the working tree, and not ignored.
    Untracked,
}

impl Change {
    /// A symbolic link or a submodule stands there now.
    pub fn is_link(&self) -> bool {
        self.new.is_some_and(|new| !super::is_plain(new.mode))
    }
}

/// Every change of `repo`'s working tree against `tree`; ignored files do not count.
pub(super) fn changes(repo: &Repository, tree: &Tree<'_>) -> Result<Vec<Change>> {
    let mut options = DiffOptions::new();
    options
        .include_untracked(true)
        .recurse_untracked_dirs(true)
        .include_typechange(true)
        .include_typechange_trees(true)
        .ignore_submodules(true)
        .disable_pathspec_match(true);
    let diff = repo.diff_tree_to_workdir_with_index(Some(tree), Some(&mut options))?;
    let root = repo.workdir().ok_or_else(|| Error::internal("the repository has no working tree"))?;
    let mut found = Vec::new();
    for delta in diff.deltas() {
        let Some(bytes) = delta.new_file().path_bytes().or(delta.old_file().path_bytes()) else { continue };
        let path = path_of(bytes.strip_suffix(b"/").unwrap_or(bytes)); // a nested repository ends in a slash
        let old = tree.get_path(&path).ok().filter(|entry| entry.kind() != Some(git2::ObjectType::Tree));
        let old = old.map(|entry| Entry { id: entry.id(), mode: entry.filemode() });
        let full = root.join(&path);
        let new = match std::fs::symlink_metadata(&full) {
            Ok(meta) if meta.is_symlink() => {
                let target = std::fs::read_link(&full).doing("read the link", &full)?;
                Some(Entry { id: repo.blob(&bytes_of(&target))?, mode: FileMode::Link.into() })
            }
            Ok(meta) if meta.is_file() => {
                let executable = std::os::unix::fs::PermissionsExt::mode(&meta.permissions()) & 0o100 != 0;
                let tracks_mode =
                    repo.config().and_then(|config| config.get_bool("core.filemode")).unwrap_or(true);
                let mode = match (tracks_mode, old) {
                    (false, Some(old)) => old.mode,
                    _ if executable => FileMode::BlobExecutable.into(),
                    _ => FileMode::Blob.into(),
                };
                // through git's filters, so that line endings are stored as the repository wants them
                Some(Entry { id: repo.blob_path(&full)?, mode })
            }
            Ok(meta) if meta.is_dir() && old.is_some_and(|old| old.mode == i32::from(FileMode::Commit)) => {
                continue;
            }
            // a folder with a repository of its own inside
            Ok(meta) if meta.is_dir() && full.join(".git").exists() => continue,
            _ => None, // gone, or a socket or the like, which git does not know
        };
        let kind = match (old, new) {
            (Some(old), Some(new)) if old == new => continue,
            (None, None) => continue,
            (Some(_), Some(_)) => ChangeKind::Modified,
            (Some(_), None) => ChangeKind::Deleted,
            (None, Some(_)) if delta.status() == Delta::Untracked => ChangeKind::Untracked,
            (None, Some(_)) => ChangeKind::Added,
        };
        if found.last().is_none_or(|last: &Change| last.path != path) {
            found.push(Change { path, kind, new });
        }
    }
    Ok(found)
}

/// `base` with the changes applied; the new tree's id.
///
/// By way of an index and not of an edited tree, since an index lets a file take a folder's place.
pub(super) fn apply(repo: &Repository, base: &Tree<'_>, changes: &[Change]) -> Result<git2::Oid> {
    let mut index = Index::new()?;
    index.read_tree(base)?;
    for gone in changes.iter().filter(|change| change.new.is_none()) {
        index.remove_path(&gone.path)?;
    }
    for change in changes {
        let Some(new) = change.new else { continue };
        index.add(&entry(&change.path, new))?;
    }
    Ok(index.write_tree_to(repo)?)
}

/// What an index holds of a path; times and sizes, which only a working tree has, are zero.
fn entry(path: &Path, new: Entry) -> IndexEntry {
    let mode = [FileMode::BlobExecutable, FileMode::Link].map(i32::from);
    let mode = if mode.contains(&new.mode) { new.mode } else { FileMode::Blob.into() };
    IndexEntry {
        ctime: IndexTime::new(0, 0),
        mtime: IndexTime::new(0, 0),
        dev: 0,
        ino: 0,
        mode: mode as u32, // positive: one of git's three
        uid: 0,
        gid: 0,
        file_size: 0,
        id: new.id,
        flags: 0,
        flags_extended: 0,
        path: bytes_of(path),
    }
}
