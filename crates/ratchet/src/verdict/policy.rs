//! The `[accept]` section of the task contract.

use serde::{Deserialize, Serialize};

use crate::config::Goal;

/// How gains are told from noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Any better value keeps.
    Strict,
    /// A gain must exceed what noise explains.
    #[default]
    Noise,
}

/// The `[accept]` section of the task contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How gains are told from noise.
    pub rule: Rule,
    /// σ of one run, in the metric's unit, used until replicates have measured it.
    pub sigma: Option<f64>,
    /// What share of the keeps of a tag may be no improvement.
    pub false_keeps: f64,
    /// Whether later candidates build on what is promising and not yet proven.
    pub carry: bool,
    /// Gains smaller than this are not worth a commit, in the metric's unit.
    pub min_delta: f64,
    /// Further runs of a candidate, and of the champion, that one decision may ask for.
    pub max_replicates: u32,
    /// Gain that each line added on balance has to bring, in σ.
    pub line_price: f64,
    /// What all simplifications together may lose against the best estimate ever, in σ.
    pub slack: f64,
    /// Candidates that need more memory than this are discarded.
    pub memory_limit_gb: Option<f64>,
    /// Gain that each added GB has to bring, in the metric's unit.
    pub memory_price: f64,
    /// Which way is better. Taken from `[metric]`; not a key of `[accept]`.
    #[serde(skip)]
    pub goal: Goal,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rule: Rule::Noise,
            sigma: None,
            false_keeps: 0.05,
            carry: true,
            min_delta: 0.0,
            max_replicates: 2,
            line_price: 0.05, // twenty lines cost one σ: on `full`, about 0.001 bpb
            slack: 1.0,
            memory_limit_gb: None,
            memory_price: 0.0,
            goal: Goal::Minimize,
        }
    }
}

impl Policy {
    /// Refuses figures that no verdict could use; the error names the key and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let amounts = [
            ("min_delta", self.min_delta),
            ("line_price", self.line_price),
            ("slack", self.slack),
            ("memory_price", self.memory_price),
            ("memory_limit_gb", self.memory_limit_gb.unwrap_or(0.0)),
            ("sigma", self.sigma.unwrap_or(0.0)),
        ];
        if !(self.false_keeps > 0.0 && self.false_keeps < 0.5) {
            return Err(format!("false_keeps is {}; it must be a share between 0 and 0.5", self.false_keeps));
        }
        match amounts.iter().find(|(_, amount)| !(amount.is_finite() && *amount >= 0.0)) {
            Some((key, amount)) => Err(format!("{key} is {amount}; it must be 0 or a positive number")),
            None => Ok(()),
        }
    }
}
