//! How a proposer's predictions compare with what was measured.

use std::{cmp::Reverse, collections::BTreeMap};

use crate::journal::TrialRecord;

/// One proposer's predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Calibration {
    /// Trials with a prediction and a value.
    pub predictions: u32,
    /// Of these, of the right sign.
    pub right: u32,
    /// Mean of |measured − expected|.
    pub error: f64,
    /// Mean of measured − expected.
    pub bias: f64,
}

/// By proposer, the one with most predictions first; by name among equals.
pub fn calibrations_of(trials: &[TrialRecord]) -> Vec<(&str, Calibration)> {
    let mut pairs: BTreeMap<&str, Vec<(f64, f64)>> = BTreeMap::new();
    for trial in trials {
        if let (Some(expected), Some(measured)) = (trial.proposal.expected_delta, trial.delta) {
            pairs.entry(&trial.proposer).or_default().push((expected, measured));
        }
    }
    let calibration = |pairs: &[(f64, f64)]| {
        let mean = |of: fn(f64, f64) -> f64| {
            pairs.iter().map(|(expected, measured)| of(*expected, *measured)).sum::<f64>()
                / pairs.len() as f64
        };
        Calibration {
            predictions: pairs.len() as u32,
            right: pairs.iter().filter(|(expected, measured)| expected * measured > 0.0).count() as u32,
            error: mean(|expected, measured| (measured - expected).abs()),
            bias: mean(|expected, measured| measured - expected),
        }
    };
    let mut all: Vec<(&str, Calibration)> =
        pairs.into_iter().map(|(proposer, pairs)| (proposer, calibration(&pairs))).collect();
    all.sort_by_key(|(_, calibration)| Reverse(calibration.predictions)); // stable
    all
}
