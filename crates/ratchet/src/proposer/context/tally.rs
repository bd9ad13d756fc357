//! What the past says of proposers and of kinds of change: how good predictions were, and what was kept.

use std::{collections::BTreeMap, fmt::Write};

use super::line;
use crate::{
    config::Goal,
    journal::{Status, TrialRecord},
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
    let text = format!("{}{}", calibrations(trials, goal), categories(trials));
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

fn categories(trials: &[TrialRecord]) -> String {
    let mut counts: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for trial in trials.iter().filter(|trial| trial.parent.is_some()) {
        let category = line(&trial.proposal.category, 40);
        if !category.is_empty() {
            let [tried, kept] = counts.entry(category).or_default();
            *tried += 1;
            *kept += u32::from(trial.status == Status::Keep);
        }
    }
    let shown: Vec<String> = most(counts, |[tried, _]| *tried)
        .iter()
        .take(CATEGORIES)
        .map(|(category, [tried, kept])| format!("{category} {kept} of {tried}"))
        .collect();
    if shown.is_empty() { String::new() } else { format!("Kept by category: {}.\n", shown.join(", ")) }
}

/// The largest first; by name among equals.
fn most<K: Ord, V>(counts: BTreeMap<K, V>, size: impl Fn(&V) -> u32) -> Vec<(K, V)> {
    let mut all: Vec<(K, V)> = counts.into_iter().collect();
    all.sort_by_key(|(_, value)| std::cmp::Reverse(size(value)));
    all
}
