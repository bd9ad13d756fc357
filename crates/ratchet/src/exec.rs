//! Runs untrusted commands: own session, time limits, every descendant ended.
//!
//! The driver makes itself the subreaper of what it starts, so a daemon that forks twice, opens a new
//! session and ignores TERM is still found among its descendants and killed. One command runs at a time
//! in a process; that is what makes every leftover child the last command's.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    os::{
        fd::{AsFd, OwnedFd},
        unix::process::{CommandExt, ExitStatusExt},
    },
    path::PathBuf,
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::OFlags,
    process::Signal,
};

use crate::{
    processes::{become_subreaper, descendants, die_with_driver, signal_all},
    runlog::{RunLog, Stream},
};

/// Time between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// The longest wait in one go, so that limits and stop requests are seen in time.
const TICK: Duration = Duration::from_millis(50);

/// What the environment of a command may inherit.
const ALLOWED: [&str; 12] = [
    "PATH",
    "HOME",
    "LANG",
    "TMPDIR",
    "TZ",
    "CUDA_VISIBLE_DEVICES",
    "LD_LIBRARY_PATH",
    "RAYON_NUM_THREADS",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "RUSTUP_TOOLCHAIN",
    "CUDA_COMPUTE_CAP", // cudarc builds ask nvidia-smi otherwise, which may be missing
];

/// The allowed part of this process's environment: no keys, no tokens.
pub fn allowed_env() -> BTreeMap<OsString, OsString> {
    std::env::vars_os()
        .filter(|(name, _)| {
            name.to_str().is_some_and(|name| ALLOWED.contains(&name) || name.starts_with("LC_"))
        })
        .collect()
}

/// Asks a running command, and whoever looks, to stop.
#[derive(Clone, Debug, Default)]
pub struct StopFlag(Arc<AtomicBool>);

impl StopFlag {
    /// The flag that signal handlers set.
    pub fn shared(&self) -> Arc<AtomicBool> {
        self.0.clone()
    }

    /// Whether a stop was asked for.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// One command to run.
#[derive(Debug)]
pub struct Spec<'a> {
    /// Program and arguments.
    pub command: &'a [String],
    /// Where it runs.
    pub dir: PathBuf,
    /// Its whole environment.
    pub env: BTreeMap<OsString, OsString>,
    /// What it reads; `None` closes its stdin.
    pub stdin: Option<Vec<u8>>,
    /// The driver's own clock.
    pub limit: Duration,
    /// Whether stdout goes to the log as well; an exam's answers do not.
    pub log_stdout: bool,
}

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(i32),
    /// By a signal that the driver did not send.
    Killed(i32),
    /// Past its limit; the driver ended it.
    TimedOut,
    /// A stop was asked for; the driver ended it.
    Stopped,
    /// It could not be started.
    NotStarted(String),
}

impl End {
    /// Exit code 0.
    pub fn is_success(&self) -> bool {
        *self == Self::Exited(0)
    }
}

impl std::fmt::Display for End {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Exited(code) => write!(f, "exited with {code}"),
            Self::Killed(signal) => write!(f, "was killed by signal {signal}"),
            Self::TimedOut => f.write_str("ran past its time limit"),
            Self::Stopped => f.write_str("was stopped"),
            Self::NotStarted(error) => write!(f, "could not be started: {error}"),
        }
    }
}

/// What is known of a command that has ended, with every descendant.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub end: End,
    /// From start to the end of the last descendant.
    pub wall: Duration,
    /// Largest resident memory of all its processes together, sampled; 0 when it ended before a look.
    pub peak_bytes: u64,
    /// Descendants that had to be killed after the command itself was over.
    pub strays: usize,
}

