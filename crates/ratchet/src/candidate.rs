//! A candidate change: what it touches, and why it may be refused.

use std::{
    collections::BTreeMap,
    fmt, fs,
    io::ErrorKind,
    path::{Component, Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    config::{Editable, Task},
    edit_class::EditClass,
    error::{Doing, Error, Result},
    fingerprint::FREE,
    git::{Change, ChangeKind, Oid, Repo},
    proposer::{Demand, Edit, Proposal},
    runlog::plain,
    scan::Finding,
    search::Use,
    secrets::secrets,
    source::{TreeHash, lines},
};

/// Paths of one change that are written down.
const FILES_NAMED: usize = 50;

/// A change that may be tried.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Candidate {
    /// Its commit, on top of what it was made from.
    #[serde(with = "crate::git::as_text")]
    pub commit: Oid,
    /// The paths that it changes; empty for a baseline. Not written down: a name need not be text.
    #[serde(skip)]
    pub paths: Vec<PathBuf>,
    /// Its editable files by tokens.
    pub source: TreeHash,
    /// Lines of code in its editable files.
    pub lines: u64,
    /// The trial it was made from; `None` for a baseline.
    pub parent: Option<u64>,
    /// Who proposed it.
    pub proposer: String,
    /// What it is meant to do.
    pub proposal: Proposal,
    /// Whether it may be carried when it is promising: one of the loop's, not a person's.
    pub may_carry: bool,
    /// The promising trial that it builds on.
    pub carries: Option<u64>,
    /// The trial whose files an excursion started from.
    pub excursion: Option<u64>,
    /// How deep its edit goes; `None` for a baseline.
    pub class: Option<EditClass>,
    /// Whether it was made while another trial trained.
    pub ahead: bool,
    /// The version of the brief it was proposed under.
    pub program: Option<String>,
    /// What was asked of its proposer.
    pub demand: Demand,
    /// What mechanisms did for it.
    pub uses: Vec<Use>,
}

impl Candidate {
    /// The paths that it changes, as text; of many the first.
    pub(crate) fn files(&self) -> Vec<String> {
        let text = |path: &PathBuf| path.to_string_lossy().into_owned();
        self.paths.iter().take(FILES_NAMED).map(text).collect()
    }

    /// A mended candidate stands in the place of the failed one: what was done for that stays with it, and so do its
    /// words where the proposer says nothing.
    pub(crate) fn stand_for(&mut self, failed: &Self) {
        self.uses.clone_from(&failed.uses);
        if self.proposal.description.is_empty() {
            self.proposal.description = failed.proposal.description.clone();
        }
    }
}

/// Why a candidate is not tried. Its files stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Nothing was changed.
    Empty,
    /// A path is a link, or no plain file.
    Link(PathBuf),
    /// A protected path was changed.
    Protected(PathBuf),
    /// The same source was tried before.
    Duplicate(u64),
    /// A file holds the value of this secret variable.
    Secret(PathBuf, String),
    /// An edit's path does not lie in the tree.
    Path(String),
    /// Its source holds what a candidate may not hold.
    Forbidden(Finding),
    /// It moves a tunable that the settings of the search hold in place.
    Frozen(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = |path: &Path| plain(&path.to_string_lossy(), 120);
        match self {
            Self::Empty => f.write_str("nothing is changed: edit a file that [task] editable names"),
            Self::Link(path) => {
                write!(f, "{} is a link or no plain file; a candidate holds plain files only", shown(path))
            }
            Self::Protected(path) => {
                write!(
                    f,
                    "{} is protected: only what [task] editable names may change; undo that edit",
                    shown(path)
                )
            }
            Self::Duplicate(trial) => {
                write!(f, "the same source was tried as trial {trial}: see `ratchet show {trial}`")
            }
            Self::Forbidden(finding) => write!(f, "{finding}"),
            Self::Frozen(name) => write!(f, "{} is frozen for now; move something else", plain(name, 120)),
            Self::Secret(path, name) => write!(
                f,
                "{} holds the value of {name}, and candidates are kept in git; take it out",
                shown(path)
            ),
            Self::Path(path) => write!(f, "{} is no path inside the task", plain(path, 120)),
        }
    }
}

