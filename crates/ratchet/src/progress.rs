//! What the driver is doing, told to whoever shows it.

use std::time::Duration;

use crate::journal::TrialRecord;

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
    },
    /// A trial is over.
    Ended {
        /// Its record.
        record: &'a TrialRecord,
        /// The champion now.
        champion: Option<&'a TrialRecord>,
    },
}

/// What a trial is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
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

/// An observer that looks away.
#[derive(Debug)]
pub struct Quiet;

impl Observer for Quiet {
    fn tell(&mut self, _: Progress<'_>) {}
}
