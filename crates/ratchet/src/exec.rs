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
        unix::{
            fs::MetadataExt,
            process::{CommandExt, ExitStatusExt},
        },
    },
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Access, OFlags},
    process::Signal,
};

use sandbox::Confinement;

use crate::{
    processes::{become_subreaper, descendants, die_with_driver, limit_process, signal_all},
    runlog::{RunLog, Stream},
};

/// Time between TERM and KILL.
const TERM_GRACE: Duration = Duration::from_secs(2);
/// The longest wait in one go, so that limits and stop requests are seen in time.
const TICK: Duration = Duration::from_millis(50);

/// What the environment of a command may inherit.
const ALLOWED: [&str; 19] = [
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
    "CUDA_COMPUTE_CAP",
    "CUDARC_CUDA_VERSION", // for a compiler newer than cudarc knows
    "CUDA_DEVICE_ORDER",
    "CUDA_HOME", // where builds look for CUDA, from here on
    "CUDA_PATH",
    "CUDA_ROOT",
    "CUDA_TOOLKIT_ROOT_DIR",
    "NVCC_CCBIN", // the compiler of nvcc's host code
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
    /// What it may reach; `None` runs it with the user's rights.
    pub confinement: Option<Confinement>,
    /// What it may use up.
    pub limits: Limits,
}

impl<'a> Spec<'a> {
    /// A command with the user's rights, without input or limits but that of time.
    pub fn new(
        command: &'a [String],
        dir: PathBuf,
        env: BTreeMap<OsString, OsString>,
        limit: Duration,
    ) -> Self {
        Self {
            command,
            dir,
            env,
            stdin: None,
            limit,
            log_stdout: true,
            confinement: None,
            limits: Limits::default(),
        }
    }
}

/// What a command may use up.
#[derive(Clone, Debug, Default)]
pub struct Limits {
    /// Resident memory of all its processes together.
    pub memory_bytes: Option<u64>,
    /// Bytes below the folder that it writes.
    pub disk: Option<(PathBuf, u64)>,
}

/// Files below the folder that a command writes; a flood of empty ones fills a disk as well.
const MOST_FILES: u64 = 20_000;
/// Free space below which a command is ended before the driver itself cannot write.
const LEAST_FREE: u64 = 128 << 20;

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// By itself.
    Exited(i32),
    /// By a signal that the driver did not send.
    Killed(i32),
    /// Past its limit; the driver ended it.
    TimedOut,
    /// It held more memory than it may; the driver ended it.
    OutOfMemory,
    /// It wrote more than it may, or the disk is nearly full; the driver ended it.
    OutOfDisk,
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
            Self::OutOfMemory => f.write_str("took more memory than it may ([sandbox] memory_gb)"),
            Self::OutOfDisk => f.write_str("wrote more than it may ([sandbox] disk_gb), or filled the disk"),
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

/// Where PATH leads to a program of this name.
pub fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Whether a program can be run: one of PATH, or, named by a path, a file below `root` that may be executed.
pub fn is_there(root: &Path, program: &str) -> bool {
    let runnable = |file: &Path| file.is_file() && rustix::fs::access(file, Access::EXEC_OK).is_ok();
    match program.contains('/') {
        true => runnable(&root.join(program)),
        false => on_path(program).is_some(),
    }
}

/// Runs a command for what it prints to stdout; nothing is logged, and nobody can stop it before its limit.
pub fn ask(spec: Spec<'_>) -> (End, Vec<u8>) {
    let (mut answer, mut log) = (Vec::new(), RunLog::create(Path::new("/dev/null")));
    let mut hear = |stream, bytes: &[u8]| {
        if stream == Stream::Out {
            answer.extend_from_slice(bytes);
        }
    };
    let end = run(spec, &mut log, &mut hear, &StopFlag::default()).end;
    (end, answer)
}

/// What a trusted program prints about itself, for example `rustc --version`; `None` where it cannot be run, or
/// does not answer in ten seconds.
pub fn output_of(program: &str, args: &[&str]) -> Option<String> {
    output_within(Duration::from_secs(10), program, args)
}

fn output_within(limit: Duration, program: &str, args: &[&str]) -> Option<String> {
    let command: Vec<String> = [program].iter().chain(args).map(|&arg| arg.to_owned()).collect();
    // here: rustup takes the toolchain from the folder
    let (end, answer) = ask(Spec::new(&command, ".".into(), allowed_env(), limit));
    end.is_success().then(|| String::from_utf8_lossy(&answer).into_owned())
}

/// Its first line.
pub fn first_line_of(program: &str, args: &[&str]) -> Option<String> {
    Some(output_of(program, args)?.lines().next().unwrap_or_default().trim().to_owned())
}

struct Running<'a> {
    child: Child,
    status: Option<ExitStatus>,
    outputs: [(Stream, Option<OwnedFd>); 2],
    stdin: Option<(OwnedFd, Vec<u8>, usize)>,
    log_stdout: bool,
    deadline: Instant,
    limits: Limits,
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
        let mut confinement = spec.confinement;
        command.envs(confinement.as_ref().and_then(Confinement::variable));
        let most_bytes = spec.limits.disk.as_ref().map(|(_, bytes)| *bytes);
        // SAFETY: between fork and exec the closure makes system calls and touches no memory that another
        // thread could hold locked: no allocation, no lock.
        unsafe {
            command.pre_exec(move || {
                rustix::process::setsid()?;
                die_with_driver()?;
                limit_process(most_bytes)?;
                confinement.as_mut().map_or(Ok(()), Confinement::enter)
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
            limits: spec.limits,
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
                    (None, Some(signal)) if signal == Signal::XFSZ.as_raw() => End::OutOfDisk,
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
            if now >= self.next_look
                && let Some(end) = self.look()
            {
                return end;
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

    /// Samples what it uses, ever less often: 20 ms after the start, then up to four times a second.
    fn look(&mut self) -> Option<End> {
        let mut bytes = 0;
        for process in descendants(self.child.id()) {
            bytes += process.resident_bytes();
        }
        self.peak_bytes = self.peak_bytes.max(bytes);
        self.look_every = (self.look_every * 2).min(Duration::from_millis(250));
        self.next_look = Instant::now() + self.look_every;
        if self.limits.memory_bytes.is_some_and(|most| bytes > most) {
            return Some(End::OutOfMemory);
        }
        let (folder, most) = self.limits.disk.as_ref()?;
        let full = rustix::fs::statvfs(folder).is_ok_and(|stat| stat.f_bavail * stat.f_frsize < LEAST_FREE);
        (full || holds_more(folder, *most)).then_some(End::OutOfDisk)
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

/// Whether the files below `folder` are more, or larger together, than allowed; stops counting there.
fn holds_more(folder: &Path, most: u64) -> bool {
    let (mut bytes, mut files) = (0, 0);
    let mut queue = vec![folder.to_path_buf()];
    while let Some(folder) = queue.pop() {
        for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
            let Ok(meta) = entry.metadata() else { continue };
            files += 1;
            bytes += meta.blocks() * 512; // a hole takes no space
            if files > MOST_FILES || bytes > most {
                return true;
            }
            if meta.is_dir() {
                queue.push(entry.path());
            }
        }
    }
    false
}

#[cfg(test)]
mod tests;
