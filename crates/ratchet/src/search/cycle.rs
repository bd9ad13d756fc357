//! One cycle of level 1.5: the model is shown the evidence, and answers with settings for the next trials.
//!
//! It is stored as it was then, under the tag's `settings/NNN/`: what was asked and answered (`settings.json`), and
//! what that led to (`cycle.json`). An answer that cannot be used changes nothing, and says so.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use super::{
    evidence::Ground,
    folder::fresh,
    settings::{Answer, Settings},
    voice::{Scribe, Unheard, Voice, reason},
};
use crate::{
    error::{Error, Result},
    proposer::{
        Usage,
        context::{line, program},
    },
    secrets::secrets,
    state::write_atomic,
};

/// What the call is for.
pub const SETTINGS: &str = "settings";
/// What the model is told first.
const ROLE: &str = include_str!("cycle.md");

/// What a cycle has led to.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CycleEnd {
    /// Those that hold now.
    pub settings: Settings,
    /// What the model thinks holds the search back; one line, empty where there is no answer.
    pub diagnosis: String,
    /// What guards changed of the answer, in words.
    pub guards: Vec<String>,
    /// Why nothing changed; `None` where the answer was used.
    pub fault: Option<String>,
    /// Whether that was because the run is to end: then the cycle is none, and is due again.
    #[serde(skip)]
    pub stopped: bool,
    /// What it cost, unusable answers included.
    pub usage: Usage,
    /// What it took.
    pub seconds: f64,
    /// Where it is stored.
    #[serde(skip)]
    pub folder: PathBuf,
}

impl CycleEnd {
    /// One that changes nothing, and is stored nowhere.
    pub(crate) fn failed(before: &Settings, why: String) -> Self {
        Self {
            settings: before.unchanged_next(),
            diagnosis: String::new(),
            guards: Vec::new(),
            fault: Some(why),
            stopped: false,
            usage: Usage::default(),
            seconds: 0.0,
            folder: PathBuf::new(),
        }
    }
}

/// `cycle.json`.
#[derive(Serialize)]
struct Record<'a> {
    before: &'a Settings,
    knobs: &'a [String],
    #[serde(flatten)]
    end: &'a CycleEnd,
}

/// Asks for new settings. `records`: the tag's folder `settings`.
///
/// # Errors
/// Only where the cycle cannot be stored. A model that is down, a cap or an unusable answer is a `fault`.
pub fn cycle(ground: &Ground<'_>, voice: &mut Voice<'_>, records: &Path) -> Result<CycleEnd> {
    let began = Instant::now();
    let (_, folder) = fresh(records)?;
    let system = format!("{ROLE}\n{}", program(ground.program));
    let evidence = voice.evidence(ground, system.len());
    let mut scribe = Scribe::new(voice, folder.clone(), system)?;
    let answer = evidence.and_then(|evidence| {
        let text = format!(
            "{evidence}\n# Now: the settings\n\nSay what holds the search back, and set how the \
             next trials are chosen."
        );
        scribe.ask_for::<Answer>(SETTINGS, text)
    });
    let mut end = CycleEnd {
        settings: ground.settings.unchanged_next(),
        diagnosis: String::new(),
        guards: Vec::new(),
        fault: None,
        stopped: false,
        usage: scribe.used(),
        seconds: 0.0,
        folder,
    };
    let knobs: Vec<String> = ground.trace.knobs.iter().map(|knob| knob.name.clone()).collect();
    match answer {
        Ok(answer) => {
            (end.settings, end.guards) = ground.settings.after(&answer, &knobs);
            end.diagnosis = line(&answer.diagnosis, 600);
        }
        Err(Unheard::Unstored(error)) => return Err(error),
        Err(Unheard::Unanswered(error)) => {
            end.stopped = error == ::llm::AskError::Stopped;
            end.fault = Some(reason(&error));
        }
    }
    end.seconds = began.elapsed().as_secs_f64();
    if !end.stopped {
        store(&end, ground.settings, &knobs)?;
    }
    Ok(end)
}

fn store(end: &CycleEnd, before: &Settings, knobs: &[String]) -> Result<()> {
    let json = serde_json::to_string_pretty(&Record { before, knobs, end })
        .map_err(|error| Error::internal("a cycle cannot be written as JSON").because(error))?;
    write_atomic(&end.folder.join("cycle.json"), secrets().redact(&json).as_bytes())
}

#[cfg(test)]
mod tests;
