//! `ratchet pause`, `resume` and `stop`: a run steered from another terminal.
//!
//! A run puts `.ratchet/control.json` there when it starts and takes it away when it ends; the commands write
//! into it what they wish, and the loop looks between trials. What an earlier run left there bears that run's
//! process id and means nothing to this one.

use std::{fs, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Error, Result},
    journal::{self, Event},
    plain_file,
    progress::{Observer, Progress},
    review::Limit,
    run::{SIGNALLED, now},
    session::Session,
    state::{State, replace},
    stop::Watch,
};

/// How often a paused loop looks whether it may go on.
const GLANCE: Duration = Duration::from_millis(500);
/// The reason of a run that `ratchet stop` ended.
pub const STOPPED: &str = "stopped by `ratchet stop`";

/// What a person wants of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Wish {
    /// To go on.
    Go,
    /// To go on although too many keeps are unreviewed.
    GoOn,
    /// To wait after the trial.
    Pause,
    /// To end after the trial.
    Stop,
    /// To end at once; it has been told.
    StopNow,
}

impl Wish {
    /// Whether the run is to end, sooner or later.
    pub fn ends(self) -> bool {
        matches!(self, Self::Stop | Self::StopNow)
    }
}

/// `control.json`.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Wished {
    /// The run that is meant.
    pid: u32,
    wish: Wish,
}

/// The loop's side; taken away with the run.
#[derive(Debug)]
pub(crate) struct Control {
    state: State,
}

impl Control {
    /// Begins to listen. The caller holds the lock.
    pub(crate) fn listen(state: &State) -> Result<Self> {
        write(state, Wished { pid: std::process::id(), wish: Wish::Go })?;
        Ok(Self { state: state.clone() })
    }

    /// What is wished now.
    pub(crate) fn wish(&self) -> Wish {
        wish(&self.state, std::process::id()).unwrap_or(Wish::Go)
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = fs::remove_file(path(&self.state)); // left behind, it means nothing to anyone
    }
}

impl Session {
    /// Waits while a person wishes it, or while too many keeps are unreviewed; the reason when the run is to end.
    pub(crate) fn heed(
        &mut self,
        control: &Control,
        limit: &mut Limit,
        watch: &Watch,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        let mut paused: Option<Option<String>> = None;
        let reason = loop {
            if self.stop.is_set() {
                break Some(SIGNALLED.to_owned());
            }
            if let Some(reason) = self.end_of(watch) {
                break Some(reason);
            }
            let why = match control.wish() {
                Wish::Stop | Wish::StopNow => break Some(STOPPED.to_owned()),
                Wish::Pause => None,
                Wish::GoOn => {
                    limit.lift();
                    break None;
                }
                Wish::Go => match self.too_many_unreviewed(limit, observer) {
                    None => break None,
                    why => why,
                },
            };
            // the number may fall while it waits: that is told once
            if paused.as_ref().is_none_or(|told| told.is_some() != why.is_some()) {
                if paused.is_some() {
                    self.journal.append(Event::Resumed { at: now() })?;
                }
                self.journal.append(Event::Paused { at: now(), why: why.clone() })?;
                observer.tell(Progress::Paused { why: why.as_deref() });
                paused = Some(why);
            }
            self.sleep(GLANCE);
        };
        if paused.is_some() {
            self.journal.append(Event::Resumed { at: now() })?;
            if reason.is_none() {
                observer.tell(Progress::Resumed);
            }
        }
        Ok(reason)
    }
}

impl Session {
    /// Why the run has to wait for a review. Decisions that cannot be read stop no night: that is told once.
    fn too_many_unreviewed(&mut self, limit: &mut Limit, observer: &mut dyn Observer) -> Option<String> {
        limit.reached(self.history()).unwrap_or_else(|error| {
            observer.tell(Progress::Note(&format!("goes on without asking for a review: {error}")));
            limit.lift();
            None
        })
    }
}

/// What is wished of the run with this process id; `None` when it listens to no wish.
pub fn wish(state: &State, pid: u32) -> Option<Wish> {
    let bytes = plain_file::read(&path(state)).ok()?;
    let wished: Wished = serde_json::from_slice(&bytes).ok()?;
    (wished.pid == pid).then_some(wished.wish)
}

/// Has the run wait after its trial. What to tell the person. Exit code 2 when there is no run.
pub fn pause(state: &State) -> Result<String> {
    let (pid, wish) = run(state)?;
    if wish.ends() {
        return Err(Error::usage(format!("the run (pid {pid}) was asked to stop"))
            .hint("it ends after its trial; `ratchet run` begins the next one"));
    }
    write(state, Wished { pid, wish: Wish::Pause })?;
    Ok(format!("the run (pid {pid}) pauses after its trial; `ratchet resume` lets it go on\n"))
}

