//! One research session of level 2: explore → critique → specify → generate, each call stored as it happens.

pub mod answers;

use std::{collections::BTreeSet, path::PathBuf};

use mechanism::Hook;
use serde::{Deserialize, Serialize};

use crate::proposer::Usage;

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

/// What a session has led to: `session.json` of its folder, without which it is unfinished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionEnd {
    /// The folder's number, at least three digits; also the mechanism's id.
    pub id: String,
    /// What came of it.
    pub outcome: Outcome,
    /// What it cost.
    pub usage: Usage,
    /// What it took, validation included.
    pub seconds: f64,
    /// Where it is stored.
    #[serde(skip)]
    pub folder: PathBuf,
}

/// What came of a session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// The critic found nothing worth building, and nothing was built.
    NoneSelected,
    /// A script that passed validation: `mechanism.rhai`.
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
