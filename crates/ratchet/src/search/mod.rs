//! The search that changes how it searches.
//!
//! Level 1 proposes and ratchets. Level 1.5 looks at the trials every few of them and adjusts the search's settings:
//! strategy, what is frozen, guidance. Level 2 holds a research session on a plateau, which may end with a new
//! *mechanism*: a script at the hooks of the search, validated, tried, and kept only while its measured gain is above
//! zero.
//!
//! All that was decided stands in the journal, and [`Search`] is what that adds up to, so that a night that was
//! killed goes on as it would have. Whatever fails here costs this and nothing else: the trial goes on as at level 1.

pub mod adoption;
pub(crate) mod at_desk;
pub mod cycle;
pub mod evidence;
#[cfg(test)]
mod fixture;
mod folder;
pub(crate) mod library;
pub mod listing;
pub(crate) mod memory;
pub mod research;
pub mod settings;
pub mod staff;
pub mod standing;
pub(crate) mod tend;
pub(crate) mod trace;
pub mod voice;
#[cfg(test)]
mod wire;

use serde::{Deserialize, Serialize};

use self::{
    cycle::CycleEnd,
    research::{Outcome, SessionEnd},
};
pub use self::{
    settings::{Settings, Strategy},
    standing::{Change, Mechanism, Mechanisms, Standing, Use},
};
use crate::{config::Level, journal::TrialRecord, proposer::Usage};

/// How much of the search may change during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Levels {
    /// Whether settings are adjusted.
    pub settings: bool,
    /// Whether research sessions are held.
    pub research: Research,
}

/// What happens on a plateau.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Research {
    /// Nothing.
    #[default]
    No,
    /// A session that may end with a new mechanism, and a restart.
    Sessions {
        /// Whether its prompts name fields to borrow from.
        hints: bool,
    },
    /// Nothing; but those mechanisms are called that were switched on by hand.
    Mechanisms,
    /// The restart alone: the control that tells what of a gain is the restart's.
    Restarts,
}

impl Research {
    /// Whether mechanisms are called.
    pub fn has_mechanisms(self) -> bool {
        matches!(self, Self::Sessions { .. } | Self::Mechanisms)
    }
}

impl From<Level> for Levels {
    fn from(level: Level) -> Self {
        match level {
            Level::One => Self::default(),
            Level::OneAndAHalf => Self { settings: true, research: Research::No },
            Level::Two => Self { settings: true, research: Research::Sessions { hints: true } },
        }
    }
}

/// What the journal says of the search itself.
#[derive(Clone, Debug, Default)]
pub struct Search {
    settings: Settings,
    cycles: Counted,
    sessions: Counted,
    restarted: usize,
    mechanisms: Mechanisms,
    spent: Usage,
    seconds: f64,
}

/// How often something was done, when last, and how often it came to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counted {
    /// How often.
    pub done: u64,
    /// Trials of the tag before the last time.
    #[serde(skip)]
    pub last: usize,
    /// Of these, those that failed.
    pub failed: u64,
}

impl Counted {
    fn count(&mut self, trials: usize, failed: bool) {
        self.done += 1;
        self.failed += u64::from(failed);
        self.last = trials;
    }
}

impl Search {
    /// The settings in force.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Looks at the settings so far.
    pub fn cycles(&self) -> Counted {
        self.cycles
    }

    /// Research sessions so far.
    pub fn sessions(&self) -> Counted {
        self.sessions
    }

    /// Trials of the tag before the latest restart.
    pub fn restarted(&self) -> usize {
        self.restarted
    }

    /// Every mechanism of the tag.
    pub fn mechanisms(&self) -> &Mechanisms {
        &self.mechanisms
    }

    /// What cycles and sessions have cost.
    pub fn spent(&self) -> Usage {
        self.spent
    }

    /// How long they took.
    pub fn seconds(&self) -> f64 {
        self.seconds
    }

    pub(crate) fn cycled(&mut self, end: CycleEnd, trials: usize) {
        self.cycles.count(trials, end.fault.is_some());
        self.paid(end.usage, end.seconds);
        self.settings = end.settings;
    }

    pub(crate) fn researched(&mut self, at: String, end: SessionEnd, trials: usize) {
        self.sessions.count(trials, matches!(end.outcome, Outcome::Failed { .. }));
        self.paid(end.usage, end.seconds);
        self.restart(trials);
        if let Outcome::Mechanism { name, what, .. } = end.outcome {
            let change = Change { at, id: end.id.clone(), to: Standing::Canary, reason: what };
            self.changed(change, trials);
            self.mechanisms.named(&end.id, &name);
        }
    }

    pub(crate) fn restart(&mut self, trials: usize) {
        self.restarted = trials;
    }

    pub(crate) fn changed(&mut self, change: Change, trials: usize) {
        self.mechanisms.change(change, trials);
    }

    pub(crate) fn came_to_nothing(&mut self, uses: &[Use]) {
        self.mechanisms.used(uses);
    }

    pub(crate) fn tried(&mut self, record: &TrialRecord, earlier: &[TrialRecord]) {
        self.mechanisms.trialled(record, earlier);
    }

    fn paid(&mut self, usage: Usage, seconds: f64) {
        self.spent += usage;
        self.seconds += seconds;
    }
}
