//! What the levels above the trials are shown of them: one block of JSON, bounded, free of anybody's orders.
//!
//! It is made of a [`Trace`], which holds no row, no audit and no lesson, and of what became of mechanisms.

use std::{collections::BTreeMap, fmt::Write, ops::AddAssign};

use ::llm::Call;
use mechanism::{Hook, Knob, Trace, Trial};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::settings::Settings;
use crate::{
    config::{Goal, Metric},
    proposer::context::line,
};

/// Trials that are listed, the latest.
const RECENT: usize = 40;
/// How the block begins and ends in a prompt.
const OPENS: &str = "# The evidence\n\n```json\n";
const CLOSES: &str = "\n```\n";

/// Everything that is known, as numbers and short lines.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Evidence {
    /// What is measured.
    pub metric: String,
    /// `lower` or `higher`. Gains are positive whichever it is.
    pub better: String,
    /// Standard deviation of one run; `None` while unknown.
    pub sigma: Option<f64>,
    /// The champion's trial; 0 before there is one.
    pub champion: u64,
    /// Trials since the last keep.
    pub plateau: u64,
    /// Finished trials, and what became of them.
    pub trials: Tally,
    /// What holds now.
    pub settings: Settings,
    /// Every knob as it stands, with what moving it has brought.
    pub knobs: Vec<KnobEvidence>,
    /// The latest trials, oldest first.
    pub recent: Vec<Row>,
    /// The mechanisms there are and were.
    pub mechanisms: Vec<Known>,
}

/// Trials of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tally {
    /// How many.
    pub tried: u64,
    /// Of them, kept.
    pub kept: u64,
    /// Of them, crashed.
    pub crashed: u64,
    /// The best gain of any; `None` where none was scored.
    pub best_gain: Option<f64>,
}

impl AddAssign<&Trial> for Tally {
    fn add_assign(&mut self, trial: &Trial) {
        self.tried += 1;
        self.kept += u64::from(trial.status == "keep");
        self.crashed += u64::from(trial.status == "crash");
        self.best_gain = self.best_gain.into_iter().chain(trial.gain.map(short)).reduce(f64::max);
    }
}

/// One knob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct KnobEvidence {
    /// Its name.
    pub name: String,
    /// `log`, `lin`, `int`, `pow2` or `choice`.
    pub kind: String,
    /// Its value in the files that the next proposal starts from.
    pub value: Value,
    /// Where that is in its range on its own scale, from 0 to 1; 0 for a choice.
    pub at: f64,
    /// The ends of its range; `None` for a choice.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
    /// What there is to choose from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// Whether it may not be moved now.
    pub frozen: bool,
    /// Trials that raised it, or chose otherwise.
    pub up: Tally,
    /// Trials that lowered it.
    pub down: Tally,
}

/// One trial.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// Its number.
    pub trial: u64,
    /// `keep`, `discard` or `crash`.
    pub status: String,
    /// How it was decided, as a word.
    pub outcome: String,
    /// By how much it was better than the champion of its time.
    pub gain: Option<f64>,
    /// What it was, in its proposer's words.
    pub what: String,
    /// Its category; may be empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub category: String,
    /// Knobs that it moved, against the champion: name, before, after.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub moves: Vec<(String, Value, Value)>,
    /// The trial it started from instead of the champion.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub excursion: Option<u64>,
}

/// A mechanism that exists or has existed, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Known {
    /// The number of its folder, or a built-in's name.
    pub id: String,
    /// Its name.
    pub name: String,
    /// The hooks it has.
    pub hooks: Vec<Hook>,
    /// Where it stands, as a word: `canary`, `trial`, `adopted`, `retired`, `faulted`, `disabled`, …
    pub standing: String,
    /// Why it stands there.
    pub why: String,
    /// Calls of each hook. One whose hooks were never called did nothing.
    pub calls: BTreeMap<Hook, u64>,
    /// Calls whose answer changed something.
    pub acted: BTreeMap<Hook, u64>,
    /// Trials with it on.
    pub trials_on: u64,
    /// Trials with it off, meanwhile.
    pub trials_off: u64,
    /// Gain a minute with it on minus that with it off; `None` while it was not measured.
    pub effect: Option<f64>,
    /// Its script, for telling whether another is the same; no part of a prompt.
    #[serde(skip)]
    pub script: String,
}

