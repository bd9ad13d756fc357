//! What the driver is doing, told to whoever shows it.

use std::{
    collections::BTreeMap,
    path::Path,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::{
    journal::TrialRecord,
    runlog::{Stream, plain},
};

/// Of a line without an end no more is held.
const LONGEST_LINE: usize = 4 << 10;

/// Receives progress. The library never talks to the terminal itself.
pub trait Observer {
    /// Something happened.
    fn tell(&mut self, progress: Progress<'_>);
}

/// Something that happened.
#[derive(Clone, Copy, Debug)]
pub enum Progress<'a> {
    /// A line that a person should know, once.
    Note(&'a str),
    /// A proposer is asked.
    Proposing {
        /// Its name.
        proposer: &'a str,
    },
    /// A model is asked about the search itself.
    Searching {
        /// What for, as the end of a sentence.
        what: &'a str,
    },
    /// Nothing came of a proposal.
    NoProposal {
        /// Why.
        reason: &'a str,
    },
    /// A trial begins.
    Started {
        /// Its number.
        trial: u64,
        /// Who proposed it.
        proposer: &'a str,
        /// What it tries.
        description: &'a str,
    },
    /// A trial goes on with its next phase.
    Phase {
        /// Which.
        phase: Phase,
        /// How long it usually or at most takes, where that is known.
        about: Option<Duration>,
        /// The folder of the run that it is a part of: of the trial, or of an earlier one that is run again.
        folder: Option<&'a Path>,
    },
    /// The run waits.
    Paused {
        /// What for; `None` where a person asked it to pause.
        why: Option<&'a str>,
    },
    /// It waits no longer.
    Resumed,
    /// The last line that a build or a preparation has printed.
    Output(&'a str),
    /// A trial is over.
    Ended {
        /// Its record.
        record: &'a TrialRecord,
        /// The champion now.
        champion: Option<&'a TrialRecord>,
    },
}

/// Takes a command's output and tells the last line that is whole; programs print lines in pieces.
pub fn last_lines(observer: &mut dyn Observer) -> impl FnMut(Stream, &[u8]) {
    let mut open = Vec::new();
    move |_, bytes| {
        let Some(end) = bytes.iter().rposition(|byte| matches!(byte, b'\n' | b'\r')) else {
            let room = LONGEST_LINE.saturating_sub(open.len());
            return open.extend_from_slice(&bytes[..bytes.len().min(room)]);
        };
        open.extend_from_slice(&bytes[..end]);
        let text = String::from_utf8_lossy(&open);
        if let Some(line) = text.split(['\n', '\r']).rfind(|line| !line.trim().is_empty()) {
            observer.tell(Progress::Output(&plain(line.trim(), 100)));
        }
        open.clear();
        open.extend_from_slice(&bytes[end + 1..]);
    }
}

/// What a trial is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Preparing a profile's data.
    Prepare,
    /// Building.
    Build,
    /// Checking what can be checked in seconds.
    Preflight,
    /// Training.
    Fit,
    /// Scoring.
    Score,
}

impl std::fmt::Display for Phase {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Self::Prepare => "prepare",
            Self::Build => "build",
            Self::Preflight => "preflight",
            Self::Fit => "fit",
            Self::Score => "score",
        })
    }
}

/// Where a trial's time goes.
#[derive(Debug, Default)]
pub struct Stopwatch {
    spent: BTreeMap<Phase, Duration>,
    current: Option<(Phase, Instant)>,
}

impl Stopwatch {
    /// Takes the time of the phases told to `inner` through the result, until that is dropped.
    pub fn over<'a>(&'a mut self, inner: &'a mut dyn Observer) -> Timed<'a> {
        Timed { watch: self, inner }
    }

    /// Seconds in each phase so far.
    pub fn seconds(&self) -> Vec<(Phase, f64)> {
        self.spent.iter().map(|(phase, time)| (*phase, time.as_secs_f64())).collect()
    }

    /// Seconds in one phase so far.
    pub fn of(&self, phase: Phase) -> f64 {
        self.spent.get(&phase).map_or(0.0, Duration::as_secs_f64)
    }

    pub(crate) fn turn(&mut self, next: Option<Phase>) {
        let now = Instant::now();
        if let Some((phase, began)) = self.current.take() {
            *self.spent.entry(phase).or_default() += now - began;
        }
        self.current = next.map(|phase| (phase, now));
    }
}

/// An observer that takes the time of what it passes on.
pub struct Timed<'a> {
    watch: &'a mut Stopwatch,
    inner: &'a mut dyn Observer,
}

impl Observer for Timed<'_> {
    fn tell(&mut self, progress: Progress<'_>) {
        if let Progress::Phase { phase, .. } = progress {
            self.watch.turn(Some(phase));
        }
        self.inner.tell(progress);
    }
}

impl Drop for Timed<'_> {
    fn drop(&mut self) {
        self.watch.turn(None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Heard(Vec<String>);

    impl Observer for Heard {
        fn tell(&mut self, progress: Progress<'_>) {
            if let Progress::Output(line) = progress {
                self.0.push(line.to_owned());
            }
        }
    }

    #[test]
    fn only_whole_lines_are_told_and_of_several_the_last() {
        let mut heard = Heard::default();
        let mut take = last_lines(&mut heard);
        for piece in [" Compiling", " a v1\n", "one\ntwo\r\n\nthr", &"e".repeat(100_000), "\n"] {
            take(Stream::Err, piece.as_bytes());
        }
        drop(take);
        assert_eq!(heard.0[..2], ["Compiling a v1", "two"]);
        assert!(heard.0[2].starts_with("three") && heard.0[2].chars().count() <= 101);
    }
}
