//! Real repositories in temporary folders; the oracle is what stands on disk.

use std::os::unix::ffi::OsStrExt;

use super::*;

/// A repository with one commit of `files`.
pub(crate) fn repository(files: &[(&str, &str)]) -> (tempfile::TempDir, Repo) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let full = dir.path().join(path);
        fs::create_dir_all(full.parent().unwrap()).unwrap();
        fs::write(full, text).unwrap();
    }
    let repo = Repo::create(dir.path(), "start").unwrap();
    (dir, repo)
}

fn editable() -> Editable {
    crate::config::tests::editable(&["cand/**"])
}

fn tag() -> Tag {
    Tag::parse("t").unwrap()
}

/// A worktree that stands where the repository's HEAD does.
fn worktree(dir: &tempfile::TempDir, repo: &Repo) -> Worktree {
    let head = repo.head().unwrap();
    repo.create_branch(&tag(), head).unwrap();
    let path = dir.path().join(".git/worktree"); // where it is no change of the repository's
    let worktree = Worktree::open(repo, &tag(), Of::Trials, &path).unwrap();
    worktree.restore(head, &repo.files(head).unwrap()).unwrap();
    worktree
}

#[test]
fn a_folder_without_repository_or_commit_is_refused_with_a_remedy() {
    let dir = tempfile::tempdir().unwrap();
    let error = Repo::open(dir.path()).err().unwrap();
    assert!(error.kind == crate::error::Kind::Usage && error.to_string().contains("git init"), "{error}");
    Repository::init(dir.path()).unwrap();
    let error = Repo::open(dir.path()).unwrap().head().unwrap_err();
    assert!(error.to_string().contains("no commit yet"), "{error}");
}

#[test]
fn a_worktree_is_restored_whole_and_the_users_files_are_not_touched() {
    let (dir, repo) = repository(&[("cand/x", "1\n"), ("judge", "j\n"), (".gitignore", "*.tmp\n")]);
    let head = repo.head().unwrap();
    fs::write(dir.path().join("cand/x"), "mine\n").unwrap();
    fs::write(dir.path().join("untracked"), "mine\n").unwrap();
    repo.create_branch(&tag(), head).unwrap();
    let path = dir.path().join(".ratchet/worktree");
    let worktree = Worktree::open(&repo, &tag(), Of::Trials, &path).unwrap();
    let files = repo.files(head).unwrap();
    // all that a run may leave: edits, ignored files, folders in place of files, links, locked folders
    fs::remove_file(path.join("judge")).unwrap();
    fs::create_dir_all(path.join("judge/deep")).unwrap();
    fs::write(path.join("judge/deep/f"), "").unwrap();
    fs::write(path.join("cand/x"), "2\n").unwrap();
    fs::write(path.join("cand/a.tmp"), "").unwrap();
    std::os::unix::fs::symlink("/", path.join("root")).unwrap();
    fs::create_dir(path.join("locked")).unwrap();
    fs::write(path.join("locked/f"), "").unwrap();
    fs::set_permissions(path.join("locked"), std::os::unix::fs::PermissionsExt::from_mode(0o500)).unwrap();
    worktree.restore(head, &files).unwrap();
    assert_eq!(fs::read_to_string(path.join("cand/x")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(path.join("judge")).unwrap(), "j\n");
    let mut names: Vec<_> =
        fs::read_dir(&path).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, [".git", ".gitignore", "cand", "judge"]);
    assert_eq!(fs::read_dir(path.join("cand")).unwrap().count(), 1);
    assert!(worktree.changes(head).unwrap().is_empty());
    assert_eq!(fs::read_to_string(dir.path().join("cand/x")).unwrap(), "mine\n");
    assert!(dir.path().join("untracked").exists());
    repo.check_branch(&tag(), head).unwrap();
}

