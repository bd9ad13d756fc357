//! The worktree in which candidates are built and run: ours alone, reset hard between trials.

use std::{
    collections::HashSet,
    fs::{self, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::{Path, PathBuf},
};

use git2::{Oid, Repository, WorktreeAddOptions, build::CheckoutBuilder};

use super::{Change, Files, Repo, changes};
use crate::{
    error::{Doing, Error, Result},
    plain_file,
    state::{Tag, sync_folder, write_atomic},
};

/// Which of a tag's worktrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Where trials are run.
    Trials,
    /// Where the next proposal is made meanwhile.
    Ahead,
}

impl Of {
    pub(super) const ALL: [Self; 2] = [Self::Trials, Self::Ahead];
}

/// A linked worktree with a detached HEAD.
pub struct Worktree {
    repo: Repository,
    path: PathBuf,
}

impl Worktree {
    /// Opens a worktree of the tag at `path`, creating it when it is missing, damaged, or another repository's.
    ///
    /// The caller holds the lock, or works for who does. The branch must exist.
    pub fn open(user: &Repo, tag: &Tag, of: Of, path: &Path) -> Result<Self> {
        let common = user.repo.commondir().to_path_buf();
        let record = record(&common, tag, of);
        let tip = user.branch(tag)?.ok_or_else(|| Error::internal("the branch vanished"))?;
        detach(&record, tip)?;
        if let Some(repo) = Self::opened(path, &common) {
            return Ok(Self { repo, path: path.to_path_buf() });
        }
        if path.exists() {
            remove(path)?;
        }
        // git's own record of it goes as well, and nothing else: in a copied repository that record points at
        // the original's worktree, which pruning would remove
        if record.exists() {
            remove(&record)?;
        }
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).doing("create", parent)?;
        }
        let branch = user.repo.find_reference(&tag.branch_ref())?;
        let mut options = WorktreeAddOptions::new();
        options.reference(Some(&branch));
        user.repo.worktree(&name(tag, of), path, Some(&options)).map_err(|error| {
            Error::internal("could not create the worktree")
                .at(path)
                .because(error)
                .hint("see `git worktree list`")
        })?;
        let repo = Repository::open(path)?;
        // detached at once: the branch must be nobody's checkout, not even ours
        detach(repo.path(), tip)?;
        Ok(Self { repo, path: path.to_path_buf() })
    }

    pub(super) fn opened(path: &Path, common: &Path) -> Option<Repository> {
        let repo = Repository::open(path).ok()?;
        let same = fs::canonicalize(repo.commondir()).ok()? == fs::canonicalize(common).ok()?;
        let here = fs::canonicalize(repo.workdir()?).ok()? == fs::canonicalize(path).ok()?;
        let index = repo.index().is_ok();
        (same && here && index && repo.is_worktree()).then_some(repo)
    }

    /// Its root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes every file equal to `commit`'s and removes all else, ignored files included: what a run
    /// leaves behind must not reach the next one. `files` are the commit's.
    pub fn restore(&self, commit: Oid, files: &Files) -> Result<()> {
        open_up(&self.path)?; // an agent or a trial may have taken the driver's own rights from it
        self.relink()?;
        clean(&self.path, files)?;
        self.checkout(commit, files)
    }

    /// Makes `.git` the link to this worktree's record again, should an agent have replaced or removed it.
    fn relink(&self) -> Result<()> {
        let link = self.path.join(".git");
        let wanted = format!("gitdir: {}\n", self.repo.path().display().to_string().trim_end_matches('/'));
        if plain_file::read_to_string(&link).is_ok_and(|text| text == wanted) {
            return Ok(());
        }
        if fs::symlink_metadata(&link).is_ok() {
            remove(&link)?;
        }
        write_atomic(&link, wanted.as_bytes())
    }

    /// Makes tracked files equal to `commit`'s, which are `files`.
    pub fn checkout(&self, commit: Oid, files: &Files) -> Result<()> {
        remove_detours(&self.path, files)?;
        detach(self.repo.path(), commit)?;
        let tree = self.repo.find_commit(commit)?.tree()?;
        let mut checkout = CheckoutBuilder::new();
        checkout.force();
        self.repo.checkout_tree(tree.as_object(), Some(&mut checkout))?;
        Ok(())
    }

    /// Copies a file as it stands here, filters applied, to another root: whole or not at all, and in the
    /// place of a link rather than through it.
    ///
    /// Not by libgit2's checkout, which fails where a file of HEAD is a folder here.
    pub(super) fn lend(&self, path: &Path, root: &Path) -> Result<()> {
        let (from, to) = (self.path.join(path), root.join(path));
        let via = self.path.with_file_name("lent");
        let _ = fs::remove_file(&via); // absent, unless a kill left it
        if let Some(folder) = to.parent() {
            fs::create_dir_all(folder).doing("create", folder)?;
        }
        match fs::read_link(&from) {
            Ok(target) => std::os::unix::fs::symlink(target, &via),
            // durable before it takes the place of what stands there
            Err(_) => fs::copy(&from, &via).and_then(|_| fs::File::open(&via)?.sync_all()),
        }
        .doing("copy", &from)?;
        match fs::rename(&via, &to) {
            // `.ratchet/` may be a link to a larger disk
            Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => {
                fs::copy(&from, &to).map(drop)
            }
            renamed => renamed,
        }
        .doing("write", &to)?;
        to.parent().map_or(Ok(()), sync_folder)
    }

    /// What stands here that `commit` does not hold; ignored files do not count.
    pub fn changes(&self, commit: Oid) -> Result<Vec<Change>> {
        let tree = self.repo.find_commit(commit)?.tree()?;
        changes::changes(&self.repo, &tree)
    }

    /// A commit of `parent` with these changes, without moving anything.
    pub fn commit_changes(&self, user: &Repo, parent: Oid, found: &[Change], message: &str) -> Result<Oid> {
        let base = self.repo.find_commit(parent)?.tree()?;
        let tree = changes::apply(&self.repo, &base, found)?;
        user.commit(tree, parent, message)
    }
}

