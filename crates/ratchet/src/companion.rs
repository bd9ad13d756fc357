//! A second process of the driver itself, at work beside the commands that the driver runs.
//!
//! It is a subreaper as the driver is, so that whatever it starts stays below it; the driver leaves all of that
//! out when it looks for what its own commands have left behind.

use std::{
    fs::File,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process};

use crate::processes::{MARK, descendants, put_back, signal_all, spawn_apart};

/// Time to end its own commands and itself after TERM.
const GRACE: Duration = Duration::from_secs(5);
/// How often its end is looked for.
const TICK: Duration = Duration::from_millis(20);

/// The process; ended when this is dropped.
#[derive(Debug)]
pub(crate) struct Companion(Child);

impl Companion {
    /// Starts this program again with a hidden command, in `root`. What it prints goes to `log`.
    pub(crate) fn start(
        root: &Path,
        command: &str,
        mark: &std::ffi::OsStr,
        log: &Path,
    ) -> std::io::Result<Self> {
        let log = File::create(log)?;
        let mut process = Command::new(myself()?);
        process.arg0("ratchet").arg("-C").arg(root).arg(command).env(MARK, mark);
        process.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        // a Ctrl-C is for the driver, which then ends it
        process.process_group(0);
        Ok(Self(spawn_apart(&mut process)?))
    }

    /// Whether it has ended.
    pub(crate) fn is_done(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }

    fn end(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if !self.is_done() {
            let _ = pid.map(|pid| kill_process(pid, Signal::TERM)); // gone meanwhile is what we want
            let until = Instant::now() + GRACE;
            while Instant::now() < until && !self.is_done() {
                std::thread::sleep(TICK);
            }
        }
        if !self.is_done() {
            let _ = self.0.kill();
            let _ = self.0.wait();
            // what it had started is the driver's now, which runs nothing else at this moment
            signal_all(&descendants(0), Signal::KILL);
        }
        put_back(self.0.id());
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.end();
    }
}

/// This program, also when its file was replaced since it began.
fn myself() -> std::io::Result<PathBuf> {
    let running = PathBuf::from("/proc/self/exe");
    if running.exists() { Ok(running) } else { std::env::current_exe() }
}
