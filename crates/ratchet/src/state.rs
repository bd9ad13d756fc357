//! `.ratchet/`: paths, current tag, lock.

use std::{
    fs::{self, File, OpenOptions},
    io::{Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use rustix::fs::{FlockOperation, flock};

use crate::{
    error::{Doing, Error, Kind, Result},
    plain_file,
};

/// The state folder of one root.
#[derive(Clone, Debug)]
pub struct State {
    root: PathBuf,
}

impl State {
    /// The state of `root`; creates nothing.
    pub fn new(root: &Path) -> Self {
        Self { root: root.to_path_buf() }
    }

    /// The user's root.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `.ratchet/`.
    pub fn dir(&self) -> PathBuf {
        self.root.join(".ratchet")
    }

    /// `results.tsv` in the root.
    pub fn results(&self) -> PathBuf {
        self.root.join("results.tsv")
    }

    /// The versions of `program.md` that proposals were made under.
    pub fn briefs(&self) -> PathBuf {
        self.dir().join("briefs")
    }

    /// The folder of a tag.
    pub fn tag(&self, tag: &Tag) -> TagDir {
        TagDir { dir: self.dir().join("tags").join(tag.as_str()) }
    }

    /// Creates `.ratchet/`, hidden from git by its own ignore file, whatever the user's says.
    pub fn create(&self) -> Result<()> {
        let dir = self.dir();
        fs::create_dir_all(&dir).doing("create the state folder", &dir)?;
        let ignore = dir.join(".gitignore");
        if !ignore.exists() {
            fs::write(&ignore, "*\n").doing("write", &ignore)?;
        }
        Ok(())
    }

    /// The tag in use, if any.
    pub fn current(&self) -> Result<Option<Tag>> {
        let path = self.dir().join("current");
        match plain_file::read_to_string(&path) {
            Ok(text) => Tag::parse(text.trim())
                .map(Some)
                .map_err(|error| error.at(&path).hint("name a tag with --tag, or delete this file")),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing("read the current tag", &path),
        }
    }

    /// Makes `tag` the tag in use.
    pub fn set_current(&self, tag: &Tag) -> Result<()> {
        write_atomic(&self.dir().join("current"), format!("{}\n", tag.as_str()).as_bytes())
    }

    /// Makes durable that a tag's folder is where it is.
    pub fn settle(&self, tag: &Tag) -> Result<()> {
        self.tag(tag).path().ancestors().skip(1).take(3).try_for_each(sync_folder)
    }

    /// Tags that exist, sorted.
    pub fn tags(&self) -> Vec<Tag> {
        let Ok(entries) = fs::read_dir(self.dir().join("tags")) else { return Vec::new() };
        let mut tags: Vec<Tag> = entries
            .flatten()
            .filter(|entry| entry.path().join("journal.jsonl").exists())
            .filter_map(|entry| Tag::parse(entry.file_name().to_str()?).ok())
            .collect();
        tags.sort();
        tags
    }

    /// The error for a tag that is not there; its remedy names those that are.
    pub fn no_such_tag(&self, tag: &Tag) -> Error {
        let known = self.known();
        Error::usage(format!("there is no tag {tag}")).hint(format!("{known}; `ratchet run` begins one"))
    }

    /// The error for a current tag whose journal is gone: to begin it anew would hide that.
    pub fn no_current_tag(&self, tag: &Tag) -> Error {
        Error::usage(format!("the current tag {tag} has no journal any more"))
            .at(self.dir().join("current"))
            .hint(format!("name a tag with --tag, an old one or a new one; {}", self.known()))
    }

    fn known(&self) -> String {
        let known: Vec<String> = self.tags().iter().map(Tag::to_string).collect();
        match known.is_empty() {
            true => "there is none yet".to_owned(),
            false => format!("there are: {}", known.join(", ")),
        }
    }

    /// Takes the lock, or fails at once with exit code 5, naming who holds it.
    pub fn lock(&self) -> Result<Lock> {
        self.create()?;
        let path = self.dir().join("lock");
        let mut file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .doing("open the lock", &path)?;
        let mut taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
        for _ in 0..5 {
            // `status` holds a shared lock for an instant; that must not look like another run
            if taken != Err(rustix::io::Errno::WOULDBLOCK) {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
            taken = flock(&file, FlockOperation::NonBlockingLockExclusive);
        }
        match taken {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => {
                let mut holder = String::new();
                let _ = file.read_to_string(&mut holder); // only names the holder: worth no second error
                let holder = holder.trim().to_owned();
                let who = if holder.is_empty() {
                    "another run".to_owned()
                } else {
                    format!("another run (pid {holder})")
                };
                return Err(Error::new(Kind::Locked, format!("{who} holds the lock")).at(&path).hint(
                    "wait for it, or end it with Ctrl-C or TERM; `ratchet status` shows where it stands",
                ));
            }
            Err(error) => return Err(std::io::Error::from(error)).doing("take the lock", &path),
        }
        file.set_len(0).doing("write the lock", &path)?;
        file.seek(SeekFrom::Start(0)).doing("write the lock", &path)?;
        writeln!(file, "{}", std::process::id()).doing("write the lock", &path)?;
        Ok(Lock { _file: file })
    }

    /// The process id of whoever holds the lock now.
    pub fn running(&self) -> Option<u32> {
        let mut file = File::open(self.dir().join("lock")).ok()?;
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return None; // nobody; closing the file gives it back
        }
        let mut holder = String::new();
        file.read_to_string(&mut holder).ok()?;
        holder.trim().parse().ok()
    }
}

/// The lock; held until dropped, and by the kernel's doing also given back when the process dies.
#[derive(Debug)]
pub struct Lock {
    _file: File,
}

/// A tag's name: safe as a folder and as the last part of a branch.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tag(String);

impl Tag {
    /// Checks a name. Exit code 2 says what a name may be.
    pub fn parse(name: &str) -> Result<Self> {
        let first = name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric());
        let all = name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        let git = !name.contains("..") && !name.ends_with('.') && !name.ends_with(".lock");
        if first && all && git && name.len() <= 64 {
            Ok(Self(name.to_owned()))
        } else {
            Err(Error::usage(format!("{name:?} is no tag name")).hint(
                "use up to 64 letters, digits, `-`, `_` and single `.`, starting with a letter or digit",
            ))
        }
    }

    /// Today's date here, `2026-11-29`.
    pub fn today() -> Self {
        Self(jiff::Zoned::now().date().to_string())
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The full name of the branch that holds this tag's kept commits.
    pub fn branch_ref(&self) -> String {
        format!("refs/heads/{}", self.branch())
    }

    /// `ratchet/TAG`.
    pub fn branch(&self) -> String {
        format!("ratchet/{}", self.0)
    }

    /// Where a candidate that was made ahead is kept.
    pub fn ahead_ref(&self) -> String {
        format!("refs/ratchet/{}/ahead", self.0)
    }

    /// Where trial `n`'s candidate is kept.
    pub fn trial_ref(&self, trial: u64) -> String {
        format!("refs/ratchet/{}/trials/{trial:04}", self.0)
    }
}

impl std::fmt::Display for Tag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// The folder of one tag.
#[derive(Clone, Debug)]
pub struct TagDir {
    dir: PathBuf,
}

impl TagDir {
    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.dir
    }

    /// The journal.
    pub fn journal(&self) -> PathBuf {
        self.dir.join("journal.jsonl")
    }

    /// The git worktree in which candidates stand.
    pub fn worktree(&self) -> PathBuf {
        self.dir.join("worktree")
    }

    /// The worktree's own cargo target directory; beside it, so that a restored worktree keeps its builds.
    pub fn target(&self) -> PathBuf {
        self.dir.join("target")
    }

    /// What the user's working tree started from.
    pub fn checkout(&self) -> PathBuf {
        self.dir.join("checkout.json")
    }

    /// The kept model of trial `n`: checkpoint and binary.
    pub fn model(&self, trial: u64) -> PathBuf {
        self.dir.join("models").join(format!("{trial:04}"))
    }

    /// The folder of the `n`th proposal that came to nothing, counted with the trials.
    pub fn attempt(&self, n: u64) -> PathBuf {
        self.dir.join("attempts").join(format!("{n:04}"))
    }

    /// The folder of what was said for the `n`th proposal that was made ahead and not used.
    pub fn wasted(&self, n: u64) -> PathBuf {
        self.dir.join("wasted").join(format!("{n:04}"))
    }

    /// The folder of trial `n`.
    pub fn trial(&self, trial: u64) -> PathBuf {
        self.dir.join("trials").join(format!("{trial:04}"))
    }
}

/// Replaces a file of `.ratchet/` whole or not at all, durably. The caller holds the lock.
pub fn write_atomic(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".new");
    replace(path, &path.with_file_name(name), bytes)
}

