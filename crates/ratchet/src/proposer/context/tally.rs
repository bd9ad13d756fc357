//! What the past says of proposers and of kinds of change: how good predictions were, and what was kept.

use std::{collections::BTreeMap, fmt::Write};

use super::line;
use crate::{
    config::Goal,
    journal::TrialRecord,
    novelty::{Novelty, Tally},
};

/// Categories shown, those with most trials.
const CATEGORIES: usize = 16;
/// Proposers shown, those with most predictions.
const PROPOSERS: usize = 6;

/// How a proposer's predictions compare with what was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Calibration {
    predictions: u32,
    /// Predictions of the right sign.
    right: u32,
    /// Sum of |measured − expected|.
    error: f64,
    /// Sum of measured − expected.
    bias: f64,
}

/// Both as text; empty without trials that say anything.
pub(super) fn tally(trials: &[TrialRecord], goal: Goal) -> String {
    let text = format!("{}{}", calibrations(trials, goal), kinds(trials));
    if text.is_empty() { text } else { format!("# What the past says\n\n{text}\n") }
}

fn calibrations(trials: &[TrialRecord], goal: Goal) -> String {
    let mut all: BTreeMap<&str, Calibration> = BTreeMap::new();
    for trial in trials {
        if let (Some(expected), Some(measured)) = (trial.proposal.expected_delta, trial.delta) {
            let entry = all.entry(&trial.proposer).or_default();
            entry.predictions += 1;
            entry.right += u32::from(expected * measured > 0.0);
            entry.error += (measured - expected).abs();
            entry.bias += measured - expected;
        }
    }
    let mut text = String::new();
    for (proposer, all) in most(all, |calibration| calibration.predictions).into_iter().take(PROPOSERS) {
        let (count, bias) = (f64::from(all.predictions), all.bias / f64::from(all.predictions));
        let promises = match goal.better(0.0, bias) {
            true => "too hopeful",
            false => "too modest",
        };
        let _ = writeln!(
            text,
            "Predictions of {}: the sign was right in {} of {}; they are off by {:.6} on average, and {promises} by {:.6}.",
            line(proposer, 40),
            all.right,
            all.predictions,
            all.error / count,
            bias.abs()
        );
    }
    text
}

fn kinds(trials: &[TrialRecord]) -> String {
    let novelty = Novelty::of(trials);
    let kept = |name: &str, tally: &Tally| format!("{name} {} of {}", tally.kept, tally.tried);
    let categories = novelty.categories.iter().take(CATEGORIES).map(|(name, tally)| kept(name, tally));
    let classes = novelty.classes.iter().map(|(class, tally)| kept(class.as_str(), tally));
    let line = |what: &str, counts: Vec<String>| match counts.is_empty() {
        true => String::new(),
        false => format!("Kept by {what}: {}.\n", counts.join(", ")),
    };
    line("category", categories.collect()) + line("how deep the edit goes", classes.collect()).as_str()
}

/// The largest first; by name among equals.
fn most<K: Ord, V>(counts: BTreeMap<K, V>, size: impl Fn(&V) -> u32) -> Vec<(K, V)> {
    let mut all: Vec<(K, V)> = counts.into_iter().collect();
    all.sort_by_key(|(_, value)| std::cmp::Reverse(size(value)));
    all
}
