//! Figures as a person reads them.

use crate::Night;
use crate::night::{Status, Trial};

/// A trial's value; a crash has none, whatever its record says.
pub(crate) fn measured(trial: &Trial) -> Option<f64> {
    trial.value.filter(|v| v.is_finite() && trial.status != Status::Crash)
}

/// What stands where there is no figure.
pub(crate) const NONE: &str = "–";

/// Writes values of one night's metric, all with as many decimals as its noise makes sense of.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Figures {
    decimals: usize,
}

impl Figures {
    /// Two digits of σ; without σ, six digits of a value.
    pub(crate) fn of(night: &Night) -> Self {
        let head = &night.headline;
        let digits = |x: f64, n: i32| n - 1 - x.abs().log10().floor() as i32;
        let some = |x: &f64| x.is_finite() && *x != 0.0;
        let values = || night.trials.iter().filter_map(measured);
        let decimals = match head.sigma.filter(some) {
            Some(sigma) => digits(sigma, 2),
            None => head.baseline.filter(some).or_else(|| values().find(some)).map_or(4, |v| digits(v, 6)),
        };
        Self { decimals: decimals.clamp(0, 6) as usize }
    }

    /// A value.
    pub(crate) fn value(&self, value: Option<f64>) -> String {
        match value {
            Some(v) if v.is_finite() => self.plain(v),
            _ => NONE.to_owned(),
        }
    }

    /// A difference, with its sign.
    pub(crate) fn delta(&self, delta: Option<f64>) -> String {
        match delta {
            Some(d) if d.is_finite() && d >= 0.0 => format!("+{}", self.plain(d.abs())), // −0 among them
            other => self.value(other),
        }
    }

    fn plain(&self, v: f64) -> String {
        let text = match v.abs() {
            a if a >= 1e9 => format!("{v:.3e}"),
            _ => format!("{v:.*}", self.decimals),
        };
        minus(text)
    }
}

/// With a minus sign that is as wide as a plus.
pub(crate) fn minus(text: String) -> String {
    if text.contains('-') { text.replace('-', "−") } else { text }
}

/// `12,345`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// `3.2 M`: three digits of a large number.
pub(crate) fn large(n: u64) -> String {
    let n = n as f64;
    match n {
        0.0..1e4 => count(n as u64),
        1e4..1e6 => format!("{:.0} k", n / 1e3),
        1e6..1e9 => format!("{:.1} M", n / 1e6),
        _ => format!("{:.1} G", n / 1e9),
    }
}

/// `7 h 42 min`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = if seconds.is_finite() { seconds.max(0.0).round() as u64 } else { 0 };
    match s {
        0..60 => format!("{s} s"),
        60..3600 => format!("{} min", s / 60),
        3600..360_000 => format!("{} h {:02} min", s / 3600, s % 3600 / 60),
        _ => format!("{} h", count(s / 3600)),
    }
}

/// `94 %`.
pub(crate) fn percent(share: f64) -> String {
    if share.is_finite() { minus(format!("{:.0} %", share * 100.0)) } else { NONE.to_owned() }
}

/// `1 keep`, `3 keeps`, `2 crashes`.
pub(crate) fn of(n: usize, noun: &str) -> String {
    let end = match noun.ends_with("sh") {
        _ if n == 1 => "",
        true => "es",
        false => "s",
    };
    format!("{} {noun}{end}", count(n as u64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::night::Headline;

    fn with(sigma: Option<f64>, baseline: f64) -> Figures {
        let headline = Headline { sigma, baseline: Some(baseline), ..Headline::default() };
        Figures::of(&Night { headline, ..Night::default() })
    }

    #[test]
    fn values_have_the_decimals_that_noise_makes_sense_of() {
        assert_eq!(with(Some(0.0011), 0.9979).value(Some(0.97454321)), "0.9745");
        assert_eq!(with(Some(0.00042), 1.3).value(Some(0.97454321)), "0.97454");
        assert_eq!(with(Some(120.0), 35_000.0).value(Some(35_123.4)), "35123");
        assert_eq!(with(None, 0.9979).value(Some(0.97454321)), "0.974543");
        assert_eq!(with(None, 1234.5).value(Some(1.0)), "1.00");
    }

    #[test]
    fn a_difference_has_a_sign_and_what_is_no_number_is_a_dash() {
        let f = with(Some(0.0011), 1.0);
        assert_eq!(f.delta(Some(0.00234)), "+0.0023");
        assert_eq!(f.delta(Some(-0.00234)), "−0.0023");
        assert_eq!(f.delta(Some(-0.0)), "+0.0000");
        assert_eq!(
            [f.delta(None), f.value(Some(f64::NAN)), f.delta(Some(f64::INFINITY))],
            [NONE, NONE, NONE]
        );
    }

    #[test]
    fn counts_times_and_shares_read_as_a_person_writes_them() {
        assert_eq!([count(7), count(1234), count(1_234_567)], ["7", "1,234", "1,234,567"]);
        assert_eq!([large(9_999), large(45_678), large(4_182_300)], ["9,999", "46 k", "4.2 M"]);
        assert_eq!([duration(41.7), duration(125.0), duration(28_710.0)], ["42 s", "2 min", "7 h 58 min"]);
        assert_eq!([of(1, "keep"), of(2, "keep"), of(3, "crash")], ["1 keep", "2 keeps", "3 crashes"]);
        assert_eq!([percent(0.834), percent(f64::NAN)], ["83 %", NONE]);
    }
}
