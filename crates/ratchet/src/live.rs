//! `.ratchet/live.json`: what the driver does at this moment, for whoever watches from another terminal.
//!
//! Written at each change, whole or not at all, and taken away with the run. It is never synced: after a crash
//! it is worthless. What a killed run left bears that run's process id and means nothing to anyone.

use std::{
    fs,
    io::{Read, Write},
    ops::{Deref, DerefMut},
    path::PathBuf,
    time::Duration,
};

use serde::{Deserialize, Serialize};

use crate::{
    plain_file,
    progress::{Observer, Phase, Progress, Stopwatch},
    run::now as moment,
    runlog::plain,
    session::Session,
    state::{State, create_new},
};

/// The largest file that is read: what we write has some hundreds of bytes.
const LARGEST: u64 = 64 << 10;

/// What the driver does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// Nothing yet, or it is between two trials.
    Between,
    /// A proposer is asked.
    Proposing,
    /// A model is asked about the search itself.
    Searching,
    /// It waits for a person.
    Paused,
    /// A trial, a run of an earlier one, or the preparation of data is in this phase.
    #[serde(untagged)]
    Phase(Phase),
}

impl std::fmt::Display for Doing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Between => f.pad("between trials"),
            Self::Proposing => f.pad("propose"),
            Self::Searching => f.pad("search"),
            Self::Paused => f.pad("paused"),
            Self::Phase(phase) => phase.fmt(f),
        }
    }
}

/// `live.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Now {
    /// The driver.
    pub pid: u32,
    /// The tag it works on.
    pub tag: String,
    /// This invocation, as the account of what proposers spend has it.
    pub payer: String,
    /// What it does.
    pub doing: Doing,
    /// What for, or who is asked, where there is more to say.
    pub detail: String,
    /// Since when, RFC 3339 in UTC.
    pub since: String,
    /// Seconds that it usually or at most takes, where that is known.
    pub about_s: Option<f64>,
    /// The folder of the run under way, below the tag's.
    pub folder: Option<PathBuf>,
    /// The trial under way.
    pub trial: Option<OpenTrial>,
}

/// A trial under way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenTrial {
    /// Its number.
    pub trial: u64,
    /// Who proposed it.
    pub proposer: String,
    /// What it tries.
    pub description: String,
    /// When it began, RFC 3339 in UTC.
    pub began: String,
    /// Phases that are over, with their seconds.
    pub done: Vec<(Phase, f64)>,
}

/// What the driver that holds the lock does now; `None` where none is at work, or it does not say.
pub fn now(state: &State) -> Option<Now> {
    let mut bytes = Vec::new();
    plain_file::open(&path(state)).ok()?.take(LARGEST).read_to_end(&mut bytes).ok()?;
    let now: Now = serde_json::from_slice(&bytes).ok()?;
    (state.running() == Some(now.pid)).then_some(now)
}

fn path(state: &State) -> PathBuf {
    state.dir().join("live.json")
}

/// An observer that writes down what it passes on.
pub struct Live<O> {
    inner: O,
    state: State,
    /// Where folders of runs are named from.
    tag: PathBuf,
    now: Now,
    watch: Stopwatch,
}

impl<O: Observer> Live<O> {
    /// Of a session, which holds the lock.
    pub fn of(session: &Session, inner: O) -> Self {
        let now = Now {
            pid: std::process::id(),
            tag: session.tag.to_string(),
            payer: session.payer.run.clone(),
            doing: Doing::Between,
            detail: String::new(),
            since: moment(),
            about_s: None,
            folder: None,
            trial: None,
        };
        let tag = session.dir.path().to_path_buf();
        let live = Self { inner, state: session.state.clone(), tag, now, watch: Stopwatch::default() };
        live.write();
        live
    }

    fn turn(&mut self, doing: Doing, detail: &str, about: Option<Duration>) {
        self.now.doing = doing;
        self.now.detail = plain(detail, 100);
        self.now.since = moment();
        self.now.about_s = about.map(|about| about.as_secs_f64());
        self.watch.turn(match doing {
            Doing::Phase(phase) => Some(phase),
            _ => None,
        });
        if let Some(open) = &mut self.now.trial {
            open.done = self.watch.seconds();
        }
        self.write();
    }

    /// Neither a full disk nor a folder that is gone is worth a trial: then nobody can watch.
    fn write(&self) {
        let (path, via) = (path(&self.state), self.state.dir().join("live.json.new"));
        let json = serde_json::to_vec(&self.now).unwrap_or_default(); // strings and numbers: cannot fail
        let written = create_new(&via).and_then(|mut file| file.write_all(&json));
        if written.and_then(|()| fs::rename(&via, &path)).is_err() {
            let _ = fs::remove_file(&via);
        }
    }
}

impl<O: Observer> Observer for Live<O> {
    fn tell(&mut self, progress: Progress<'_>) {
        match progress {
            Progress::Proposing { proposer } => self.turn(Doing::Proposing, proposer, None),
            Progress::Searching { what } => self.turn(Doing::Searching, what, None),
            Progress::Paused { why } => self.turn(Doing::Paused, why.unwrap_or_default(), None),
            Progress::Started { trial, proposer, description } => {
                self.watch = Stopwatch::default();
                self.now.trial = Some(OpenTrial {
                    trial,
                    proposer: plain(proposer, 60),
                    description: plain(description, 200),
                    began: moment(),
                    done: Vec::new(),
                });
                self.turn(Doing::Between, "", None);
            }
            Progress::Phase { phase, about, folder } => {
                let below = folder.and_then(|folder| folder.strip_prefix(&self.tag).ok());
                self.now.folder = below.map(PathBuf::from);
                self.turn(Doing::Phase(phase), "", about);
            }
            Progress::Ended { .. } => {
                (self.now.trial, self.now.folder) = (None, None);
                self.turn(Doing::Between, "", None);
            }
            Progress::NoProposal { .. } | Progress::Resumed => self.turn(Doing::Between, "", None),
            Progress::Note(_) | Progress::Output(_) => {}
        }
        self.inner.tell(progress);
    }
}

impl<O> Drop for Live<O> {
    fn drop(&mut self) {
        let _ = fs::remove_file(path(&self.state)); // left behind, it means nothing to anyone
    }
}

/// What is shown besides goes to the inner one.
impl<O> Deref for Live<O> {
    type Target = O;

    fn deref(&self) -> &O {
        &self.inner
    }
}

impl<O> DerefMut for Live<O> {
    fn deref_mut(&mut self) -> &mut O {
        &mut self.inner
    }
}
