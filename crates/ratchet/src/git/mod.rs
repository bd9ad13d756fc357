//! The only room that touches git, through libgit2: no `git` process, no hooks, nothing pushed.

mod branches;
mod changes;
mod durable;
mod worktree;

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

pub(crate) use branches::Hunk;
pub use changes::{Change, ChangeKind};
pub use git2::Oid;
use git2::{ErrorCode, FileMode, ObjectType, Repository, Signature, Tree, TreeWalkMode};
pub use worktree::{Of, Worktree, open_up, remove};

use crate::{
    config::Editable,
    error::{Doing, Error, Result},
    proposer::Edit,
    state::Tag,
};

/// The user's repository. Its files, branch and index are written by nothing here but
/// [`Repo::set_files`], which a `try` and a `sync` call.
pub struct Repo {
    repo: Repository,
    root: PathBuf,
}

/// One file of a commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The blob.
    pub id: Oid,
    /// As git stores it: 0o100644, 0o100755, 0o120000 for a link, 0o160000 for a submodule.
    pub mode: i32,
}

/// Files of a commit by path.
pub type Files = BTreeMap<PathBuf, Entry>;

impl Repo {
    /// Opens the repository whose root is `root`. Exit code 2 when there is none.
    pub fn open(root: &Path) -> Result<Self> {
        durable::enable();
        let repo = Repository::discover(root).map_err(|error| match error.code() {
            ErrorCode::NotFound => Error::usage("not a git repository")
                .at(root)
                .hint("run `git init` and commit your files first"),
            ErrorCode::Owner => {
                Error::usage("git does not trust this repository: it belongs to another user")
                    .at(root)
                    .hint(format!("git config --global --add safe.directory {}", root.display()))
            }
            _ => Error::usage("cannot open the git repository").at(root).because(error),
        })?;
        let Some(workdir) = repo.workdir().map(Path::to_path_buf) else {
            return Err(Error::usage("this git repository is bare")
                .at(root)
                .hint("run ratchet in a clone with files"));
        };
        let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
        if real(&workdir) != real(root) {
            return Err(Error::usage(format!(
                "a task must be the root of its repository, which is {}",
                workdir.display()
            ))
            .at(root)
            .hint(
                "run there, or give the task a repository of its own: git init && git add . && git commit",
            ));
        }
        Ok(Self { repo, root: root.to_path_buf() })
    }

    /// Makes a repository of the folder, with one commit of all its files.
    pub fn create(root: &Path, message: &str) -> Result<Self> {
        let repo = Repository::init(root)?;
        let mut index = repo.index()?;
        index.add_all(["*"], git2::IndexAddOption::DEFAULT, None)?;
        index.write()?;
        let tree = repo.find_tree(index.write_tree()?)?;
        let who = Signature::now("ratchet", "ratchet@localhost")?;
        repo.commit(Some("HEAD"), &who, &who, message, &tree, &[])?;
        Self::open(root)
    }

    /// Clones the repository's present commit, with its history, into a new folder.
    pub fn clone_to(&self, folder: &Path) -> Result<()> {
        let from = self.root.to_str().ok_or_else(|| Error::usage("the path is not UTF-8").at(&self.root))?;
        Repository::clone(from, folder)
            .map(drop)
            .map_err(|error| Error::internal("could not clone the repository").at(folder).because(error))
    }

    /// The commit that the user's checkout stands on.
    pub fn head(&self) -> Result<Oid> {
        match self.repo.head().and_then(|head| head.peel_to_commit()) {
            Ok(commit) => Ok(commit.id()),
            Err(error) if matches!(error.code(), ErrorCode::UnbornBranch | ErrorCode::NotFound) => {
                Err(Error::usage("the repository has no commit yet")
                    .at(&self.root)
                    .hint("commit the task first: git add . && git commit -m start"))
            }
            Err(error) => Err(Error::usage("cannot read HEAD").at(&self.root).because(error)),
        }
    }

    /// Who commits here, as git is configured; `None` when it is not.
    pub fn identity(&self) -> Option<String> {
        let who = self.repo.signature().ok()?;
        Some(format!("{} <{}>", who.name().ok()?, who.email().ok()?))
    }

    /// The full id of a commit named in the journal.
    pub fn parse(&self, hex: &str) -> Result<Oid> {
        let missing = |error: git2::Error| {
            Error::internal(format!("commit {hex} of the journal is not in the repository"))
                .at(&self.root)
                .because(error)
        };
        let id = Oid::from_str(hex).map_err(missing)?;
        self.repo.find_commit(id).map(|commit| commit.id()).map_err(missing)
    }

