//! What a mechanism is shown, and what it may answer: plain data, the same in JSON and in the script.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A point of the search where mechanisms are called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hook {
    /// `guide(trace)`: text for the next proposal.
    Guide,
    /// `veto(change, trace)`: a reason not to try a candidate.
    Veto,
    /// `rank(candidates, trace)`: an order of several candidates.
    Rank,
    /// `suggest(knobs, trace)`: knob changes of its own.
    Suggest,
    /// `parent(allowed, trace)`: where an excursion starts.
    Parent,
    /// `record(trial)`: its own state after a finished trial.
    Record,
}

impl Hook {
    /// All of them, in the order in which a trial meets them.
    pub const ALL: [Self; 6] =
        [Self::Parent, Self::Suggest, Self::Guide, Self::Rank, Self::Veto, Self::Record];

    /// The function's name in a script.
    pub fn name(self) -> &'static str {
        match self {
            Self::Guide => "guide",
            Self::Veto => "veto",
            Self::Rank => "rank",
            Self::Suggest => "suggest",
            Self::Parent => "parent",
            Self::Record => "record",
        }
    }

    /// How many arguments it takes.
    pub fn arity(self) -> usize {
        match self {
            Self::Guide | Self::Record => 1,
            Self::Veto | Self::Rank | Self::Suggest | Self::Parent => 2,
        }
    }
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The trials so far, oldest first, and where they have led. A gain is positive whichever way the metric goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trace {
    /// Every finished trial of the tag, the baseline first.
    pub trials: Vec<Trial>,
    /// The champion's trial; 0 before there is one.
    pub champion: u64,
    /// Standard deviation of one run, in the metric's unit; `None` while unknown.
    pub sigma: Option<f64>,
    /// Trials since the last keep.
    pub plateau: u64,
    /// The tunables as they stand in the files that the next proposal starts from.
    pub knobs: Vec<Knob>,
    /// A number that is the same whenever this proposal is made again; for `uniform` and its like.
    pub seed: u64,
}

/// One finished trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Trial {
    /// 1 is the baseline.
    pub trial: u64,
    /// `keep`, `discard` or `crash`.
    pub status: String,
    /// How it was decided, as a word: `improved`, `promising`, `worse`, `build_failed`, …
    pub outcome: String,
    /// By how much it was better than what it started from; below 0 when worse, `None` for a crash.
    pub gain: Option<f64>,
    /// Time it took, all its runs.
    pub seconds: f64,
    /// What it changed.
    pub change: Change,
    /// The champion of its time.
    pub parent: Option<u64>,
    /// The trial that it started from instead, on an excursion.
    pub excursion: Option<u64>,
}

/// A candidate, or what a trial changed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Change {
    /// Who proposed it.
    pub proposer: String,
    /// Its one line.
    pub description: String,
    /// Its category, as its proposer calls it; may be empty.
    pub category: String,
    /// `constant`, `local` or `structural`; empty for a baseline.
    pub class: String,
    /// The files it changes, relative to the root.
    pub files: Vec<String>,
    /// The tunables that it moves, against what it started from.
    pub moves: Vec<Move>,
    /// By how much its proposer expects it to be better; `None` where it does not say.
    pub expected_gain: Option<f64>,
}

/// One tunable moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Move {
    /// The tunable's name.
    pub name: String,
    /// Its value before: a number where it is one, else text.
    pub from: Value,
    /// Its value after.
    pub to: Value,
    /// How far, as a share of its range on its own scale, upwards positive; 1 for another choice.
    pub by: f64,
}

/// One tunable.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Knob {
    /// Its name.
    pub name: String,
    /// `log`, `lin`, `int`, `pow2` or `choice`.
    pub kind: String,
    /// Its value: a number where it is one, else text.
    pub value: Value,
    /// Where that is in its range on its own scale, from 0 to 1; 0 for a choice.
    pub at: f64,
    /// The ends of its range; `None` for a choice.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What there is to choose from; empty for a number.
    pub choices: Vec<String>,
    /// Whether it may not be moved now.
    pub frozen: bool,
    /// Trials that moved it.
    pub tried: u64,
    /// Keeps among them.
    pub kept: u64,
}

/// What `suggest` answers: knobs to move, and why.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Suggestion {
    /// One to three tunables, by name, each with its new value, or with its place in the range as `at`.
    pub moves: Vec<Target>,
    /// One line.
    pub why: String,
}

/// Where one tunable is to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Target {
    /// The tunable's name.
    pub name: String,
    /// Where to: a value, or a place.
    pub to: Place,
}

/// A value of a tunable, or its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// From 0 to 1 in its range on its own scale.
    At(f64),
    /// A number.
    Number(f64),
    /// A choice.
    Choice(String),
}
