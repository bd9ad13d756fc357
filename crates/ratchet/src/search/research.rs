//! One research session of level 2: explore → critique → specify → generate, each call stored as it happens.
//!
//! `.ratchet/mechanisms/NNN/` holds what was asked and answered (`system.md`, `explore.json`, `critique.json`,
//! `specify.json`, `generate-1.json` …), each script as it came (`generate-1.rhai` …), and at the end
//! `mechanism.rhai` and `session.json`. A folder without the last is that of a session that was killed or stopped.
//!
//! Nothing is built that the critic did not select, and nothing comes out of here that was not validated.

pub mod answers;
mod choice;
mod script;

use std::{
    collections::BTreeSet,
    io::ErrorKind,
    path::{Path, PathBuf},
    time::Instant,
};

use ::llm::AskError;
use mechanism::Hook;
use serde::{Deserialize, Serialize};

use self::{
    answers::{Critique, Exploration, Hypothesis, Specification},
    choice::{choose, listed},
    script::written,
};
use super::{
    evidence::{Ground, Known},
    folder::fresh,
    library::SCRIPT,
    voice::{Scribe, Unheard, Voice, reason},
};
use crate::{
    error::{Doing, Error, Result},
    plain_file,
    proposer::{
        Usage,
        context::{line, program},
    },
    state::write_atomic,
};

/// What the calls are for, in their order; a script that is refused goes back as the last.
pub const EXPLORE: &str = "explore";
/// Judges what [`EXPLORE`] has found.
pub const CRITIQUE: &str = "critique";
/// Describes the one that was chosen.
pub const SPECIFY: &str = "specify";
/// Writes it.
pub const GENERATE: &str = "generate";
/// Mends it.
pub const REPAIR: &str = "repair";

/// What every call begins with.
const ROLE: &str = include_str!("research/role.md");
/// Fields to borrow from, which can be left out.
const HINTS: &str = include_str!("research/hints.md");
/// The end of a session.
const END_FILE: &str = "session.json";

/// What scripts are written and checked with.
pub struct Workshop<'a> {
    /// The page on the language, the host's functions and the hooks.
    pub page: &'a str,
    /// A built-in mechanism as an example.
    pub example: &'a str,
    /// Gives the hooks of a script that may be used, or says why it may not.
    pub validate: &'a dyn Fn(&str) -> std::result::Result<BTreeSet<Hook>, String>,
    /// Whether fields are named that ideas can be borrowed from.
    pub hints: bool,
}

/// What a session has led to: `session.json` of its folder, without which it is unfinished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// The folder's number, at least three digits; also the mechanism's id.
    pub id: String,
    /// What came of it.
    #[serde(flatten)]
    pub outcome: Outcome,
    /// Impact × feasibility ÷ complexity of each hypothesis whose judgment can be used, after its number.
    pub scores: Vec<(u64, f64)>,
    /// The hypothesis that was taken up.
    pub chosen: Option<u64>,
    /// What of the answers could not be used, in words.
    pub remarks: Vec<String>,
    /// Whether the model was given fields to borrow from.
    pub hints: bool,
    /// What it cost.
    pub usage: Usage,
    /// What it took, validation included.
    pub seconds: f64,
    /// Where it is stored.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// What is noted on the way.
#[derive(Debug, Default, PartialEq)]
struct Notes {
    scores: Vec<(u64, f64)>,
    chosen: Option<u64>,
    remarks: Vec<String>,
}

/// What came of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The critic found nothing worth building, and nothing was built.
    NoneSelected,
    /// A script that passed validation.
    Mechanism {
        /// Its name.
        name: String,
        /// The hooks it has.
        hooks: BTreeSet<Hook>,
        /// What it is, in one line.
        what: String,
    },
    /// No mechanism, and why.
    Failed {
        /// In one line.
        reason: String,
    },
    /// The run is to end; nothing is to be made of it.
    Stopped,
}

impl SessionEnd {
    /// The end that is stored in a session's folder; `None` for one that was killed or stopped.
    ///
    /// # Errors
    /// What is no end of a session, naming the file.
    pub fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join(END_FILE);
        let text = match plain_file::read_to_string(&path) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            read => read.doing("read", &path)?,
        };
        match serde_json::from_str(&text) {
            Ok(end) => Ok(Some(Self { folder: folder.to_owned(), ..end })),
            Err(error) => Err(Error::usage("this is no end of a research session")
                .at(path)
                .because(error)
                .hint("delete the file, and the session counts as unfinished")),
        }
    }
}

