//! Level 1.5: the search's settings, and the guards that hold whatever a model answers.
//!
//! Settings are a value: a cycle makes the next one of the last, and what stands in records is what it was then.

use std::collections::BTreeSet;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::{
    proposer::{Demand, context::line},
    runlog::plain,
};

/// Knobs that one cycle may freeze.
pub const MOST_FREEZES: usize = 5;
/// Knobs that stay active whatever is frozen.
pub const LEAST_ACTIVE: usize = 4;
/// Cycles that a guidance holds, the one that gives it included.
pub const GUIDANCE_CYCLES: u64 = 3;
/// Bytes of a guidance.
const GUIDANCE_BYTES: usize = 2_000;
/// Lines of a guidance.
const GUIDANCE_LINES: usize = 20;
/// Characters of such a line.
const LINE_CHARS: usize = 300;
/// Names that one remark mentions.
const NAMED: usize = 8;

/// How the next trials are to be chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Strategy {
    /// Far from what was tried.
    Explore,
    /// Near to what was kept.
    Exploit,
    /// One thing at a time, until it is understood.
    Focused,
}

impl Strategy {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Explore, Self::Exploit, Self::Focused];

    /// As it stands in records.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Explore => "explore",
            Self::Exploit => "exploit",
            Self::Focused => "focused",
        }
    }

    /// What it asks of whoever proposes.
    pub fn advice(self) -> &'static str {
        match self {
            Self::Explore => {
                "Explore: take a direction that was not tried yet, and a step large enough to learn from."
            }
            Self::Exploit => "Exploit: stay near what was kept, and refine what has moved the result so far.",
            Self::Focused => {
                "Focus: stay with the one thing that the guidance names, or else the last promising one, until it is clear what it gives."
            }
        }
    }
}

/// What holds for the trials until the next cycle. The default is level 1: nothing set.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    /// The cycle that made them; 0 before the first.
    pub cycle: u64,
    /// How trials are to be chosen.
    pub strategy: Option<Strategy>,
    /// Knobs that no proposal is to move. See [`Settings::frozen_among`].
    pub frozen: BTreeSet<String>,
    /// Text for whoever proposes, cleaned and bounded. A model wrote it: it is shown as a quotation.
    pub guidance: Option<String>,
    /// The last cycle whose trials it holds for.
    pub guidance_until: u64,
}

/// New settings for the next trials.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct Answer {
    /// What holds the search back now, and which trials show it; two or three sentences.
    pub diagnosis: String,
    /// `explore`: far from what was tried. `exploit`: near to what was kept. `focused`: one thing at a time.
    #[schemars(schema_with = "strategies")]
    pub strategy: Strategy,
    /// Names of knobs that proposals are to leave alone from now on; at most five.
    pub freeze: Vec<String>,
    /// Names of frozen knobs that may be moved again.
    pub unfreeze: Vec<String>,
    /// Advice for whoever proposes the next trials, in a few sentences; it replaces the last one, and is dropped
    /// after three cycles. Null: the last one stays until then. Empty: it is taken away now.
    pub guidance: Option<String>,
}

/// The words, in the one form that all providers take.
fn strategies(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": Strategy::ALL.map(Strategy::as_str) })
}