/// What git knows a worktree by.
fn name(tag: &Tag, of: Of) -> String {
    match of {
        Of::Trials => format!("ratchet-{tag}"),
        Of::Ahead => format!("ratchet-{tag}+ahead"), // no tag's name holds a plus
    }
}

/// Where git keeps its record of a worktree.
pub(super) fn record(common: &Path, tag: &Tag, of: Of) -> PathBuf {
    common.join("worktrees").join(name(tag, of))
}

/// Points the HEAD in a worktree's record at `commit`, whatever stands there: after a power cut that may be
/// nothing that git can read, and an agent may have checked out a branch.
pub(super) fn detach(record: &Path, commit: Oid) -> Result<()> {
    match record.is_dir() {
        true => write_atomic(&record.join("HEAD"), format!("{commit}\n").as_bytes()),
        false => Ok(()),
    }
}

/// Removes everything that is not a file of the commit, `.git` aside.
fn clean(root: &Path, files: &Files) -> Result<()> {
    let mut folders: HashSet<&Path> = HashSet::new();
    for path in files.keys() {
        for folder in path.ancestors().skip(1) {
            if !folders.insert(folder) {
                break; // its ancestors are in as well
            }
        }
    }
    let mut queue = vec![PathBuf::new()];
    while let Some(folder) = queue.pop() {
        let full = root.join(&folder);
        for entry in fs::read_dir(&full).doing("list", &full)? {
            let entry = entry.doing("list", &full)?;
            let path = folder.join(entry.file_name());
            let is_dir = entry.file_type().doing("look at", &entry.path())?.is_dir();
            if path == Path::new(".git") || (!is_dir && files.contains_key(&path)) {
                continue;
            }
            if is_dir && folders.contains(path.as_path()) {
                queue.push(path);
            } else if !is_dir || !files.contains_key(&path) {
                remove(&entry.path())?; // a folder that stands for a submodule stays
            }
        }
    }
    Ok(())
}