#[test]
fn a_damaged_worktree_and_stale_locks_are_made_good() {
    let (dir, repo) = repository(&[("cand/x", "1\n")]);
    let head = repo.head().unwrap();
    repo.create_branch(&tag(), head).unwrap();
    let path = dir.path().join(".ratchet/worktree");
    drop(Worktree::open(&repo, &tag(), Of::Trials, &path).unwrap());
    fs::write(dir.path().join(".git/worktrees/ratchet-t/index.lock"), "").unwrap();
    fs::write(dir.path().join(".git/refs/heads/ratchet/t.lock"), "").unwrap();
    repo.unlock(&tag());
    let worktree = Worktree::open(&repo, &tag(), Of::Trials, &path).unwrap();
    worktree.restore(head, &repo.files(head).unwrap()).unwrap();
    drop(worktree);
    fs::remove_dir_all(&path).unwrap();
    let worktree = Worktree::open(&repo, &tag(), Of::Trials, &path).unwrap();
    worktree.restore(head, &repo.files(head).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(path.join("cand/x")).unwrap(), "1\n");
}

#[test]
fn a_copied_repository_gets_a_worktree_of_its_own() {
    let (dir, repo) = repository(&[("cand/x", "1\n")]);
    let head = repo.head().unwrap();
    repo.create_branch(&tag(), head).unwrap();
    let original = dir.path().join(".ratchet/worktree");
    drop(Worktree::open(&repo, &tag(), Of::Trials, &original).unwrap());
    let copy = tempfile::tempdir().unwrap();
    copy_all(dir.path(), copy.path());
    let path = copy.path().join(".ratchet/worktree");
    let copied = Repo::open(copy.path()).unwrap();
    let worktree = Worktree::open(&copied, &tag(), Of::Trials, &path).unwrap();
    fs::write(path.join("cand/x"), "2\n").unwrap();
    worktree.restore(head, &copied.files(head).unwrap()).unwrap();
    assert_eq!(fs::read_to_string(path.join("cand/x")).unwrap(), "1\n");
    assert!(original.join("cand/x").exists(), "the original's worktree was removed");
    assert!(Worktree::opened(&original, repo.repo.commondir()).is_some());
}

fn copy_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let target = to.join(entry.file_name());
        if entry.file_type().unwrap().is_dir() {
            fs::create_dir_all(&target).unwrap();
            copy_all(&entry.path(), &target);
        } else {
            fs::copy(entry.path(), target).unwrap();
        }
    }
}

