//! Forbidden acts, tried. Nothing is harmed where one succeeds.

use std::{
    fmt,
    fs::{self, File, OpenOptions},
    io,
    net::UdpSocket,
    os::unix::process::CommandExt,
    path::PathBuf,
    process::{Command, Stdio},
    str::FromStr,
};

/// Something that a process may or may not do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Act {
    /// Read a file, or see the names in a folder.
    Read(PathBuf),
    /// Open a file to append to it; nothing is written.
    Write(PathBuf),
    /// Make a file in a folder; it is removed again.
    Create(PathBuf),
    /// Set a file's time to what it is.
    Mark(PathBuf),
    /// Open a socket.
    Socket,
    /// Start a process.
    Start,
    /// Become another program; there is none of the name that is tried.
    Become,
    /// Send a signal to the parent; signal 0, which only asks.
    Signal,
}

/// How an act ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// It could be done.
    Done,
    /// The system refused.
    Denied,
    /// There was nothing to try it on.
    Nothing,
}

/// Tries an act in this process.
pub fn attempt(act: &Act) -> Answer {
    let result = match act {
        Act::Read(path) if path.is_dir() => fs::read_dir(path).map(drop),
        Act::Read(path) => File::open(path).map(drop),
        Act::Write(path) => OpenOptions::new().append(true).open(path).map(drop),
        Act::Create(folder) => {
            let path = folder.join(format!(".forbidden-{}", std::process::id()));
            File::create_new(&path).and_then(|_| fs::remove_file(&path))
        }
        Act::Mark(path) => (|| File::open(path)?.set_modified(fs::metadata(path)?.modified()?))(),
        Act::Socket => UdpSocket::bind(("127.0.0.1", 0)).map(drop),
        Act::Start => Command::new("/proc/self/exe")
            .stdin(Stdio::null())
            .arg("--version")
            .stdout(Stdio::null())
            .status()
            .map(drop),
        Act::Become => match Command::new("/nonexistent/program").exec() {
            error if error.kind() == io::ErrorKind::NotFound => Ok(()),
            error => Err(error),
        },
        Act::Signal => rustix::process::getppid()
            .map_or(Ok(()), |parent| rustix::process::test_kill_process(parent).map_err(io::Error::from)),
    };
    match result {
        Ok(()) => Answer::Done,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Answer::Nothing,
        Err(_) => Answer::Denied,
    }
}

impl fmt::Display for Act {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read(path) => write!(f, "read {}", path.display()),
            Self::Write(path) => write!(f, "write {}", path.display()),
            Self::Create(path) => write!(f, "create {}", path.display()),
            Self::Mark(path) => write!(f, "mark {}", path.display()),
            Self::Socket => f.write_str("socket"),
            Self::Start => f.write_str("start"),
            Self::Become => f.write_str("become"),
            Self::Signal => f.write_str("signal"),
        }
    }
}

/// Not the name of an act.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no act")]
pub struct NoAct(String);

impl FromStr for Act {
    type Err = NoAct;

    fn from_str(text: &str) -> Result<Self, NoAct> {
        let (word, path) = text.split_once(' ').unwrap_or((text, ""));
        Ok(match word {
            "read" => Self::Read(path.into()),
            "write" => Self::Write(path.into()),
            "create" => Self::Create(path.into()),
            "mark" => Self::Mark(path.into()),
            "socket" => Self::Socket,
            "start" => Self::Start,
            "become" => Self::Become,
            "signal" => Self::Signal,
            _ => return Err(NoAct(text.to_owned())),
        })
    }
}

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Done => "done",
            Self::Denied => "denied",
            Self::Nothing => "nothing",
        })
    }
}
