//! From values to places on a drawing, and the round numbers beside them.

/// A straight mapping of `from..=to` to pixels.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) from: f64,
    pub(crate) to: f64,
    pub(crate) start: f64,
    pub(crate) end: f64,
}

impl Scale {
    /// The pixel of `v`; a value outside is put on the nearer end.
    pub(crate) fn at(&self, v: f64) -> f64 {
        let share = ((v - self.from) / (self.to - self.from)).clamp(0.0, 1.0);
        self.start + share * (self.end - self.start)
    }

    /// About `n` round numbers within, each as it is written.
    pub(crate) fn ticks(&self, n: usize) -> Vec<(f64, String)> {
        let step = round_step((self.to - self.from) / n.max(1) as f64);
        let decimals = (-step.log10().floor()).clamp(0.0, 12.0) as usize;
        let first = (self.from / step).ceil();
        let mut ticks = Vec::new();
        for i in 0..=2 * n {
            let v = (first + i as f64) * step;
            if !v.is_finite() || v > self.to + step * 1e-9 {
                break;
            }
            let v = if v.abs() < step * 1e-9 { 0.0 } else { v };
            let text = if v.abs() >= 1e9 { format!("{v:.2e}") } else { format!("{v:.decimals$}") };
            ticks.push((v, crate::figures::minus(text)));
        }
        ticks
    }
}

/// 1, 2 or 5 times a power of ten, at least `rough`.
fn round_step(rough: f64) -> f64 {
    let power = 10f64.powf(rough.log10().floor());
    let times = rough / power;
    let round = [1.0, 2.0, 5.0].into_iter().find(|&r| times <= r * 1.000_001).unwrap_or(10.0);
    round * power
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_lie_within_and_are_neither_few_nor_many() {
        for (from, to) in
            [(0.9634, 1.0021), (-3.0, 7.0), (0.0, 94.0), (1e-9, 3e-9), (1e30, 2e30), (-0.02, 0.02)]
        {
            let ticks = Scale { from, to, start: 0.0, end: 100.0 }.ticks(6);
            assert!((3..=8).contains(&ticks.len()), "{from}..{to}: {ticks:?}");
            for (v, text) in &ticks {
                let slip = (to - from) * 1e-9;
                assert!(*v >= from - slip && *v <= to + slip, "{v} in {from}..{to}");
                let read: f64 = text.replace('−', "-").parse().unwrap();
                assert!((read - v).abs() <= (to - from) * 0.01, "{text} is not {v}");
            }
        }
        let words = |from, to| {
            Scale { from, to, start: 0.0, end: 1.0 }.ticks(6).into_iter().map(|t| t.1).collect::<Vec<_>>()
        };
        assert_eq!(words(0.9634, 1.0021), ["0.97", "0.98", "0.99", "1.00"]);
        assert_eq!(words(-3.0, 7.0), ["−2", "0", "2", "4", "6"]);
    }
}