/// What is asked about, by a cycle or a research session.
#[derive(Clone, Copy, Debug)]
pub struct Ground<'a> {
    /// `program.md`; empty where there is none.
    pub program: &'a str,
    /// What is measured, and which way is better.
    pub metric: &'a Metric,
    /// The trials so far.
    pub trace: &'a Trace,
    /// The settings that hold.
    pub settings: &'a Settings,
    /// Mechanisms that exist or have existed.
    pub mechanisms: &'a [Known],
}

impl Evidence {
    /// All that there is; the latest 40 trials are rows.
    pub fn of(ground: &Ground<'_>) -> Self {
        let trace = ground.trace;
        let mut trials = Tally::default();
        trace.trials.iter().for_each(|trial| trials += trial);
        Self {
            metric: line(&ground.metric.name, 60),
            better: match ground.metric.goal {
                Goal::Minimize => "lower".to_owned(),
                Goal::Maximize => "higher".to_owned(),
            },
            sigma: trace.sigma.map(short),
            champion: trace.champion,
            plateau: trace.plateau,
            trials,
            settings: ground.settings.clone(),
            knobs: trace.knobs.iter().map(|knob| of_knob(knob, &trace.trials)).collect(),
            recent: trace.trials[trace.trials.len().saturating_sub(RECENT)..].iter().map(row).collect(),
            mechanisms: ground.mechanisms.iter().map(told).collect(),
        }
    }

    /// A section for a prompt with all of it as JSON, of at most `room` bytes: older trials give way first, then mechanisms. `None` where
    /// even the knobs do not fit.
    pub fn block(mut self, room: usize) -> Option<String> {
        loop {
            let text = self.text();
            if text.len() <= room {
                return Some(text);
            }
            if !self.recent.is_empty() {
                self.recent.drain(..self.recent.len().div_ceil(4));
            } else if !self.mechanisms.is_empty() {
                self.mechanisms.drain(..self.mechanisms.len().div_ceil(4));
            } else {
                return None;
            }
        }
    }

    /// Fenced, with one line for each item of a list.
    fn text(&self) -> String {
        let Ok(Value::Object(fields)) = serde_json::to_value(self) else { return String::new() };
        let mut text = format!("{OPENS}{{");
        for (field, (name, value)) in fields.iter().enumerate() {
            let _ = write!(text, "{}\n  \"{name}\": ", if field == 0 { "" } else { "," });
            match value.as_array().filter(|items| !items.is_empty()) {
                Some(items) => {
                    let items: Vec<String> = items.iter().map(|item| format!("    {item}")).collect();
                    let _ = write!(text, "[\n{}\n  ]", items.join(",\n"));
                }
                None => text += &value.to_string(),
            }
        }
        text + "\n}" + CLOSES
    }

    /// The evidence that stands in a call; for models that are scripts.
    pub fn of_call(call: &Call<'_>) -> Option<Self> {
        let block = |prompt: &str| {
            let (_, rest) = prompt.rsplit_once(OPENS)?;
            serde_json::from_str(rest.split_once(CLOSES)?.0).ok()
        };
        block(call.system).or_else(|| call.turns.iter().find_map(|turn| block(turn.text())))
    }
}

/// Its words as one line each: scripts and models have written some of them.
fn told(known: &Known) -> Known {
    Known {
        name: line(&known.name, 60),
        why: line(&known.why, 200),
        effect: known.effect.map(short),
        ..known.clone()
    }
}

/// Four digits: more would be noise, and each is paid for.
fn short(number: f64) -> f64 {
    format!("{number:.3e}").parse().unwrap_or(number)
}

fn of_knob(knob: &Knob, trials: &[Trial]) -> KnobEvidence {
    let (mut up, mut down) = (Tally::default(), Tally::default());
    for trial in trials {
        for moved in trial.change.moves.iter().filter(|moved| moved.name == knob.name) {
            if moved.by < 0.0 { down += trial } else { up += trial }
        }
    }
    KnobEvidence {
        name: knob.name.clone(),
        kind: knob.kind.clone(),
        value: knob.value.clone(),
        at: short(knob.at),
        low: knob.low,
        high: knob.high,
        choices: knob.choices.clone(),
        frozen: knob.frozen,
        up,
        down,
    }
}

fn row(trial: &Trial) -> Row {
    let change = &trial.change;
    Row {
        trial: trial.trial,
        status: trial.status.clone(),
        outcome: line(&trial.outcome, 40),
        gain: trial.gain.map(short),
        what: line(&change.description, 160),
        category: line(&change.category, 40),
        moves: change.moves.iter().map(|m| (m.name.clone(), m.from.clone(), m.to.clone())).collect(),
        excursion: trial.excursion,
    }
}

#[cfg(test)]
mod tests;