/// Removes what stands in the place of a file or of a folder of the commit and is neither: libgit2's checkout
/// would write through a link to wherever it leads, and wait for ever at a pipe.
fn remove_detours(root: &Path, files: &Files) -> Result<()> {
    let mut seen: HashSet<&Path> = HashSet::new();
    for path in files.keys() {
        let mut parts: Vec<&Path> = path.ancestors().filter(|part| !part.as_os_str().is_empty()).collect();
        parts.reverse(); // from the top: below a link nothing is looked at
        for part in parts.into_iter().filter(|part| seen.insert(part)) {
            let full = root.join(part);
            let Ok(kind) = fs::symlink_metadata(&full).map(|meta| meta.file_type()) else { continue };
            if !(kind.is_dir() || kind.is_file() && part == path) {
                remove(&full)?;
            }
        }
    }
    Ok(())
}

/// Removes a file or a whole folder: also one whose permissions are in the way, or that is nested deeper than
/// the system can hold folders open or spell a path.
pub fn remove(path: &Path) -> Result<()> {
    let meta = fs::symlink_metadata(path).doing("look at", path)?;
    if !meta.is_dir() {
        return fs::remove_file(path).doing("remove", path);
    }
    let mut lifted = 0;
    while fs::remove_dir_all(path).is_err() {
        let before = lifted;
        lift(path, &mut lifted)?;
        if lifted == before {
            return fs::remove_dir_all(path).doing("remove", path);
        }
    }
    Ok(())
}

/// Makes a folder that others filled one that its owner can read, move and remove: opens up what they closed, and
/// removes what is no file, folder or link, and folders nested deeper than anyone needs.
pub fn open_up(top: &Path) -> Result<()> {
    const LONGEST: usize = 1024; // of a path below `top`; with it the system's own limit is far
    let mut queue = vec![top.to_path_buf()];
    while let Some(path) = queue.pop() {
        let meta = fs::symlink_metadata(&path).doing("look at", &path)?;
        let kind = meta.file_type();
        if kind.is_symlink() {
            continue;
        }
        if !kind.is_dir() && !kind.is_file() || path.as_os_str().len() > top.as_os_str().len() + LONGEST {
            remove(&path)?;
            continue;
        }
        let (mode, least) = (meta.mode(), if kind.is_dir() { 0o700 } else { 0o600 });
        if mode & least != least {
            fs::set_permissions(&path, Permissions::from_mode(mode | least)).doing("open up", &path)?;
        }
        if kind.is_dir() {
            let entries = fs::read_dir(&path).doing("list", &path)?;
            queue.extend(entries.flatten().map(|entry| entry.path()));
        }
    }
    Ok(())
}

/// Opens every folder up, and moves those that lie deep to the top.
fn lift(top: &Path, lifted: &mut u32) -> Result<()> {
    const DEEP: usize = 8;
    let mut queue = vec![(top.to_path_buf(), 0)];
    while let Some((folder, depth)) = queue.pop() {
        fs::set_permissions(&folder, Permissions::from_mode(0o700)).doing("open up", &folder)?;
        for entry in fs::read_dir(&folder).doing("list", &folder)?.flatten() {
            if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                continue;
            }
            if depth < DEEP {
                queue.push((entry.path(), depth + 1));
            } else {
                let to = top.join(format!(".lifted-{lifted}"));
                fs::rename(entry.path(), &to).doing("move", &entry.path())?;
                *lifted += 1;
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_deeper_than_any_path_can_spell_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let top = dir.path().join("top");
        fs::create_dir(&top).unwrap();
        // made from the inside out: a path of its length could not be named
        for level in 0..3_000 {
            let outer = dir.path().join("outer");
            fs::create_dir(&outer).unwrap();
            fs::rename(&top, outer.join(format!("level-{level}"))).unwrap();
            fs::rename(&outer, &top).unwrap();
        }
        remove(&top).unwrap();
        assert!(!top.exists());
    }
}