impl Settings {
    /// The settings that an answer leads to, and in words what a guard changed of it. `knobs`: those there are.
    pub fn after(&self, answer: &Answer, knobs: &[String]) -> (Self, Vec<String>) {
        let mut said = Vec::new();
        let mut next = Self { strategy: Some(answer.strategy), ..self.unchanged_next() };
        next.frozen = self.frozen_among(knobs);
        let lost: Vec<&String> = self.frozen.difference(&next.frozen).collect();
        say(&mut said, "frozen no more, as it is gone or too few knobs are left", &lost);

        let known = |name: &&String| knobs.contains(name);
        let (freeze, unfreeze) = (distinct(&answer.freeze), distinct(&answer.unfreeze));
        let unknown: Vec<&String> = freeze.union(&unfreeze).copied().filter(|name| !known(name)).collect();
        say(&mut said, "no knob of this name", &unknown);
        let both: Vec<&String> = freeze.intersection(&unfreeze).copied().filter(known).collect();
        say(&mut said, "both frozen and unfrozen, so left as it was", &both);
        for name in unfreeze.difference(&freeze) {
            next.frozen.remove(*name);
        }

        let (mut frozen, mut many, mut few) = (0, Vec::new(), Vec::new());
        for name in answer.freeze.iter().filter(known).filter(|name| !unfreeze.contains(name)) {
            if next.frozen.contains(name) || many.contains(&name) || few.contains(&name) {
                continue;
            }
            if frozen == MOST_FREEZES {
                many.push(name);
            } else if next.frozen.len() + LEAST_ACTIVE >= knobs.len() {
                few.push(name);
            } else {
                next.frozen.insert(name.clone());
                frozen += 1;
            }
        }
        say(&mut said, &format!("not frozen, as a cycle freezes {MOST_FREEZES} at most"), &many);
        say(&mut said, &format!("not frozen, as {LEAST_ACTIVE} knobs stay active"), &few);

        if let Some(text) = &answer.guidance {
            let (clean, cut) = cleaned(text);
            if cut {
                said.push(format!("the guidance was cut to {} bytes", clean.len()));
            }
            next.guidance_until = if clean.is_empty() { 0 } else { next.cycle + GUIDANCE_CYCLES - 1 };
            next.guidance = Some(clean).filter(|clean| !clean.is_empty());
        }
        (next, said)
    }

    /// Those after a cycle that changes nothing; only a guidance grows old.
    #[must_use]
    pub fn unchanged_next(&self) -> Self {
        let mut next = Self { cycle: self.cycle + 1, ..self.clone() };
        if next.cycle > next.guidance_until {
            (next.guidance, next.guidance_until) = (None, 0);
        }
        next
    }

    /// Asks it of a proposal. `knobs`: those of the files that it starts from.
    pub(crate) fn ask(&self, demand: &mut Demand, knobs: &[String]) {
        demand.strategy = self.strategy;
        demand.frozen = self.frozen_among(knobs).into_iter().collect();
        demand.guidance.extend(self.guidance.clone());
    }

    /// The frozen ones among the knobs there are now, so that [`LEAST_ACTIVE`] stay active also after an edit has
    /// removed some.
    pub fn frozen_among(&self, knobs: &[String]) -> BTreeSet<String> {
        let most = knobs.len().saturating_sub(LEAST_ACTIVE);
        self.frozen.iter().filter(|name| knobs.contains(name)).take(most).cloned().collect()
    }
}

fn distinct(names: &[String]) -> BTreeSet<&String> {
    names.iter().collect()
}

/// Adds one remark on some names; none where there are none.
fn say(said: &mut Vec<String>, what: &str, names: &[&String]) {
    if names.is_empty() {
        return;
    }
    let shown: Vec<String> = names.iter().take(NAMED).map(|name| line(name, 60)).collect();
    let more = match names.len() - shown.len() {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    said.push(format!("{what}: {}{more}", shown.join(", ")));
}

/// A guidance fit for a prompt, and whether some of it had to go.
fn cleaned(text: &str) -> (String, bool) {
    let (mut clean, mut cut) = (String::new(), false);
    let mut lines = text.lines();
    for line in lines.by_ref().take(GUIDANCE_LINES) {
        let line = plain(line, LINE_CHARS);
        if clean.len() + line.len() >= GUIDANCE_BYTES {
            return (clean.trim_end().to_owned(), true);
        }
        cut |= line.chars().count() > LINE_CHARS; // by the mark of what was left out
        clean += &line;
        clean.push('\n');
    }
    (clean.trim().to_owned(), cut || lines.next().is_some())
}

#[cfg(test)]
mod tests;