/// The same by way of a file elsewhere, so that a kill half-way leaves nothing beside `path`.
pub fn replace(path: &Path, via: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = create_new(via).doing("write", via)?;
    file.write_all(bytes).doing("write", via)?;
    file.sync_all().doing("sync", via)?;
    if let Ok(old) = fs::metadata(path) {
        file.set_permissions(old.permissions()).doing("write", via)?;
    }
    match fs::rename(via, path) {
        // `.ratchet/` may be a link to a larger disk; the journal can make the table again
        Err(error) if error.kind() == std::io::ErrorKind::CrossesDevices => fs::write(path, bytes),
        renamed => renamed,
    }
    .inspect_err(|_| drop(fs::remove_file(via)))
    .doing("replace", path)?;
    sync_folder(path.parent().unwrap_or(Path::new(".")))
}

/// Makes durable which names a folder holds; not what its files hold.
pub fn sync_folder(folder: &Path) -> Result<()> {
    File::open(folder).and_then(|folder| folder.sync_all()).doing("sync", folder)
}

/// Writes a file in a folder that a trial may write as well. What stands there is removed first: a link left
/// in its place would send the driver's own writing elsewhere.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<()> {
    create_new(path).and_then(|mut file| file.write_all(bytes)).doing("write", path)
}

/// Creates such a file.
pub fn create_new(path: &Path) -> std::io::Result<File> {
    match fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => fs::remove_dir_all(path)?,
        Ok(_) => fs::remove_file(path)?,
        Err(_) => {}
    }
    File::create_new(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tag_names_cannot_leave_their_folder_or_break_a_ref() {
        for bad in
            ["", "..", "a/b", "../x", "-x", ".x", "a..b", "x.lock", "x.", "a b", "a~1", "ü", "a\n", "@{"]
        {
            assert!(Tag::parse(bad).is_err(), "{bad:?}");
        }
        for good in ["bar", "2026-11-29", "a.b_c-1", "7"] {
            assert!(Tag::parse(good).is_ok(), "{good:?}");
            let name = Tag::parse(good).unwrap().branch_ref();
            assert!(git2::Reference::is_valid_name(&name), "{name}");
        }
        Tag::parse(Tag::today().as_str()).unwrap();
    }

    #[test]
    fn a_link_in_a_trials_folder_does_not_lead_the_driver_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let (mine, link) = (dir.path().join("mine"), dir.path().join("score.json"));
        fs::write(&mine, "precious").unwrap();
        std::os::unix::fs::symlink(&mine, &link).unwrap();
        write_new(&link, b"{}").unwrap();
        assert_eq!(fs::read_to_string(&mine).unwrap(), "precious");
        assert_eq!(fs::read_to_string(&link).unwrap(), "{}");
    }

    #[test]
    fn a_second_lock_fails_at_once_and_names_the_holder() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        assert_eq!(state.running(), None);
        let lock = state.lock().unwrap();
        let error = state.lock().unwrap_err();
        assert_eq!(error.kind, Kind::Locked);
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        assert_eq!(state.running(), Some(std::process::id()));
        drop(lock);
        assert_eq!(state.running(), None);
        state.lock().unwrap();
    }
}