/// Has a paused run go on. Exit code 2 when there is no run, or one that is to stop.
pub fn resume(state: &State) -> Result<String> {
    match run(state)? {
        (pid, Wish::Stop | Wish::StopNow) => {
            Err(Error::usage(format!("the run (pid {pid}) was asked to stop"))
                .hint("it ends after its trial; `ratchet run` begins the next one"))
        }
        (pid, Wish::Go) if is_paused(state)? => {
            write(state, Wished { pid, wish: Wish::GoOn })?;
            Ok(format!("the run (pid {pid}) goes on, and what it kept is still to be reviewed\n"))
        }
        (pid, Wish::Go | Wish::GoOn) => Ok(format!("the run (pid {pid}) is not paused\n")),
        (pid, Wish::Pause) => {
            write(state, Wished { pid, wish: Wish::Go })?;
            Ok(format!("the run (pid {pid}) goes on\n"))
        }
    }
}

/// Ends the run after its trial, or at once and without a row for the trial. Exit code 2 when there is no run.
pub fn stop(state: &State, now: bool) -> Result<String> {
    let (pid, wish) = run(state)?;
    if wish == Wish::StopNow {
        // a second TERM would end the driver before it could end its trial
        return Ok(format!("the run (pid {pid}) is ending\n"));
    }
    write(state, Wished { pid, wish: if now { Wish::StopNow } else { Wish::Stop } })?;
    if !now {
        return Ok(format!("the run (pid {pid}) ends after its trial\n"));
    }
    signal(state, pid)?;
    Ok(format!("the run (pid {pid}) ends now; a trial under way has no row, and its number is used again\n"))
}

/// The run that is under way, and what is wished of it.
fn run(state: &State) -> Result<(u32, Wish)> {
    let Some(pid) = state.running() else {
        return Err(Error::usage("no run is under way here")
            .hint("`ratchet run` starts one; `ratchet status` shows where it stands"));
    };
    wish(state, pid).map(|wish| (pid, wish)).ok_or_else(|| {
        Error::usage(format!("pid {pid} is at work here, but it is no `ratchet run`"))
            .hint("wait for it, or end it with Ctrl-C or TERM")
    })
}

/// Whether the run waits, as its journal says.
fn is_paused(state: &State) -> Result<bool> {
    let Some(tag) = state.current()? else { return Ok(false) };
    Ok(journal::read(&state.tag(&tag).journal())?.paused_since().is_some())
}

fn path(state: &State) -> PathBuf {
    state.dir().join("control.json")
}

/// Two terminals may write at once, and the run's lock is not theirs to take: each by way of a file of its own.
fn write(state: &State, wished: Wished) -> Result<()> {
    let via = state.dir().join(format!("control.json.{}", std::process::id()));
    replace(&path(state), &via, &serde_json::to_vec(&wished).unwrap_or_default()) // a number and a word: cannot fail
}

/// Asks the process that holds the lock to end, as TERM does, if it still is that process.
#[cfg(target_os = "linux")]
fn signal(state: &State, pid: u32) -> Result<()> {
    use std::os::unix::fs::MetadataExt;

    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

    let gone = |why: &str| {
        Error::usage(format!("pid {pid} {why}"))
            .hint("the run ends after its trial; to end it at once send it TERM, where it runs")
    };
    let raw = i32::try_from(pid).ok().and_then(Pid::from_raw).ok_or_else(|| gone("is no process id"))?;
    // first the process, then the look at it: a number may be given to another one in between
    let process =
        pidfd_open(raw, PidfdFlags::empty()).map_err(|error| gone("is not there").because(error))?;
    let lock = fs::metadata(state.dir().join("lock")).map(|meta| (meta.dev(), meta.ino())).ok();
    let open = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let mut open = open.filter_map(|entry| fs::metadata(entry.path()).ok());
    if lock.is_none() || !open.any(|meta| Some((meta.dev(), meta.ino())) == lock) {
        return Err(gone("is not seen to hold the lock from here"));
    }
    pidfd_send_signal(process, Signal::TERM).map_err(|error| gone("cannot be signalled").because(error))
}

#[cfg(not(target_os = "linux"))]
fn signal(_: &State, pid: u32) -> Result<()> {
    Err(Error::usage(format!("only on Linux is it certain that pid {pid} is the run"))
        .hint("the run ends after its trial; to end it at once send it TERM"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wish_reaches_the_run_that_is_meant_and_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let state = State::new(dir.path());
        assert!(pause(&state).unwrap_err().to_string().contains("no run is under way"));
        let _lock = state.lock().unwrap();
        assert!(stop(&state, true).unwrap_err().to_string().contains("no `ratchet run`"));
        write(&state, Wished { pid: 1, wish: Wish::Stop }).unwrap(); // an earlier run's
        assert!(stop(&state, true).unwrap_err().to_string().contains("no `ratchet run`"));
        let control = Control::listen(&state).unwrap();
        assert_eq!(control.wish(), Wish::Go);
        pause(&state).unwrap();
        assert_eq!(control.wish(), Wish::Pause);
        resume(&state).unwrap();
        assert_eq!(control.wish(), Wish::Go);
        stop(&state, false).unwrap();
        for refused in [pause(&state), resume(&state)] {
            assert!(refused.unwrap_err().to_string().contains("asked to stop"));
        }
        assert_eq!(control.wish(), Wish::Stop);
        fs::write(path(&state), "{\"pid\": \"x\", ").unwrap();
        assert_eq!(control.wish(), Wish::Go, "nonsense is no wish");
        drop(control);
        assert!(!path(&state).exists());
    }
}
