//! `ratchet.toml`: the task contract, parsed strictly.

use serde::{Deserialize, Serialize};

/// What is measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Metric {
    /// Its key in the score's JSON and its column in `results.tsv`.
    pub name: String,
    /// Which way is better.
    #[serde(default)]
    pub goal: Goal,
}

/// Which way is better.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Goal {
    /// Lower is better.
    #[default]
    Minimize,
    /// Higher is better.
    Maximize,
}
