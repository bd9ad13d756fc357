//! Proposers: given a brief, return edits.
//!
//! A proposer sees the champion's editable files, what was tried and what came of it; it never sees a
//! judgment's inputs. What it returns is only a wish: the driver applies it, checks it, and decides.

pub mod agent;
pub mod context;
pub mod knobs;
pub mod llm;
pub mod scripted;

use std::{path::Path, time::Duration};

use serde::{Deserialize, Serialize};

use crate::{config::Metric, journal::TrialRecord, search::Strategy};

/// Turns what is known into the next thing to try.
pub trait Proposer {
    /// The name that stands in `results.tsv` and in commit trailers.
    fn name(&self) -> &str;

    /// One candidate, as edits to the brief's files or, for an agent, left in `brief.worktree`.
    fn propose(&mut self, brief: &Brief<'_>) -> Result<Proposal, ProposeError>;

    /// What was spent since this was last asked, whether or not a proposal came of it.
    fn take_spent(&mut self) -> Usage {
        Usage::default()
    }
}

/// Everything a proposer may know.
#[derive(Clone, Copy, Debug)]
pub struct Brief<'a> {
    /// `program.md` as it stands now; empty when there is none.
    pub program: &'a str,
    /// The editable files to start from that are UTF-8, sorted by path.
    pub files: &'a [SourceFile],
    /// Files of the start that are shown besides, as `[proposer] pages` names them.
    pub pages: &'a [SourceFile],
    /// The profile in use; `None` for a task without profiles.
    pub profile: Option<&'a str>,
    /// What is measured, and which way is better.
    pub metric: &'a Metric,
    /// Every trial of this tag, oldest first, the baseline included.
    pub trials: &'a [TrialRecord],
    /// Trials before the latest restart: what they led to still holds, how it was thought of does not.
    pub before_restart: usize,
    /// The champion's record; `None` before the baseline.
    pub best: Option<&'a TrialRecord>,
    /// Whose files the proposal starts from.
    pub start: Start<'a>,
    /// What the driver asks of this proposal beyond the brief.
    pub demand: &'a Demand,
    /// The trial that runs while this proposal is made; its outcome is not known yet.
    pub running: Option<&'a Proposal>,
    /// Why the proposals since the last trial came to nothing, oldest first.
    pub in_vain: &'a [String],
    /// The folder that holds `trials/NNNN`: logs and loss curves of earlier trials.
    pub records: &'a Path,
    /// What is left of this invocation.
    pub budget: Budget,
    /// Derived from the tag and the attempt's number, so that a resumed night goes on as it would have.
    pub seed: u64,
    /// Set when the proposal before this one did not build or failed its preflight.
    pub repair: Option<&'a Repair>,
    /// The worktree's root, holding `files` or, for a repair, the failed attempt.
    pub worktree: &'a Path,
}

/// Whose files a proposal starts from.
#[derive(Clone, Copy, Debug)]
pub enum Start<'a> {
    /// The champion's, or the base's while there is none.
    Champion,
    /// Those of a promising trial, which is not proven yet.
    Lead(&'a TrialRecord),
    /// Those of a trial that was a little worse than the champion, on a plateau: a step back before a leap.
    Excursion(&'a TrialRecord),
}

impl<'a> Start<'a> {
    /// The trial that is not the champion.
    pub fn trial(self) -> Option<&'a TrialRecord> {
        match self {
            Self::Champion => None,
            Self::Lead(trial) | Self::Excursion(trial) => Some(trial),
        }
    }
}

/// What the driver asks of one proposal.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Demand {
    /// A person's idea, to be taken up now.
    pub hint: Option<String>,
    /// Its name in the queue of hints.
    pub hint_id: Option<String>,
    /// Categories tried of late; where there are any, the proposal is to be of another.
    pub unlike: Vec<String>,
    /// Whether the edit is to change structure and not only constants.
    pub structural: bool,
    /// How far to look.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<Strategy>,
    /// Tunables that may not be moved.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub frozen: Vec<String>,
    /// Advice: of the settings, then of mechanisms.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub guidance: Vec<String>,
}

