//! `lessons.md`: what the trials of a tag have taught, for people to read and to edit.
//!
//! ```text
//! # Lessons
//!
//! Trials looked at: 17
//!
//! - A lower embedding rate hurts at this budget. (confidence 0.8; trials 4, 9)
//! - No wider models, please.
//! ```
//!
//! A line without confidence and trials is a person's: it does not fade, and no model replaces it. Others fade
//! with every trial after their last evidence, until they go. Read leniently: whatever is no heading is a lesson.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
};

use crate::{
    error::{Doing, Result},
    journal::TrialRecord,
    plain_file,
    proposer::context::line,
    state::write_atomic,
};

/// The file, in the tag's folder.
const FILE: &str = "lessons.md";
const SEEN: &str = "Trials looked at:";
/// Trials after which half of a lesson's confidence is left.
const HALF_LIFE: f64 = 40.0;
/// Confidence below which a lesson goes.
const LEAST: f64 = 0.1;
/// Lessons kept, a person's aside.
const MOST: usize = 24;
/// Bytes of one lesson.
const BYTES: usize = 300;
/// Bytes of the list where it is kept, and at most where it is used.
const LISTED: usize = 6 << 10;
/// A larger file is not one that this writes.
const LARGEST: usize = 256 << 10;

/// One thing learnt.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lesson {
    text: String,
    /// `None` for one that a person wrote.
    evidence: Option<Evidence>,
}

#[derive(Clone, Debug, PartialEq)]
struct Evidence {
    /// Ascending, never empty.
    trials: Vec<u64>,
    /// When the last of them was new, from 0 to 1.
    confidence: f64,
}

impl Lesson {
    /// A model's; `None` for one without words or evidence.
    pub(super) fn learnt(text: &str, mut trials: Vec<u64>, confidence: f64) -> Option<Self> {
        trials.sort_unstable();
        trials.dedup();
        let text = line(text, BYTES);
        let confidence = confidence.clamp(0.0, 1.0); // NaN stays, and is below every limit
        let sound = !text.is_empty() && !trials.is_empty() && confidence >= LEAST;
        sound.then_some(Self { text, evidence: Some(Evidence { trials, confidence }) })
    }

    /// From the text behind a dash.
    fn parse(text: &str) -> Self {
        let evidence = text.strip_suffix(')').and_then(|text| {
            let (text, evidence) = text.rsplit_once("(confidence ")?;
            let (confidence, trials) = evidence.split_once("; trials ")?;
            let confidence: f64 = confidence.trim().parse().ok()?;
            let trials: Option<Vec<u64>> =
                trials.split(',').map(|number| number.trim().parse().ok()).collect();
            Self::learnt(text, trials?, confidence)
        });
        evidence.unwrap_or_else(|| Self { text: line(text, BYTES), evidence: None })
    }

    /// What is left of its confidence after so many trials in all.
    fn weight(&self, trials: u64) -> f64 {
        let Some(Evidence { trials: shown, confidence }) = &self.evidence else { return f64::INFINITY };
        let age = trials.saturating_sub(shown.last().copied().unwrap_or_default());
        confidence * 0.5f64.powf(age as f64 / HALF_LIFE)
    }

    fn line(&self, confidence: impl Fn(&Evidence) -> f64) -> String {
        let Some(evidence) = &self.evidence else { return self.text.clone() };
        let trials: Vec<String> = evidence.trials.iter().map(u64::to_string).collect();
        format!("{} (confidence {:.2}; trials {})", self.text, confidence(evidence), trials.join(", "))
    }
}

/// The list.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Lessons {
    path: PathBuf,
    /// The last trial that was looked at.
    seen: u64,
    all: Vec<Lesson>,
}

impl Lessons {
    /// What stands in the folder; empty where there is nothing. A file that is no text is moved aside.
    pub(super) fn read(folder: &Path) -> Self {
        let path = folder.join(FILE);
        let text = match plain_file::read_to_string(&path) {
            Ok(text) if text.len() <= LARGEST => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            Ok(_) | Err(_) => {
                // should that fail as well, the next write replaces it
                let _ = fs::rename(&path, folder.join(format!("{FILE}.damaged")));
                String::new()
            }
        };
        Self::parse(path, &text)
    }

