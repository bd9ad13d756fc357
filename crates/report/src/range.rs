//! Which values a drawing shows: one diverged trial must not flatten all others.

use crate::Night;
use crate::figures::measured;
use crate::night::Status;

/// The lowest and the highest value that are drawn to scale; `None` where no trial has a value. `below` and
/// `above` are room for labels, as shares of what is shown.
pub(crate) fn of_values(night: &Night, below: f64, above: f64) -> Option<(f64, f64)> {
    let kept = night.trials.iter().filter(|t| t.status == Status::Keep).filter_map(measured);
    let sigma = night.headline.sigma.filter(|s| s.is_finite() && *s > 0.0).unwrap_or(0.0);
    let (mut low, mut high) = (f64::INFINITY, f64::NEG_INFINITY);
    for v in kept {
        (low, high) = (low.min(v - 2.5 * sigma), high.max(v + 2.5 * sigma));
    }
    let mut values: Vec<f64> = night.trials.iter().filter_map(measured).collect();
    values.sort_by(f64::total_cmp);
    if !low.is_finite() {
        let middle = *values.get(values.len() / 2)?;
        (low, high) = (middle, middle);
    }
    // what was not kept is shown as far as most of it reaches, and never so far that the keeps are squeezed
    let reach = (high - low).max(6.0 * sigma);
    let at = |share: f64| values[((values.len() - 1) as f64 * share) as usize];
    let reach = if reach > 0.0 { reach } else { at(0.75) - at(0.25) };
    low = low.min(at(0.02).max(low - reach));
    high = high.max(at(0.98).min(high + reach));
    let span = match high - low {
        s if s > 0.0 && s.is_finite() => s,
        _ => (high.abs() * 0.01).max(1e-9),
    };
    let (low, high) = (low - span * (0.04 + below), high + span * (0.04 + above));
    ((high - low).is_finite() && low < high).then_some((low, high))
}