/// Runs a command to its end. What it prints goes to `log`, and to `out` as it comes.
pub fn run(spec: Spec<'_>, log: &mut RunLog, out: &mut dyn FnMut(Stream, &[u8]), stop: &StopFlag) -> Ended {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let alone = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let start = Instant::now();
    let program = spec.command.first().cloned().unwrap_or_default();
    match Running::start(spec, &alone) {
        Ok(mut running) => {
            let end = running.drive(log, out, stop);
            let strays = running.end_all(log, out);
            tracing::debug!(program, ?end, wall = ?start.elapsed(), strays, "command");
            Ended { end, wall: start.elapsed(), peak_bytes: running.peak_bytes, strays }
        }
        Err(error) => Ended {
            end: End::NotStarted(format!("{program}: {error}")),
            wall: start.elapsed(),
            peak_bytes: 0,
            strays: 0,
        },
    }
}

/// First line of what a trusted program prints about itself, for example `rustc --version`; `None` where it
/// cannot be run.
pub fn first_line_of(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8_lossy(&output.stdout);
    output.status.success().then(|| text.lines().next().unwrap_or_default().trim().to_owned())
}

struct Running<'a> {
    child: Child,
    status: Option<ExitStatus>,
    outputs: [(Stream, Option<OwnedFd>); 2],
    stdin: Option<(OwnedFd, Vec<u8>, usize)>,
    log_stdout: bool,
    deadline: Instant,
    next_look: Instant,
    look_every: Duration,
    peak_bytes: u64,
    _alone: &'a MutexGuard<'static, ()>,
}

impl<'a> Running<'a> {
    fn start(spec: Spec<'_>, alone: &'a MutexGuard<'static, ()>) -> std::io::Result<Self> {
        let [program, args @ ..] = spec.command else {
            return Err(std::io::Error::other("the command is empty"));
        };
        become_subreaper();
        let mut command = Command::new(program);
        command.args(args).current_dir(&spec.dir).env_clear().envs(&spec.env);
        command.stdin(if spec.stdin.is_some() { Stdio::piped() } else { Stdio::null() });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        // SAFETY: between fork and exec the closure makes two or three system calls and touches no memory
        // that another thread could hold locked: no allocation, no lock.
        unsafe {
            command.pre_exec(|| {
                rustix::process::setsid()?;
                die_with_driver()
            });
        }
        let mut child = command.spawn()?;
        let stdin = child.stdin.take().map(OwnedFd::from);
        let stdout = child.stdout.take().map(OwnedFd::from);
        let stderr = child.stderr.take().map(OwnedFd::from);
        for fd in [&stdin, &stdout, &stderr].into_iter().flatten() {
            let flags = rustix::fs::fcntl_getfl(fd)?;
            rustix::fs::fcntl_setfl(fd, flags | OFlags::NONBLOCK)?;
        }
        let now = Instant::now();
        Ok(Self {
            child,
            status: None,
            outputs: [(Stream::Out, stdout), (Stream::Err, stderr)],
            stdin: stdin.zip(spec.stdin).map(|(fd, bytes)| (fd, bytes, 0)),
            log_stdout: spec.log_stdout,
            deadline: now + spec.limit,
            next_look: now + Duration::from_millis(20),
            look_every: Duration::from_millis(20),
            peak_bytes: 0,
            _alone: alone,
        })
    }

    /// Until the command itself is over, or must be.
    fn drive(&mut self, log: &mut RunLog, out: &mut dyn FnMut(Stream, &[u8]), stop: &StopFlag) -> End {
        let mut idle = Duration::from_micros(200);
        loop {
            if let Ok(Some(status)) = self.child.try_wait() {
                self.status = Some(status);
                return match (status.code(), status.signal()) {
                    (Some(code), _) => End::Exited(code),
                    (None, signal) => End::Killed(signal.unwrap_or(0)),
                };
            }
            if stop.is_set() {
                return End::Stopped;
            }
            let now = Instant::now();
            if now >= self.deadline {
                return End::TimedOut;
            }
            if now >= self.next_look {
                self.look();
            }
            let wait = TICK.min(self.deadline - now).min(self.next_look.saturating_duration_since(now));
            if self.outputs.iter().all(|(_, fd)| fd.is_none()) && self.stdin.is_none() {
                // both pipes are closed: the end is near, so look often, but not for ever
                std::thread::sleep(idle.min(wait));
                idle = (idle * 2).min(TICK);
            } else {
                self.pump(wait, log, out);
            }
        }
    }