    /// Every file of a commit.
    pub fn files(&self, commit: Oid) -> Result<Files> {
        let mut files = Files::new();
        self.tree(commit)?.walk(TreeWalkMode::PreOrder, |folder, entry| {
            if entry.kind() != Some(ObjectType::Tree) {
                let mut path = folder.as_bytes().to_vec();
                path.extend_from_slice(entry.name_bytes());
                files.insert(path_of(&path), Entry { id: entry.id(), mode: entry.filemode() });
            }
            git2::TreeWalkResult::Ok
        })?;
        Ok(files)
    }

    /// The bytes of a file of a commit.
    pub fn blob(&self, entry: Entry) -> Result<Vec<u8>> {
        Ok(self.repo.find_blob(entry.id)?.content().to_vec())
    }

    /// The editable files of a commit with their bytes; links and submodules are left out.
    pub fn editable_files(&self, commit: Oid, editable: &Editable) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let mut found = BTreeMap::new();
        for (path, entry) in self.files(commit)? {
            if editable.contains(&path) && is_plain(entry.mode) {
                found.insert(path, self.blob(entry)?);
            }
        }
        Ok(found)
    }

    /// Where the tag's branch stands; `None` when there is none.
    pub fn branch(&self, tag: &Tag) -> Result<Option<Oid>> {
        match self.repo.refname_to_id(&tag.branch_ref()) {
            Ok(id) => Ok(Some(id)),
            Err(error) if error.code() == ErrorCode::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Creates the tag's branch. Exit code 2 when there is one, or one whose name is in the way.
    pub fn create_branch(&self, tag: &Tag, commit: Oid) -> Result<()> {
        self.point(&tag.branch_ref(), || {
            self.repo.reference(&tag.branch_ref(), commit, false, "ratchet: init").map(drop).map_err(
                |error| {
                    let what = format!("cannot create the branch {}", tag.branch());
                    let hint = if error.code() == ErrorCode::Exists {
                        format!(
                            "choose another --tag; an earlier night's keeps may be on it: to keep them elsewhere, \
                             git branch -m {} NAME",
                            tag.branch()
                        )
                    } else if self.repo.find_reference("refs/heads/ratchet").is_ok() {
                        "a branch named `ratchet` is in the way: rename it".to_owned()
                    } else {
                        return Error::internal(what).at(&self.root).because(error);
                    };
                    Error::usage(what).at(&self.root).because(error).hint(hint)
                },
            )
        })
    }

    /// Has `set` point a ref somewhere, so that no power cut leaves it without what it points to.
    fn point(&self, name: &str, set: impl FnOnce() -> Result<()>) -> Result<()> {
        let common = self.repo.commondir();
        durable::objects(common)?;
        set()?;
        durable::reference(common, name)
    }

    /// Takes away what a killed driver left locked. The caller holds the driver's lock.
    pub fn unlock(&self, tag: &Tag) {
        let common = self.repo.commondir();
        durable::unlock(common, &Of::ALL.map(|of| worktree::record(common, tag, of)), tag);
    }

    /// Moves the tag's branch from one commit to the next, or fails with exit code 2 when it is elsewhere.
    pub fn advance_branch(&self, tag: &Tag, from: Oid, to: Oid) -> Result<()> {
        self.point(&tag.branch_ref(), || {
            match self.repo.reference_matching(&tag.branch_ref(), to, true, from, "ratchet: keep") {
                Ok(_) => Ok(()),
                Err(error) if matches!(error.code(), ErrorCode::Modified | ErrorCode::NotFound) => {
                    Err(self.branch_moved(tag, self.branch(tag)?, from))
                }
                Err(error) => Err(error.into()),
            }
        })
    }

    /// Takes the tag's branch back from the tag's own worktrees, where nobody but an agent can have checked it
    /// out: it stands at `champion` again. Whether that was needed. The caller holds the lock.
    pub fn reclaim_branch(&self, tag: &Tag, champion: Oid) -> Result<bool> {
        let mut held = false;
        for record in Of::ALL.map(|of| worktree::record(self.repo.commondir(), tag, of)) {
            let head = fs::read_to_string(record.join("HEAD"));
            if head.is_ok_and(|text| text.trim() == format!("ref: {}", tag.branch_ref())) {
                self.pin(&tag.branch_ref(), champion, "ratchet: taken back from its worktree")?;
                worktree::detach(&record, champion)?;
                held = true;
            }
        }
        Ok(held)
    }

    /// Checks that the branch stands at `champion` and is checked out nowhere. Exit code 2 otherwise.
    pub fn check_branch(&self, tag: &Tag, champion: Oid) -> Result<()> {
        let tip = self.branch(tag)?;
        if tip != Some(champion) {
            return Err(self.branch_moved(tag, tip, champion));
        }
        match self.checked_out(&tag.branch_ref()) {
            Some(head) => Err(Error::usage(format!("the branch {} is checked out", tag.branch()))
                .at(head)
                .hint("switch that checkout to another branch: `git switch main`; look at the champion with `git show` or `ratchet sync`")),
            None => Ok(()),
        }
    }

    fn branch_moved(&self, tag: &Tag, tip: Option<Oid>, champion: Oid) -> Error {
        let branch = tag.branch();
        let what = match tip {
            Some(tip) => format!(
                "the branch {branch} stands at {}, but the champion is {}",
                short(tip),
                short(champion)
            ),
            None => format!("the branch {branch} is gone; the champion is {}", short(champion)),
        };
        Error::usage(what).at(&self.root).hint(format!(
            "put it back with `git branch -f {branch} {}`, or start afresh with --tag",
            short(champion)
        ))
    }

    /// What the user's working tree has changed since `commit`, by content; untracked files included.
    pub fn changes(&self, commit: Oid) -> Result<Vec<Change>> {
        changes::changes(&self.repo, &self.tree(commit)?)
    }

    /// Keeps a commit from being collected: trial `n`'s candidate.
    pub fn keep_ref(&self, tag: &Tag, trial: u64, commit: Oid) -> Result<()> {
        self.pin(&tag.trial_ref(trial), commit, "ratchet: trial")
    }

    /// Keeps the candidate that was made ahead from being collected; one, until the next.
    pub fn keep_ahead(&self, tag: &Tag, commit: Oid) -> Result<()> {
        self.pin(&tag.ahead_ref(), commit, "ratchet: made ahead")
    }

    /// Keeps a commit under a name of its own below `refs/ratchet/`.
    pub fn keep_saved(&self, name: &str, commit: Oid) -> Result<String> {
        let full = format!("refs/ratchet/saved/{name}");
        self.pin(&full, commit, "ratchet: saved")?;
        Ok(full)
    }

    fn pin(&self, name: &str, commit: Oid, why: &str) -> Result<()> {
        self.point(name, || Ok(self.repo.reference(name, commit, true, why).map(drop)?))
    }

    /// A commit of `parent` with `changes` applied, whose blobs are there.
    pub fn commit_changes(&self, parent: Oid, changes: &[Change], message: &str) -> Result<Oid> {
        let tree = changes::apply(&self.repo, &self.tree(parent)?, changes)?;
        self.commit(tree, parent, message)
    }

    /// `commit` with other bytes in some of its files.
    pub fn commit_files(&self, commit: Oid, edits: &[Edit], message: &str) -> Result<Oid> {
        let files = self.files(commit)?;
        let changed = |edit: &Edit| {
            let path = PathBuf::from(&edit.path);
            let mode = files.get(&path).map_or(i32::from(FileMode::Blob), |entry| entry.mode);
            let new = Some(Entry { id: self.repo.blob(edit.text.as_bytes())?, mode });
            Ok(Change { path, kind: ChangeKind::Modified, new })
        };
        let changes: Vec<Change> = edits.iter().map(changed).collect::<Result<_>>()?;
        self.commit_changes(commit, &changes, message)
    }

    /// Paths at which two commits hold different files.
    pub fn differing(&self, a: Oid, b: Oid) -> Result<Vec<PathBuf>> {
        let (a, b) = (self.files(a)?, self.files(b)?);
        let mut paths: Vec<PathBuf> =
            a.keys().chain(b.keys()).filter(|path| a.get(*path) != b.get(*path)).cloned().collect();
        paths.sort();
        paths.dedup();
        Ok(paths)
    }

    /// The id of a commit's files.
    pub fn tree_of(&self, commit: Oid) -> Result<Oid> {
        Ok(self.tree(commit)?.id())
    }

    /// The same files as `commit`, with another message.
    pub fn reword(&self, commit: Oid, message: &str) -> Result<Oid> {
        let old = self.repo.find_commit(commit)?;
        let parent = old.parent_id(0)?;
        self.commit(old.tree_id(), parent, message)
    }

    /// `mine`, which was made from `base`, applied onto `onto`, as a commit of `parent`. `None` when the two
    /// conflict.
    pub fn rebase(&self, base: Oid, mine: Oid, onto: Oid, parent: Oid, message: &str) -> Result<Option<Oid>> {
        let mut index =
            self.repo.merge_trees(&self.tree(base)?, &self.tree(onto)?, &self.tree(mine)?, None)?;
        if index.has_conflicts() {
            return Ok(None);
        }
        let tree = index.write_tree_to(&self.repo)?;
        self.commit(tree, parent, message).map(Some)
    }

    fn commit(&self, tree: Oid, parent: Oid, message: &str) -> Result<Oid> {
        let who = match self.repo.signature() {
            Ok(who) => who,
            Err(_) => Signature::now("ratchet", "ratchet@localhost")?, // no user.name: that must not end a night
        };
        let (tree, parent) = (self.repo.find_tree(tree)?, self.repo.find_commit(parent)?);
        Ok(self.repo.commit(None, &who, &who, message, &tree, &[&parent])?)
    }

    /// Whether two commits hold the same files.
    pub fn same_files(&self, a: Oid, b: Oid) -> Result<bool> {
        Ok(self.tree(a)?.id() == self.tree(b)?.id())
    }

    /// The patch from one commit to another, as `git diff` prints it.
    pub fn patch(&self, from: Oid, to: Oid) -> Result<Vec<u8>> {
        let mut options = git2::DiffOptions::new();
        options.show_binary(true);
        let diff = self.repo.diff_tree_to_tree(
            Some(&self.tree(from)?),
            Some(&self.tree(to)?),
            Some(&mut options),
        )?;
        let mut patch = Vec::new();
        diff.print(git2::DiffFormat::Patch, |_, _, line| {
            if matches!(line.origin(), '+' | '-' | ' ') {
                patch.push(line.origin() as u8);
            }
            patch.extend_from_slice(line.content());
            true
        })?;
        Ok(patch)
    }

    /// Makes the user's editable files equal to those of `commit`; touches no other file and no index.
    ///
    /// A file is only written where it still holds what `known` (a commit) has, so that an edit made
    /// meanwhile is not lost; the paths left alone are returned. `worktree` stands at `commit`.
    pub fn set_files(
        &self,
        commit: Oid,
        editable: &Editable,
        known: Oid,
        worktree: &Worktree,
    ) -> Result<Vec<PathBuf>> {
        let target = self.tree(commit)?;
        let edited: Vec<PathBuf> = self.changes(known)?.into_iter().map(|change| change.path).collect();
        let mut left_alone = Vec::new();
        let mut wanted = Vec::new();
        for change in changes::changes(&self.repo, &target)? {
            if !editable.contains(&change.path) {
                continue;
            }
            if edited.contains(&change.path) {
                left_alone.push(change.path);
                continue;
            }
            match change.kind {
                ChangeKind::Added | ChangeKind::Untracked => self.remove_file(&change.path)?,
                ChangeKind::Modified | ChangeKind::Deleted => wanted.push(change.path),
            }
        }
        // what git does not know, in the place of a file or of its folder, is not ours to remove
        let (free, blocked): (Vec<_>, Vec<_>) = wanted.into_iter().partition(|path| self.is_free(path));
        left_alone.extend(blocked);
        for path in free {
            worktree.lend(&path, &self.root)?;
        }
        Ok(left_alone)
    }

    /// Removes a file of the working tree, and like git the folders that it leaves empty.
    fn remove_file(&self, path: &Path) -> Result<()> {
        let full = self.root.join(path);
        fs::remove_file(&full).doing("remove", &full)?;
        for folder in path.ancestors().skip(1).filter(|folder| !folder.as_os_str().is_empty()) {
            if fs::remove_dir(self.root.join(folder)).is_err() {
                break; // not empty
            }
        }
        Ok(())
    }

    /// Whether a file can be written at `path`: no folder stands there, and no file where a folder must.
    fn is_free(&self, path: &Path) -> bool {
        let at = |path: &Path| fs::symlink_metadata(self.root.join(path));
        !at(path).is_ok_and(|meta| meta.is_dir())
            && path.ancestors().skip(1).all(|folder| at(folder).map_or(true, |meta| meta.is_dir()))
    }

    fn tree(&self, commit: Oid) -> Result<Tree<'_>> {
        Ok(self.repo.find_commit(commit)?.tree()?)
    }
}

/// A commit as the forty digits it is written with.
pub mod as_text {
    use git2::Oid;
    use serde::{Deserialize, Deserializer, Serializer, de::Error};

    /// Writes it.
    pub fn serialize<S: Serializer>(id: &Oid, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(id)
    }

    /// Reads it.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Oid, D::Error> {
        Oid::from_str(&String::deserialize(from)?).map_err(D::Error::custom)
    }
}

/// The change from one text to another as a patch of a file, as `git diff` prints it.
pub fn unified(path: &str, old: &str, new: &str) -> Result<String> {
    let path = Path::new(path);
    let mut patch = git2::Patch::from_buffers(old.as_bytes(), Some(path), new.as_bytes(), Some(path), None)?;
    Ok(String::from_utf8_lossy(&patch.to_buf()?).into_owned())
}

/// The first seven digits.
pub fn short(id: Oid) -> String {
    id.to_string()[..7].to_owned()
}

fn is_plain(mode: i32) -> bool {
    mode == i32::from(FileMode::Blob) || mode == i32::from(FileMode::BlobExecutable)
}

fn path_of(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

fn bytes_of(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(test)]
pub(crate) mod tests;