    fn parse(path: PathBuf, text: &str) -> Self {
        let mut lessons = Self { path, seen: 0, all: Vec::new() };
        for text in text.lines() {
            let text = text.trim();
            match text.strip_prefix(SEEN) {
                Some(number) => lessons.seen = number.trim().parse().unwrap_or(lessons.seen),
                None if text.is_empty() || text.starts_with('#') => {}
                None => lessons.all.push(Lesson::parse(text.trim_start_matches(['-', '*', ' ']))),
            }
        }
        lessons.all.retain(|lesson| !lesson.text.is_empty());
        lessons
    }

    /// The last trial that was looked at; 0 for none.
    pub(super) fn seen(&self) -> u64 {
        self.seen
    }

    /// Takes new lessons in, each with the numbers of those it replaces, as [`Lessons::numbered`] gave them; drops
    /// what has faded, and the weakest where there are too many.
    pub(super) fn learn(&mut self, learnt: Vec<(Option<Lesson>, Vec<usize>)>, trials: u64) {
        let mut replaced = Vec::new();
        let mut fresh = Vec::new();
        for (lesson, replaces) in learnt {
            if let Some(lesson) = lesson {
                replaced.extend(replaces);
                fresh.push(lesson);
            }
        }
        let mut number = 0;
        self.all.retain(|lesson| {
            number += 1;
            lesson.evidence.is_none() || !replaced.contains(&number)
        });
        for lesson in fresh {
            match self.all.iter_mut().find(|known| known.text.eq_ignore_ascii_case(&lesson.text)) {
                Some(known) if known.evidence.is_none() => {}
                Some(known) => *known = lesson,
                None => self.all.push(lesson),
            }
        }
        self.all.retain(|lesson| lesson.weight(trials) >= LEAST);
        // stable: a person's lines stay first, in their order
        self.all.sort_by(|a, b| b.weight(trials).total_cmp(&a.weight(trials)));
        let own = self.all.iter().filter(|lesson| lesson.evidence.is_none()).count();
        self.all.truncate(own + MOST);
        self.seen = trials;
    }

    /// Writes the file anew.
    pub(super) fn write(&self) -> Result<()> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        fs::create_dir_all(folder).doing("create", folder)?;
        let lines: String =
            self.all.iter().map(|lesson| format!("- {}\n", lesson.line(|e| e.confidence))).collect();
        let text = format!("# Lessons\n\n{SEEN} {}\n\n{lines}", self.seen);
        write_atomic(&self.path, text.as_bytes())
    }

    /// A section for a prompt, with what is left of each lesson's confidence; empty without lessons.
    pub(super) fn shown(&self, trials: &[TrialRecord], room: usize) -> String {
        let last = trials.last().map_or(0, |trial| trial.trial);
        match self.list(last, room.min(LISTED), |_| "-".to_owned()) {
            list if list.is_empty() => list,
            list => format!(
                "# Lessons from earlier trials\n\nThey may be wrong; their confidence fades.\n\n{list}\n"
            ),
        }
    }

    /// The same with numbers, for the one who keeps the list.
    pub(super) fn numbered(&self, last: u64) -> String {
        let list = self.list(last, LISTED, |number| format!("{number}."));
        format!("# Lessons so far\n\n{}\n", if list.is_empty() { "None.\n" } else { &list })
    }

    fn list(&self, last: u64, room: usize, mark: impl Fn(usize) -> String) -> String {
        let mut list = String::new();
        for (lesson, number) in self.all.iter().zip(1..) {
            let line = format!("{} {}\n", mark(number), lesson.line(|_| lesson.weight(last)));
            if list.len() + line.len() > room {
                break;
            }
            list += &line;
        }
        list
    }
}

/// What a tag has learnt, for the people who read its report: what is left of each lesson after so many trials.
/// Changes nothing, and has nothing where the file cannot be read.
pub(crate) fn lessons_told(folder: &Path, trials: u64) -> Vec<report::night::Lesson> {
    let path = folder.join(FILE);
    let text =
        plain_file::read_to_string(&path).ok().filter(|text| text.len() <= LARGEST).unwrap_or_default();
    let mut lessons = Lessons::parse(path, &text).all;
    lessons.sort_by(|a, b| b.weight(trials).total_cmp(&a.weight(trials)));
    let told = |lesson: &Lesson| report::night::Lesson {
        text: lesson.text.clone(),
        confidence: lesson.evidence.as_ref().map(|_| lesson.weight(trials)),
        trials: lesson.evidence.as_ref().map(|evidence| evidence.trials.clone()).unwrap_or_default(),
    };
    lessons.iter().map(told).collect()
}

#[cfg(test)]
mod tests;
