//! A recorded night: what was proposed and answered, what was measured, what was decided, in order.
//!
//! One JSON object a line. It is enough to play the night back anywhere, without keys, network or GPU: proposals,
//! runs and the noise known beforehand come from the file, and everything that decides is the driver's own.

mod playback;
mod record;

use std::path::Path;

use serde::{Deserialize, Serialize};

pub use self::{playback::Playback, record::record};
use crate::{
    config::Llm,
    error::{Error, Result},
    measure::Measured,
    noise::{Spread, Value},
    plain_file,
    proposer::{Demand, Nothing, Proposal},
    source::TreeHash,
    verdict::Crash,
};

/// The version of what is written; a newer one is not read.
const VERSION: u32 = 1;
/// The sections of a contract that decide how a value is judged.
const DECIDES: [&str; 3] = ["task", "metric", "accept"];

/// What a night was played on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Head {
    v: u32,
    tag: String,
    /// The editable files that it began with.
    source: TreeHash,
    /// (section, canonical JSON) of what decides.
    contract: Vec<(String, String)>,
    profile: Option<String>,
    device: String,
    /// The noise that other tags had measured.
    noise: Option<Spread>,
    /// How the model was asked whose answers are here.
    llm: Option<Llm>,
}

/// Something that happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Line {
    Head(Head),
    /// A proposal came to nothing.
    Nothing {
        proposer: String,
        kind: Nothing,
        reason: String,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        calls: Vec<String>,
    },
    /// A trial ended; the first is the baseline.
    Trial(Box<Trial>),
    /// The champion was run again.
    Again(Again),
    /// The last line, so that a file that was cut off is known.
    End {
        /// How many trials there are.
        trials: usize,
    },
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Trial {
    trial: u64,
    proposer: String,
    /// With whole texts as edits, against the files that it started from.
    proposal: Proposal,
    /// Files that it does not have any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
    /// What it started from, where that was not the champion.
    carries: Option<u64>,
    excursion: Option<u64>,
    demand: Demand,
    /// Its editable files as tokens.
    source: TreeHash,
    /// Whether it was made while another trial trained.
    #[serde(default)]
    ahead: bool,
    /// What each round's `calls.jsonl` holds: those of the proposal, then those of each repair.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    calls: Vec<String>,
    /// One value a run.
    values: Vec<f64>,
    memory_gb: f64,
    tokens_m: Option<f64>,
    mfu_percent: Option<f64>,
    /// What the choice of exam rows leaves open.
    sampling: f64,
    crash: Option<Crash>,
    /// `verdict.json` as it was written.
    verdict: String,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Again {
    trial: u64,
    run: u32,
    value: Option<f64>,
    tokens_m: Option<f64>,
    seconds: f64,
}

impl Trial {
    /// Run `run` of it.
    fn measured(&self, run: u32) -> std::result::Result<Measured, Crash> {
        if let Some(crash) = &self.crash {
            return Err(crash.clone());
        }
        let value = self.values.get(run as usize).and_then(|value| Value::new(*value).ok());
        let missing = || Crash {
            outcome: "not_recorded".to_owned(),
            reason: format!("the recording has no run {} of trial {}", run + 1, self.trial),
        };
        Ok(Measured {
            value: value.ok_or_else(missing)?,
            memory_gb: self.memory_gb,
            tokens_m: self.tokens_m,
            mfu_percent: self.mfu_percent,
        })
    }
}

/// Reads a night. Exit code 2 names the line that is not one of its own.
fn read(path: &Path) -> Result<(Head, Vec<Line>)> {
    let text = plain_file::read_whole(path)
        .map_err(|error| Error::usage("the recorded night cannot be read").at(path).because(error))?;
    let mut lines = Vec::new();
    for (number, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = serde_json::from_slice(line).map_err(|error| {
            Error::usage(format!("line {} is not of a recorded night", number + 1)).at(path).because(error)
        })?;
        lines.push(line);
    }
    let trials = lines.iter().filter(|line| matches!(line, Line::Trial(_))).count();
    let whole = lines.last() == Some(&Line::End { trials });
    match lines.first() {
        Some(Line::Head(head)) if head.v > VERSION => {
            Err(Error::usage(format!("recorded by a newer ratchet (format {})", head.v)).at(path))
        }
        Some(Line::Head(_)) if !whole => Err(Error::usage("the recorded night is cut off").at(path)),
        Some(Line::Head(head)) => Ok((head.clone(), lines.drain(1..lines.len() - 1).collect())),
        _ => Err(Error::usage("not a recorded night").at(path).hint("`ratchet record` makes one")),
    }
}
