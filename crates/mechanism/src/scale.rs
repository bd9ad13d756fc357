//! A knob's scale, for who has only the knob: what its value is at a place, and where the next value is.

use serde_json::Value;

use crate::view::Knob;

/// Values closer than this, as a share of the range, may be written alike.
const FINEST: f64 = 0.005;

impl Knob {
    /// The value at a place from 0 to 1 of the range, rounded where the scale has whole numbers or powers of two;
    /// `None` for a choice.
    pub(crate) fn value_at(&self, at: f64) -> Option<f64> {
        let (low, high) = (self.low?, self.high?);
        let between = |low: f64, high: f64| low + (high - low) * at;
        Some(match self.kind.as_str() {
            "log" => (low * (high / low).powf(at)).clamp(low, high),
            "int" => between(low, high).round(),
            "pow2" => between(low.log2(), high.log2()).round().exp2(),
            _ => between(low, high),
        })
    }

    /// Whether a place means another value than the present one.
    pub(crate) fn moves(&self, at: f64) -> bool {
        match self.kind.as_str() {
            "int" | "pow2" => self.value_at(at) != self.value.as_f64(),
            _ => (at - self.at).abs() > 1e-9,
        }
    }

    /// The place `by` further, at least at the next value; `None` at the end of the range and for a choice.
    pub(crate) fn step(&self, by: f64) -> Option<f64> {
        let (low, high) = (self.low?, self.high?);
        let least = match self.kind.as_str() {
            "int" => 1.0 / (high - low),
            "pow2" => 1.0 / (high.log2() - low.log2()),
            _ => FINEST,
        };
        let at = (self.at + by.signum() * by.abs().max(least)).clamp(0.0, 1.0);
        ((at - self.at).abs() >= least / 2.0 && self.moves(at)).then_some(at)
    }

    /// Whether a number may be its value.
    pub(crate) fn allows(&self, number: f64) -> bool {
        let (Some(low), Some(high)) = (self.low, self.high) else { return false };
        let fits = match self.kind.as_str() {
            "int" => number.fract() == 0.0,
            "pow2" => number > 0.0 && number.log2().fract() == 0.0,
            _ => true,
        };
        fits && (low..=high).contains(&number)
    }

    /// Whether a value is the one that it has now.
    pub(crate) fn has(&self, value: &Value) -> bool {
        match (value.as_f64(), self.value.as_f64()) {
            (Some(one), Some(other)) => one == other,
            _ => *value == self.value,
        }
    }
}
