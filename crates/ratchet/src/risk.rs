//! The risk of a whole tag: at what level each candidate is tested, so that few of all keeps are false.
//!
//! A night makes hundreds of comparisons. Were each tested at 5 %, noise alone would give a keep in every
//! twenty trials. What a reader of the ledger asks is another share: how many of the *keeps* are false. It
//! is bounded by giving the tests levels α₁, α₂, … such that always
//!
//! ```text
//! α₁ + … + αₜ  ≤  false_keeps · max(keeps so far, 1)
//! ```
//!
//! which is the LORD++ condition (Ramdas, Yang, Wainwright, Jordan, NeurIPS 2017). Keeps earn levels for
//! later tests, a long drought lowers them.
//!
//! The theorem asks that a test's data have not been looked at before. Ours have, a little: the first of a
//! candidate's runs has also let it through the screening. What is left of the bound is therefore measured,
//! by the real verdict over simulated nights (`examples/nights`, and as a test).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

/// Of what is left a test spends one part in this many, and in one more for each test without a keep since:
/// levels fall like 1/n², fast enough to be bounded, slowly enough to leave something for the morning.
const PATIENCE: f64 = 5.0;

/// What the tests of a tag have used up so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Risk {
    /// Σ of the levels of all tests.
    pub spent: f64,
    /// Candidates kept as improvements.
    pub keeps: u32,
    /// Tests since the last of them.
    pub since: u32,
}

impl Risk {
    /// The level of the next test: the chance that it may have to keep a candidate that is no better.
    pub fn level(&self, false_keeps: f64) -> f64 {
        let budget = false_keeps * f64::from(self.keeps.max(1));
        (budget - self.spent).max(0.0) / (PATIENCE + f64::from(self.since))
    }

    /// After a test at `level`.
    pub fn after(self, level: f64, kept: bool) -> Self {
        Self {
            spent: self.spent + level,
            keeps: self.keeps + u32::from(kept),
            since: if kept { 0 } else { self.since + 1 },
        }
    }
}

/// Standard errors that a gain must reach at each of `looks` looks in a test of this level.
///
/// The looks share the level in equal parts: that these add up to it holds whatever the looks have in common.
pub fn bar(level: f64, looks: u32) -> f64 {
    Normal::standard().inverse_cdf(1.0 - (level / f64::from(looks)).clamp(1e-12, 0.5))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_never_add_up_to_more_than_the_keeps_allow() {
        // Oracle: the condition itself, over nights with keeps now and then, often or never.
        for every in [1, 3, 10, 50, 1_000_000] {
            let mut risk = Risk::default();
            for test in 1..2_000 {
                let level = risk.level(0.05);
                assert!(level > 0.0, "nothing left after {test} tests");
                assert!(risk.spent + level <= 0.05 * f64::from(risk.keeps.max(1)) + 1e-12);
                risk = risk.after(level, test % every == 0);
            }
        }
    }

    #[test]
    fn bars_are_the_normal_distributions_points() {
        // Oracle: printed tables.
        assert!((bar(0.05, 1) - 1.6449).abs() < 1e-4);
        assert!((bar(0.05, 2) - 1.9600).abs() < 1e-4);
        assert!((bar(0.002, 2) - 3.0902).abs() < 1e-4);
    }
}