/// Looks for a mechanism. `mechanisms`: the folder of all sessions, `.ratchet/mechanisms`.
///
/// # Errors
/// Only where the session cannot be stored. Whatever the model does ends as an [`Outcome`].
pub fn session(
    ground: &Ground<'_>,
    voice: &mut Voice<'_>,
    workshop: &Workshop<'_>,
    mechanisms: &Path,
) -> Result<SessionEnd> {
    let began = Instant::now();
    let (id, folder) = fresh(mechanisms)?;
    // the page first: it outlives briefs, and what is the same at the beginning is cached
    let told = format!("{ROLE}\n{}\n\n{}", workshop.page.trim(), program(ground.program));
    let evidence = voice.evidence(ground, told.len());
    let system = format!("{told}{}", evidence.as_deref().unwrap_or_default());
    let mut scribe = Scribe::new(voice, folder.clone(), system)?;
    let mut notes = Notes::default();
    let outcome =
        match evidence.and_then(|_| found(&mut scribe, workshop, ground.mechanisms, &folder, &mut notes)) {
            Ok(outcome) => outcome,
            Err(Unheard::Unstored(error)) => return Err(error),
            Err(Unheard::Unanswered(AskError::Stopped)) => Outcome::Stopped,
            Err(Unheard::Unanswered(error)) => Outcome::Failed { reason: reason(&error) },
        };
    let (usage, seconds) = (scribe.used(), began.elapsed().as_secs_f64());
    let Notes { scores, chosen, remarks } = notes;
    let hints = workshop.hints;
    let end = SessionEnd { id, outcome, scores, chosen, remarks, hints, usage, seconds, folder };
    if end.outcome != Outcome::Stopped {
        let json = serde_json::to_string_pretty(&end)
            .map_err(|error| Error::internal("a session cannot be written as JSON").because(error))?;
        write_atomic(&end.folder.join(END_FILE), json.as_bytes())?;
    }
    Ok(end)
}

/// The four calls.
fn found(
    scribe: &mut Scribe<'_, '_>,
    workshop: &Workshop<'_>,
    known: &[Known],
    folder: &Path,
    notes: &mut Notes,
) -> std::result::Result<Outcome, Unheard> {
    let hints = if workshop.hints { format!("\n{HINTS}") } else { String::new() };
    let explored: Exploration =
        scribe.ask_for(EXPLORE, format!("{}{hints}", include_str!("research/explore.md")))?;
    let list = listed(&explored.hypotheses);
    if list.is_empty() {
        return Ok(Outcome::Failed { reason: "the model has no hypothesis".to_owned() });
    }
    let critique: Critique =
        scribe.ask_for(CRITIQUE, format!("{}\n{}", include_str!("research/critique.md"), list.join("\n")))?;
    let Some(choice) = choose(&critique, list.len(), notes) else { return Ok(Outcome::NoneSelected) };
    let chosen: &Hypothesis = &explored.hypotheses[choice.index];
    let specification: Specification = scribe.ask_for(
        SPECIFY,
        format!(
            "{}\nThe mechanism:\n\n{}\nA critic's objection to it, to be met where it can be: {}",
            include_str!("research/specify.md"),
            list[choice.index],
            choice.objection
        ),
    )?;
    if specification.hooks.is_empty() {
        return Ok(Outcome::Failed { reason: "the specification names no hook".to_owned() });
    }
    let (script, hooks) = match written(scribe, workshop, &specification, known, folder, &mut notes.remarks)?
    {
        Ok(written) => written,
        Err(reason) => return Ok(Outcome::Failed { reason }),
    };
    write_atomic(&folder.join(SCRIPT), script.as_bytes())?;
    Ok(Outcome::Mechanism { name: name(&specification.name), hooks, what: line(&chosen.mechanism, 300) })
}

/// A name fit for a table: lower case, at most 40 characters.
fn name(wanted: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let letters: String = wanted.chars().take(80).map(legal).collect();
    let words: Vec<&str> = letters.split('-').filter(|word| !word.is_empty()).collect();
    let name: String = words.join("-").chars().take(40).collect();
    match name.trim_end_matches('-') {
        "" => "unnamed".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
