//! What can go wrong: what, where, and the remedy, each with an exit code.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The driver's result.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Which exit code an error ends the program with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// The driver itself failed: 1.
    Internal,
    /// Wrong usage or configuration: 2.
    Usage,
    /// The candidate was refused: 3.
    Refused,
    /// Something is missing on this machine, data or a device for example: 4.
    Environment,
    /// Another run holds the lock: 5.
    Locked,
}

impl Kind {
    /// The process's exit code.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Internal => 1,
            Self::Usage => 2,
            Self::Refused => 3,
            Self::Environment => 4,
            Self::Locked => 5,
        }
    }
}

type Source = Box<dyn std::error::Error + Send + Sync>;

/// One failure; shown as `path: what (cause); remedy`.
#[derive(Debug)]
pub struct Error {
    /// Decides the exit code.
    pub kind: Kind,
    /// What happened.
    pub what: String,
    /// The file or folder concerned.
    pub path: Option<PathBuf>,
    /// What the user can do about it.
    pub hint: Option<String>,
    source: Option<Source>,
}

impl Error {
    /// An error of a kind; see also the constructors named after the kinds.
    pub fn new(kind: Kind, what: impl Into<String>) -> Self {
        Self { kind, what: what.into(), path: None, hint: None, source: None }
    }

    /// Exit code 1.
    pub fn internal(what: impl Into<String>) -> Self {
        Self::new(Kind::Internal, what)
    }

    /// Exit code 2.
    pub fn usage(what: impl Into<String>) -> Self {
        Self::new(Kind::Usage, what)
    }

    /// Exit code 3.
    pub fn refused(what: impl Into<String>) -> Self {
        Self::new(Kind::Refused, what)
    }

    /// Exit code 4.
    pub fn environment(what: impl Into<String>) -> Self {
        Self::new(Kind::Environment, what)
    }

    /// Names the file or folder.
    pub fn at(mut self, path: impl Into<PathBuf>) -> Self {
        self.path = Some(path.into());
        self
    }

    /// Names the remedy.
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hint = Some(hint.into());
        self
    }

    /// Names the cause. A full disk is the environment's fault, whatever was being written.
    pub fn because(mut self, source: impl Into<Source>) -> Self {
        let source = source.into();
        // libgit2 and std agree on the system's words, and on nothing else
        if source.to_string().contains("No space left on device") && self.kind == Kind::Internal {
            self.kind = Kind::Environment;
            self.hint
                .get_or_insert_with(|| "free some disk space and start again; nothing is lost".to_owned());
        }
        self.source = Some(source);
        self
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(path) = &self.path {
            write!(f, "{}: ", path.display())?;
        }
        f.write_str(&self.what)?;
        if let Some(source) = &self.source {
            write!(f, " ({source})")?;
        }
        if let Some(hint) = &self.hint {
            write!(f, "; {hint}")?;
        }
        Ok(())
    }
}

// `source` stays `None`: the cause is part of the message, and a chain would print it twice.
impl std::error::Error for Error {}

impl From<git2::Error> for Error {
    fn from(error: git2::Error) -> Self {
        Self::internal("git failed").because(error)
    }
}

/// Adds what was being done, and to which file, to an I/O error.
pub trait Doing<T> {
    /// `doing` completes "could not …".
    fn doing(self, doing: &str, path: &Path) -> Result<T>;
}

impl<T> Doing<T> for std::io::Result<T> {
    fn doing(self, doing: &str, path: &Path) -> Result<T> {
        self.map_err(|error| Error::internal(format!("could not {doing}")).at(path).because(error))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_says_what_where_why_and_the_remedy() {
        let cause = std::io::Error::other("disk on fire");
        let error = Error::environment("no rows").at("/data").because(cause).hint("prepare them");
        assert_eq!(error.to_string(), "/data: no rows (disk on fire); prepare them");
        assert_eq!(error.kind.exit_code(), 4);
    }

    #[test]
    fn a_full_disk_is_the_environments_fault_and_has_a_remedy() {
        let full = || std::io::Error::from_raw_os_error(rustix::io::Errno::NOSPC.raw_os_error());
        let error = Err::<(), _>(full()).doing("write", Path::new("/x")).unwrap_err();
        assert_eq!(error.kind, Kind::Environment);
        assert!(error.to_string().contains("free some disk space"), "{error}");
        assert_eq!(Error::usage("no").because(full()).kind, Kind::Usage);
    }
}