/// Splits changes into what may be tried; the rest is a refusal.
///
/// Files that git does not track do not matter outside `editable`: no candidate holds them. `free` are
/// paths of the root that are exempt.
pub fn admissible(changes: Vec<Change>, editable: &Editable, free: &[&str]) -> Result<Vec<Change>, Refusal> {
    let mut allowed = Vec::new();
    for change in changes {
        if editable.contains(&change.path) {
            if change.is_link() {
                return Err(Refusal::Link(change.path));
            }
            allowed.push(change);
        } else if change.kind != ChangeKind::Untracked
            && !free.iter().any(|free| change.path == Path::new(free))
        {
            return Err(Refusal::Protected(change.path));
        }
    }
    if allowed.is_empty() { Err(Refusal::Empty) } else { Ok(allowed) }
}

/// The editable files of a commit as the duplicate check and the verdict see them.
pub fn source_of(repo: &Repo, commit: Oid, editable: &Editable) -> Result<(TreeHash, u64)> {
    let files: BTreeMap<String, Vec<u8>> = repo
        .editable_files(commit, editable)?
        .into_iter()
        .map(|(path, bytes)| (path.to_string_lossy().into_owned(), bytes))
        .collect();
    let total = files.iter().map(|(path, bytes)| lines(path, bytes)).sum();
    Ok((TreeHash::of(&files), total))
}

/// How deep the edit of the editable files from one commit to another goes; `None` where nothing of it counts.
pub fn class_of(repo: &Repo, from: Oid, to: Oid, editable: &Editable) -> Result<Option<EditClass>> {
    Ok(EditClass::of(&repo.editable_files(from, editable)?, &repo.editable_files(to, editable)?))
}

/// Writes a proposal's edits into the worktree. Refuses paths that leave it or go through a link.
pub fn write_edits(worktree: &Path, edits: &[Edit], editable: &Editable) -> Result<Result<(), Refusal>> {
    for edit in edits {
        let full = match place_of(worktree, &edit.path, editable) {
            Ok(full) => full,
            Err(refusal) => return Ok(Err(refusal)),
        };
        let folder = full.parent().map_or(Ok(()), fs::create_dir_all);
        match folder.and_then(|()| fs::write(&full, &edit.text)) {
            Ok(()) => {}
            // a folder where a file must be, or a name that no file can have: the edit's fault
            Err(error) if is_of_the_path(&error) => return Ok(Err(Refusal::Path(edit.path.clone()))),
            Err(error) => return Err(error).doing("write the candidate's", &full),
        }
    }
    Ok(Ok(()))
}

/// Removes files from the worktree, under the same rules. One that is not there is refused as well.
pub(crate) fn remove_files(
    worktree: &Path,
    paths: &[String],
    editable: &Editable,
) -> Result<Result<(), Refusal>> {
    for path in paths {
        let full = match place_of(worktree, path, editable) {
            Ok(full) => full,
            Err(refusal) => return Ok(Err(refusal)),
        };
        match fs::remove_file(&full) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound || is_of_the_path(&error) => {
                return Ok(Err(Refusal::Path(path.clone())));
            }
            Err(error) => return Err(error).doing("remove the candidate's", &full),
        }
    }
    Ok(Ok(()))
}

/// Refuses editable files below `root` that hold a secret, before git has stored what they hold: it never forgets.
pub(crate) fn without_secrets(root: &Path, task: &Task) -> Result<(), Refusal> {
    const LARGEST: u64 = 64 << 20; // a key is not looked for in more
    let mut queue: Vec<PathBuf> = task.editable_folders();
    while let Some(inside) = queue.pop() {
        let full = root.join(&inside);
        let Ok(meta) = fs::symlink_metadata(&full) else { continue };
        if meta.is_dir() {
            // what cannot be listed cannot be a candidate's either
            let entries = fs::read_dir(&full).into_iter().flatten().flatten();
            queue.extend(entries.map(|entry| inside.join(entry.file_name())));
        } else if meta.is_file() && meta.len() <= LARGEST && task.editable().contains(&inside) {
            let bytes = fs::read(&full).unwrap_or_default();
            if let Some(name) = secrets().found_in(&bytes) {
                return Err(Refusal::Secret(inside, name.to_owned()));
            }
        }
    }
    Ok(())
}