#[test]
fn changes_name_every_kind_and_survive_odd_names() {
    let (dir, repo) = repository(&[("cand/x", "1\n"), ("cand/gone", "g\n"), (".gitignore", "*.tmp\n")]);
    let head = repo.head().unwrap();
    let odd = PathBuf::from(std::ffi::OsStr::from_bytes(b"cand/\xff*\n"));
    fs::write(dir.path().join(&odd), "odd\n").unwrap();
    fs::write(dir.path().join("cand/x"), "2\n").unwrap();
    fs::write(dir.path().join("cand/no.tmp"), "").unwrap();
    fs::remove_file(dir.path().join("cand/gone")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", dir.path().join("cand/link")).unwrap();
    let changes = repo.changes(head).unwrap();
    let kind = |path: &Path| changes.iter().find(|c| c.path == path).map(|c| (c.kind, c.is_link()));
    assert_eq!(kind(Path::new("cand/x")), Some((ChangeKind::Modified, false)));
    assert_eq!(kind(Path::new("cand/gone")), Some((ChangeKind::Deleted, false)));
    assert_eq!(kind(Path::new("cand/link")), Some((ChangeKind::Untracked, true)));
    assert_eq!(kind(&odd), Some((ChangeKind::Untracked, false)));
    assert_eq!(changes.len(), 4);
    let commit = repo.commit_changes(head, &changes, "candidate").unwrap();
    let files = repo.files(commit).unwrap();
    assert!(files.contains_key(&odd) && !files.contains_key(Path::new("cand/gone")));
    // back to the start: the candidate's files go, and only those
    fs::write(dir.path().join("other"), "").unwrap();
    assert_eq!(
        repo.set_files(head, &editable(), commit, &worktree(&dir, &repo)).unwrap(),
        Vec::<PathBuf>::new()
    );
    let left: Vec<_> = repo.changes(head).unwrap().into_iter().map(|c| c.path).collect();
    assert_eq!(left, [PathBuf::from("other")]);
    assert!(dir.path().join("cand/no.tmp").exists());
}

#[test]
fn an_edit_made_during_a_trial_is_left_alone() {
    let (dir, repo) = repository(&[("cand/x", "1\n"), ("cand/y", "1\n")]);
    let head = repo.head().unwrap();
    fs::write(dir.path().join("cand/x"), "2\n").unwrap();
    fs::write(dir.path().join("cand/y"), "2\n").unwrap();
    let candidate = repo.commit_changes(head, &repo.changes(head).unwrap(), "c").unwrap();
    fs::write(dir.path().join("cand/y"), "3\n").unwrap();
    assert_eq!(
        repo.set_files(head, &editable(), candidate, &worktree(&dir, &repo)).unwrap(),
        [PathBuf::from("cand/y")]
    );
    assert_eq!(fs::read_to_string(dir.path().join("cand/x")).unwrap(), "1\n");
    assert_eq!(fs::read_to_string(dir.path().join("cand/y")).unwrap(), "3\n");
}

#[test]
fn a_branch_moved_or_checked_out_is_named_with_its_remedy() {
    let (dir, repo) = repository(&[("cand/x", "1\n")]);
    let head = repo.head().unwrap();
    repo.create_branch(&tag(), head).unwrap();
    assert!(repo.create_branch(&tag(), head).is_err());
    fs::write(dir.path().join("cand/x"), "2\n").unwrap();
    let next = repo.commit_changes(head, &repo.changes(head).unwrap(), "c").unwrap();
    repo.advance_branch(&tag(), head, next).unwrap();
    let error = repo.advance_branch(&tag(), head, next).unwrap_err();
    assert!(
        error.kind == crate::error::Kind::Usage && error.to_string().contains("git branch -f ratchet/t"),
        "{error}"
    );
    repo.repo.set_head("refs/heads/ratchet/t").unwrap();
    let error = repo.check_branch(&tag(), next).unwrap_err();
    assert!(
        error.to_string().contains("is checked out") && error.to_string().contains("git switch"),
        "{error}"
    );
}

#[test]
fn line_endings_are_stored_as_the_repository_wants_them() {
    let (dir, repo) = repository(&[("cand/x", "1\n")]);
    repo.repo.config().unwrap().set_bool("core.autocrlf", true).unwrap();
    let head = repo.head().unwrap();
    fs::write(dir.path().join("cand/x"), "1\r\n").unwrap();
    assert_eq!(repo.changes(head).unwrap(), [], "a checkout with other line endings is no edit");
    fs::write(dir.path().join("cand/x"), "2\r\n").unwrap();
    let commit = repo.commit_changes(head, &repo.changes(head).unwrap(), "c").unwrap();
    let entry = repo.files(commit).unwrap()[Path::new("cand/x")];
    assert_eq!(repo.blob(entry).unwrap(), b"2\n");
}

#[test]
fn an_edit_is_carried_onto_a_moved_champion_or_conflicts() {
    let (dir, repo) = repository(&[("cand/x", "1\n2\n3\n4\n5\n")]);
    let head = repo.head().unwrap();
    let edit = |text: &str| {
        fs::write(dir.path().join("cand/x"), text).unwrap();
        repo.commit_changes(head, &repo.changes(head).unwrap(), "c").unwrap()
    };
    let champion = edit("one\n2\n3\n4\n5\n");
    let mine = edit("1\n2\n3\n4\nfive\n");
    let merged = repo.rebase(head, mine, champion, champion, "m").unwrap().unwrap();
    let entry = repo.files(merged).unwrap()[Path::new("cand/x")];
    assert_eq!(repo.blob(entry).unwrap(), b"one\n2\n3\n4\nfive\n");
    let conflicting = edit("uno\n2\n3\n4\n5\n");
    assert_eq!(repo.rebase(head, conflicting, champion, champion, "m").unwrap(), None);
}
