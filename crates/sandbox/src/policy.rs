//! What is granted, by path and by kind of system call.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// What may be done with a path and everything below it. A greater one includes the smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// See the names in a folder.
    List,
    /// Read.
    Read,
    /// Read and execute.
    Run,
    /// Read, and make, change and remove plain files; no folders.
    Write,
    /// All that one may do with one's own folder: also execute, and make folders, links, pipes and sockets.
    Own,
    /// Read, write and control a device.
    Device,
}

/// Which kinds of system calls are open, beside those that no confined process has (tracing others, mounting,
/// kernel keys, the system's clock and the like).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// Open internet sockets. Other families are never open: a socket in a file may belong to a powerful service.
    pub internet: bool,
    /// Start processes, and signal others. Threads are always open.
    pub processes: bool,
    /// Leave marks that outlive it and that Landlock does not see: permissions, owners, times and attributes of
    /// files, System V and POSIX shared memory and queues.
    pub marks: bool,
}

/// What a process may reach.
#[derive(Clone, Debug, Default)]
pub struct Policy {
    grants: Vec<(PathBuf, Access)>,
    hidden: BTreeSet<PathBuf>,
    calls: Calls,
    itself: bool,
}

impl Policy {
    /// Nothing of the file system, and these calls.
    pub fn new(calls: Calls) -> Self {
        Self { calls, ..Self::default() }
    }

    /// The calls that are open.
    pub fn calls(&self) -> Calls {
        self.calls
    }

    /// Grants a path and all below it. What does not exist is no grant.
    pub fn grant(&mut self, access: Access, path: impl Into<PathBuf>) -> &mut Self {
        self.grants.push((path.into(), access));
        self
    }

    /// Keeps a path out of every grant of a folder above it. A grant of the path itself, or of something below
    /// it, stands.
    pub fn hide(&mut self, path: impl Into<PathBuf>) -> &mut Self {
        self.hidden.insert(path.into());
        self
    }

    /// Grants what the kernel shows of the confined process itself, `/proc/self`, to read and to change. NVIDIA's
    /// driver (570 and later) names its threads there, and fails with code 304 where it cannot.
    ///
    /// A process reads its own memory there as well: one that keeps secrets from code that it runs gives this up
    /// by [`crate::forgo`]. What the confined process starts has it not.
    pub fn itself(&mut self) -> &mut Self {
        self.itself = true;
        self
    }

    #[cfg(target_os = "linux")]
    pub(crate) fn has_itself(&self) -> bool {
        self.itself
    }

    /// The grants as Landlock takes them: real paths, none of them above something hidden.
    pub fn resolved(&self) -> BTreeMap<PathBuf, BTreeSet<Access>> {
        let hidden: BTreeSet<PathBuf> =
            self.hidden.iter().filter_map(|path| fs::canonicalize(path).ok()).collect();
        let mut found: BTreeMap<PathBuf, BTreeSet<Access>> = BTreeMap::new();
        for (path, access) in &self.grants {
            let Ok(real) = fs::canonicalize(path) else { continue };
            let mut queue = vec![real];
            while let Some(path) = queue.pop() {
                if *access == Access::List || !above_one(&path, &hidden) {
                    found.entry(path).or_default().insert(*access);
                    continue;
                }
                let children = fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path());
                // a link leads elsewhere: where to is granted by its own name or not at all
                let real = children.filter(|child| !child.is_symlink() && !hidden.contains(child));
                queue.extend(real);
            }
        }
        found
    }
}

/// Whether something hidden lies below `path`.
fn above_one(path: &Path, hidden: &BTreeSet<PathBuf>) -> bool {
    let mut after = hidden.range::<Path, _>((std::ops::Bound::Excluded(path), std::ops::Bound::Unbounded));
    after.next().is_some_and(|next| next.starts_with(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_above_something_hidden_is_granted_as_its_other_children() {
        let dir = tempfile::tempdir().unwrap();
        let root = fs::canonicalize(dir.path()).unwrap();
        for folder in ["a/deep/secret", "a/deep/open", "a-b", "c"] {
            fs::create_dir_all(root.join(folder)).unwrap();
        }
        std::os::unix::fs::symlink(root.join("a/deep/secret"), root.join("a/link")).unwrap();
        let mut policy = Policy::new(Calls::default());
        policy.grant(Access::Read, &root).hide(root.join("a/deep/secret")).hide(root.join("missing"));
        let resolved = policy.resolved();
        let granted: Vec<&str> =
            resolved.keys().map(|path| path.strip_prefix(&root).unwrap().to_str().unwrap()).collect();
        assert_eq!(granted, ["a/deep/open", "a-b", "c"]);
        policy.grant(Access::Write, root.join("a/deep/secret"));
        assert!(
            policy.resolved().contains_key(&root.join("a/deep/secret")),
            "what is named itself is granted"
        );
    }
}
