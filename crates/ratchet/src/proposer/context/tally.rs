//! What the past says of proposers and of kinds of change: how good predictions were, and what was kept.

use std::fmt::Write;

use super::line;
use crate::{
    calibration::{Calibration, calibrations_of},
    config::Goal,
    journal::TrialRecord,
    novelty::{Novelty, Tally},
};

/// Categories shown, those with most trials.
const CATEGORIES: usize = 16;
/// Proposers shown, those with most predictions.
const PROPOSERS: usize = 6;

/// Both as text; empty without trials that say anything.
pub(super) fn tally(trials: &[TrialRecord], goal: Goal) -> String {
    let text = format!("{}{}", calibrations(trials, goal), kinds(trials));
    if text.is_empty() { text } else { format!("# What the past says\n\n{text}\n") }
}

fn calibrations(trials: &[TrialRecord], goal: Goal) -> String {
    let mut text = String::new();
    for (proposer, calibration) in calibrations_of(trials).into_iter().take(PROPOSERS) {
        let Calibration { predictions, right, error, bias } = calibration;
        let promises = match goal.better(0.0, bias) {
            true => "too hopeful",
            false => "too modest",
        };
        let _ = writeln!(
            text,
            "Predictions of {}: the sign was right in {} of {}; they are off by {:.6} on average, and {promises} by {:.6}.",
            line(proposer, 40),
            right,
            predictions,
            error,
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
