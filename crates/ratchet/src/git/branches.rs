//! A branch for a person: commits carried onto another base, and a name that nothing else had.

use std::{fs, path::PathBuf};

use git2::{DiffOptions, ErrorCode, Oid, Reference, Repository, Signature, Time};

use super::{Repo, path_of, short};
use crate::error::{Error, Result};

/// Lines of one file that a commit replaces, counted from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Hunk {
    /// Of the file before.
    pub(crate) start: usize,
    /// How many go.
    pub(crate) gone: usize,
    /// How many come.
    pub(crate) new: usize,
}

impl Repo {
    /// The same repository; what is written by way of this one stays in memory.
    pub(crate) fn rehearsal(&self) -> Result<Self> {
        let repo = Repository::open(self.repo.path())?;
        const FIRST: i32 = 1000; // git's own object stores have priorities 1 and 2
        repo.odb()?.add_new_mempack_backend(FIRST)?;
        Ok(Self { repo, root: self.root.clone() })
    }

    /// What leads from one commit to another, applied onto a tree by three-way merge; the tree that comes of
    /// it. `None` when the two conflict.
    pub(crate) fn carry(&self, from: Oid, to: Oid, onto: Oid) -> Result<Option<Oid>> {
        let onto = self.repo.find_tree(onto)?;
        let mut index = self.repo.merge_trees(&self.tree(from)?, &onto, &self.tree(to)?, None)?;
        match index.has_conflicts() {
            true => Ok(None),
            false => Ok(Some(index.write_tree_to(&self.repo)?)),
        }
    }

    /// A commit whose id rests on nothing but what is given here and who git says the person is. Times are
    /// seconds since 1970.
    pub(crate) fn commit_at(
        &self,
        tree: Oid,
        parent: Oid,
        message: &str,
        authored: i64,
        committed: i64,
    ) -> Result<Oid> {
        let who = self.repo.signature().or_else(|_| Signature::now("ratchet", "ratchet@localhost"))?;
        let (name, address) = (who.name_bytes(), who.email_bytes());
        let (name, address) = (String::from_utf8_lossy(name), String::from_utf8_lossy(address));
        let at = |seconds| Signature::new(&name, &address, &Time::new(seconds, 0));
        let (tree, parent) = (self.repo.find_tree(tree)?, self.repo.find_commit(parent)?);
        Ok(self.repo.commit(None, &at(authored)?, &at(committed)?, message, &tree, &[&parent])?)
    }

    /// The lines that lead from one commit to another, by file, top to bottom.
    pub(crate) fn hunks(&self, from: Oid, to: Oid) -> Result<Vec<(PathBuf, Vec<Hunk>)>> {
        let mut options = DiffOptions::new();
        options.context_lines(0).interhunk_lines(0).force_text(true);
        let diff = self.repo.diff_tree_to_tree(
            Some(&self.tree(from)?),
            Some(&self.tree(to)?),
            Some(&mut options),
        )?;
        let mut files: Vec<(PathBuf, Vec<Hunk>)> = Vec::new();
        diff.foreach(
            &mut |delta, _| {
                let path = delta.new_file().path_bytes().or(delta.old_file().path_bytes());
                files.push((path_of(path.unwrap_or_default()), Vec::new()));
                true
            },
            None,
            None,
            None,
        )?;
        for (index, (_, hunks)) in files.iter_mut().enumerate() {
            let Some(patch) = git2::Patch::from_diff(&diff, index)? else { continue };
            for at in 0..patch.num_hunks() {
                let (hunk, _) = patch.hunk(at)?;
                let (start, gone) = (hunk.old_start() as usize, hunk.old_lines() as usize);
                // git counts from 1, and names the line before a place where nothing goes
                let start = if gone > 0 { start.saturating_sub(1) } else { start };
                hunks.push(Hunk { start, gone, new: hunk.new_lines() as usize });
            }
        }
        Ok(files)
    }

    /// Where a branch of the person's stands; `None` when it may be made.
    ///
    /// Exit code 2 for what can be no branch, or not beside those there are.
    pub(crate) fn branch_called(&self, name: &str) -> Result<Option<Oid>> {
        let full = format!("refs/heads/{name}");
        let own = name.split('/').next() == Some("ratchet");
        if name.starts_with('-') || name == "HEAD" || own || !Reference::is_valid_name(&full) {
            let why = if own { ": branches below ratchet/ are the driver's" } else { "" };
            return Err(Error::usage(format!("{name:?} cannot be the branch{why}"))
                .hint("name another one with --branch"));
        }
        match self.repo.refname_to_id(&full) {
            Ok(id) => return Ok(Some(id)),
            Err(error) if error.code() == ErrorCode::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let inner =
            self.repo.references_glob(&format!("{full}/*"))?.names().flatten().next().map(str::to_owned);
        let outer = name.match_indices('/').map(|(end, _)| format!("refs/heads/{}", &name[..end]));
        let mut others = outer.filter(|other| self.repo.find_reference(other).is_ok()).chain(inner);
        if let Some(other) = others.next() {
            let other = other.trim_start_matches("refs/heads/");
            return Err(Error::usage(format!("the branch {other} is in the way of {name}"))
                .hint("name another one with --branch, or rename that one"));
        }
        if let Some(head) = self.checked_out(&full) {
            return Err(Error::usage(format!("a checkout is about to begin the branch {name}"))
                .at(head)
                .hint("name another one with --branch"));
        }
        Ok(None)
    }

    /// Whether there is such a branch.
    pub(crate) fn has_branch(&self, name: &str) -> bool {
        self.repo.refname_to_id(&format!("refs/heads/{name}")).is_ok()
    }

    /// Takes away git's lock on a name that an earlier start has taken and then died. The caller holds the driver's
    /// lock, and the name is free or stands where that start put it.
    pub(crate) fn unlock_branch(&self, name: &str) {
        // absent as a rule; what cannot be removed is named when git meets it
        let _ = fs::remove_file(self.repo.commondir().join(format!("refs/heads/{name}.lock")));
    }

    /// Makes a branch of the person's, whole or not at all. Exit code 2 when somebody else has made it meanwhile.
    pub(crate) fn create_branch_called(&self, name: &str, commit: Oid) -> Result<()> {
        let full = format!("refs/heads/{name}");
        self.point(&full, || match self.repo.reference(&full, commit, false, "ratchet: accept") {
            Ok(_) => Ok(()),
            Err(error) if error.code() == ErrorCode::Exists => {
                Err(Error::usage(format!("the branch {name} was made meanwhile"))
                    .hint(format!("name another one with --branch; what was measured is {}", short(commit))))
            }
            Err(error) => Err(error.into()),
        })
    }

    /// The `HEAD` of a checkout that stands on a ref.
    pub(super) fn checked_out(&self, name: &str) -> Option<PathBuf> {
        let wanted = format!("ref: {name}");
        let common = self.repo.commondir();
        let mut heads = vec![common.join("HEAD")];
        if let Ok(entries) = fs::read_dir(common.join("worktrees")) {
            heads.extend(entries.flatten().map(|entry| entry.path().join("HEAD")));
        }
        heads.into_iter().find(|head| fs::read_to_string(head).is_ok_and(|text| text.trim() == wanted))
    }
}