/// One editable file of the champion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceFile {
    /// Relative to the root, `/` between the parts.
    pub path: String,
    /// Its whole text.
    pub text: String,
}

/// What is left before a stop rule ends this invocation; `None` where no rule is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Trials left.
    pub trials: Option<u64>,
    /// Time left.
    pub time: Option<Duration>,
}

/// A proposal that failed before it could be trained, handed back for mending.
#[derive(Clone, Debug, PartialEq)]
pub struct Repair {
    /// The failed proposal, with its edits.
    pub failed: Proposal,
    /// 1 for the first repair.
    pub round: u32,
    /// The compiler's or the preflight's message, shortened; untrusted text.
    pub message: String,
}

/// A candidate as its proposer describes it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Proposal {
    /// One line for `results.tsv` and the commit.
    pub description: String,
    /// Why it should help; may be empty.
    pub hypothesis: String,
    /// What kind of change it is, for example `optimizer`; may be empty.
    pub category: String,
    /// The change of the metric that the proposer expects, in the metric's own sign.
    pub expected_delta: Option<f64>,
    /// Whole new texts of files. Empty when the edits already stand in the worktree.
    pub edits: Vec<Edit>,
    /// The tunables moved, where the proposer knows them.
    pub changes: Vec<KnobChange>,
    /// What the proposal cost, where the provider says so.
    pub usage: Option<Usage>,
    /// Why there is no edit, should none be found: an agent leaves its edits in the worktree, and only the
    /// driver can tell whether it did.
    #[serde(skip)]
    pub unless_edited: Option<ProposeError>,
}

/// A file's whole new text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// Relative to the root, `/` between the parts.
    pub path: String,
    /// What the file holds afterwards.
    pub text: String,
}

/// One tunable moved, values as they stand in the source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnobChange {
    /// The constant's name.
    pub name: String,
    /// Its value in the champion.
    pub from: String,
    /// Its value in the candidate.
    pub to: String,
}

/// Tokens and money spent on one proposal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Input and output together.
    pub tokens: u64,
    /// US dollars; `None` when the provider does not say.
    pub usd: Option<f64>,
}

impl std::ops::AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        self.tokens += other.tokens;
        self.usd = self.usd.into_iter().chain(other.usd).reduce(|a, b| a + b);
    }
}

/// What came of a proposal that is no trial; stands in the journal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Nothing {
    /// No edit, or an answer that holds none.
    #[default]
    Empty,
    /// An edit that may not be tried.
    Refused,
    /// An edit that was tried before.
    Duplicate,
    /// The reviewer's word, before any time was spent on it.
    Vetoed,
    /// The search's own word: it moves what is frozen, or a mechanism is against it.
    Steered,
    /// Past its time limit.
    TimedOut,
    /// The proposer itself failed.
    Down,
}

/// Why there is no proposal. None of these is a trial.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProposeError {
    /// Nothing was changed.
    #[error("the proposer changed nothing")]
    Empty,
    /// It answered, and would not or could not edit.
    #[error("{0}")]
    Declined(String),
    /// Its reviewer refused it.
    #[error("vetoed: {reason} ({description})")]
    Vetoed {
        /// What was proposed.
        description: String,
        /// Why not.
        reason: String,
    },
    /// The proposer ran past its time limit.
    #[error("the proposer took longer than {0:?}")]
    TimedOut(Duration),
    /// The proposer cannot mend a failed attempt; the attempt becomes a crash.
    #[error("the proposer does not repair")]
    CannotRepair,
    /// There is nothing left to try.
    #[error("nothing left to try: {0}")]
    Exhausted(String),
    /// The proposer itself failed; it may be better later.
    #[error("{0}")]
    Failed(String),
    /// The proposer cannot work as it is configured: a key is wrong, a model is unknown.
    #[error("{0}")]
    Unusable(String),
    /// The next call could cost more than the caps leave.
    #[error("{0}")]
    Capped(String),
    /// A signal asked the run to end while the proposer was at work.
    #[error("stopped")]
    Stopped,
}