/// Where a candidate's file stands in the worktree; nothing on the way there is a link.
fn place_of(worktree: &Path, path: &str, editable: &Editable) -> Result<PathBuf, Refusal> {
    let relative = Path::new(path);
    if path.is_empty() || !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(Refusal::Path(path.to_owned()));
    }
    if !editable.contains(relative) {
        return Err(Refusal::Protected(relative.to_path_buf()));
    }
    let mut full = worktree.to_path_buf();
    for part in relative.components() {
        full.push(part);
        if fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_symlink()) {
            return Err(Refusal::Link(relative.to_path_buf()));
        }
    }
    Ok(full)
}

fn is_of_the_path(error: &std::io::Error) -> bool {
    let kinds = [
        ErrorKind::AlreadyExists,
        ErrorKind::NotADirectory,
        ErrorKind::IsADirectory,
        ErrorKind::InvalidInput,
        ErrorKind::InvalidFilename,
    ];
    kinds.contains(&error.kind())
}

/// The commit message of a candidate, before it is judged.
pub fn message(proposal: &Proposal) -> String {
    let subject = plain(&proposal.description, 100);
    let subject = if subject.is_empty() { "candidate".to_owned() } else { subject };
    let body = plain(&proposal.hypothesis, 1000);
    if body.is_empty() { subject } else { format!("{subject}\n\n{body}") }
}

/// Paths that no candidate of an agent is refused for.
pub const FREE_IN_WORKTREE: &[&str] = &FREE;

/// Reports a refusal as an error with exit code 3.
impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        Self::refused(refusal.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::tests::editable, git::Entry};

    fn change(path: &str, kind: ChangeKind, mode: i32) -> Change {
        let id = Oid::from_bytes(&[7; 20]).unwrap();
        Change { path: path.into(), kind, new: Some(Entry { id, mode }) }
    }

    #[test]
    fn only_plain_files_that_are_editable_make_a_candidate() {
        let allow = editable(&["cand/**"]);
        let judge = |changes: Vec<Change>| admissible(changes, &allow, &FREE).map(|c| c.len());
        let file = |path| change(path, ChangeKind::Modified, 0o100644);
        assert_eq!(judge(vec![]), Err(Refusal::Empty));
        assert_eq!(judge(vec![file("cand/x"), file("program.md"), file("results.tsv")]), Ok(1));
        assert_eq!(judge(vec![file("program.md")]), Err(Refusal::Empty));
        assert_eq!(judge(vec![file("cand/x"), file("judge")]), Err(Refusal::Protected("judge".into())));
        assert_eq!(judge(vec![file("cand/x"), change("notes", ChangeKind::Untracked, 0o100644)]), Ok(1));
        assert_eq!(
            judge(vec![change("judge2", ChangeKind::Added, 0o100644)]),
            Err(Refusal::Protected("judge2".into()))
        );
        assert_eq!(
            judge(vec![change("cand/l", ChangeKind::Untracked, 0o120000)]),
            Err(Refusal::Link("cand/l".into()))
        );
    }

    #[test]
    fn edits_cannot_leave_the_worktree() {
        let dir = tempfile::tempdir().unwrap();
        let outside = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("cand")).unwrap();
        std::os::unix::fs::symlink(outside.path(), dir.path().join("cand/out")).unwrap();
        let allow = editable(&["cand/**", "**/x"]);
        let write = |path: &str| {
            write_edits(dir.path(), &[Edit { path: path.into(), text: "t".into() }], &allow).unwrap()
        };
        assert_eq!(write("cand/new/x"), Ok(()));
        assert!(matches!(write("cand/../../x"), Err(Refusal::Path(_))));
        assert!(matches!(write("/tmp/x"), Err(Refusal::Path(_))));
        assert!(matches!(write(""), Err(Refusal::Path(_))));
        assert!(matches!(write("cand/out/x"), Err(Refusal::Link(_))));
        assert!(matches!(write("judge"), Err(Refusal::Protected(_))));
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
    }
}