    /// Moves bytes for at most `wait`.
    fn pump(&mut self, wait: Duration, log: &mut RunLog, out: &mut dyn FnMut(Stream, &[u8])) -> bool {
        let mut fds = Vec::with_capacity(3);
        fds.extend(
            self.outputs.iter().filter_map(|(_, fd)| fd.as_ref()).map(|fd| PollFd::new(fd, PollFlags::IN)),
        );
        fds.extend(self.stdin.iter().map(|(fd, ..)| PollFd::new(fd, PollFlags::OUT)));
        let timeout = Timespec { tv_sec: wait.as_secs() as i64, tv_nsec: i64::from(wait.subsec_nanos()) };
        let ready = poll(&mut fds, Some(&timeout)).unwrap_or(0) > 0; // EINTR: the loop comes round again
        drop(fds);
        if !ready {
            return false;
        }
        let mut moved = false;
        let mut buffer = [0; 64 << 10];
        for (stream, fd) in &mut self.outputs {
            let Some(open) = fd else { continue };
            match rustix::io::read(open.as_fd(), &mut buffer) {
                Ok(0) => *fd = None,
                Ok(n) => {
                    moved = true;
                    if *stream == Stream::Err || self.log_stdout {
                        log.push(*stream, &buffer[..n]);
                    }
                    out(*stream, &buffer[..n]);
                }
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => *fd = None,
            }
        }
        if let Some((fd, bytes, sent)) = &mut self.stdin {
            match rustix::io::write(fd.as_fd(), &bytes[*sent..]) {
                Ok(n) => *sent += n,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => {}
                Err(_) => *sent = bytes.len(), // it reads no more; what it does then is its affair
            }
            if *sent == bytes.len() {
                self.stdin = None;
            }
        }
        moved
    }

    /// Samples memory, ever less often: 20 ms after the start, then up to once a second.
    fn look(&mut self) {
        let mut bytes = 0;
        for process in descendants(self.child.id()) {
            bytes += process.resident_bytes();
        }
        self.peak_bytes = self.peak_bytes.max(bytes);
        self.look_every = (self.look_every * 2).min(Duration::from_secs(1));
        self.next_look = Instant::now() + self.look_every;
    }

    /// Ends every descendant and reads what is left in the pipes. Returns how many were left over.
    fn end_all(&mut self, log: &mut RunLog, out: &mut dyn FnMut(Stream, &[u8])) -> usize {
        let first = descendants(self.child.id());
        let strays = first.iter().filter(|process| process.pid != self.child.id()).count();
        // the command itself is asked politely; what outlives a command that is over is not
        if self.status.is_none() {
            signal_all(&first, Signal::TERM);
            let until = Instant::now() + TERM_GRACE;
            while Instant::now() < until && !descendants(self.child.id()).is_empty() {
                self.pump(Duration::from_millis(10), log, out);
                self.status = self.child.try_wait().ok().flatten();
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        loop {
            let left = descendants(self.child.id());
            if left.is_empty() {
                break;
            }
            // stopped first, so that none forks between the look and the KILL
            signal_all(&left, Signal::STOP);
            signal_all(&descendants(self.child.id()), Signal::KILL);
            if self.status.is_none() {
                self.status = self.child.try_wait().ok().flatten();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        // a pipe holds 64 KiB; the bound is for a writer that got away where descendants cannot be found
        for _ in 0..64 {
            if !self.pump(Duration::ZERO, log, out) {
                break;
            }
        }
        if self.status.is_none() {
            self.status = self.child.wait().ok();
        }
        strays
    }
}

#[cfg(test)]
mod tests;
