//! One cycle of level 1.5: the model is shown the evidence, and answers with settings for the next trials.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::proposer::Usage;

/// What this call is for.
pub const SETTINGS: &str = "settings";

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
    pub stopped: bool,
    /// What it cost, unusable answers included.
    pub usage: Usage,
    /// What it took.
    pub seconds: f64,
    /// Where it is stored.
    #[serde(skip)]
    pub folder: PathBuf,
}
