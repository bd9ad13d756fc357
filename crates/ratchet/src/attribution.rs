//! Where a gain comes from: more tokens in the budget, or more learnt from each.
//!
//! Both are read off the loss curves that fit leaves, `steps.csv`, at equal numbers of tokens. Learning is
//! the difference where both curves still run, throughput what is left. Schedules follow the clock and not
//! the tokens, so that a faster candidate is compared before its own last decay: the share of throughput is
//! rather too large than too small.

use std::path::Path;

use crate::plain_file;

/// Steps of a curve that are read at most.
const MOST_STEPS: usize = 1 << 20;
/// The loss at a point is the mean over so much of the tokens before it: single steps are noisy.
const WINDOW: f64 = 0.1;

/// A loss curve.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    /// (tokens so far, training loss in nats a token), tokens ascending; never empty.
    points: Vec<(f64, f64)>,
}

impl Curve {
    /// Of points in order; `None` where they are not, or where a number is not finite.
    pub fn new(points: Vec<(f64, f64)>) -> Option<Self> {
        let sound =
            points.iter().all(|(tokens, loss)| *tokens > 0.0 && tokens.is_finite() && loss.is_finite());
        let ascending = points.windows(2).all(|pair| pair[0].0 < pair[1].0);
        (!points.is_empty() && sound && ascending).then_some(Self { points })
    }

    /// The `steps.csv` of a trial's folder; `None` where there is none, or no such table.
    pub fn read(trial: &Path) -> Option<Self> {
        let text = plain_file::read(&trial.join("steps.csv")).ok()?;
        let mut table = csv::Reader::from_reader(text.as_slice());
        let column = |name: &str, head: &csv::StringRecord| head.iter().position(|column| column == name);
        let head = table.headers().ok()?.clone();
        let (tokens, loss) = (column("tokens", &head)?, column("loss", &head)?);
        let point = |row: csv::Result<csv::StringRecord>| {
            let row = row.ok()?;
            Some((row.get(tokens)?.parse().ok()?, row.get(loss)?.parse().ok()?))
        };
        Self::new(table.records().take(MOST_STEPS).map(point).collect::<Option<_>>()?)
    }

    /// The smoothed curve at equal distances: (tokens so far, loss), its end included.
    pub fn along(&self, points: usize) -> Vec<(f64, f64)> {
        let part = self.tokens() / points as f64;
        (1..=points).map(|point| point as f64 * part).map(|tokens| (tokens, self.at(tokens))).collect()
    }

    /// Tokens in all.
    fn tokens(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.0)
    }

    /// The loss around a number of tokens, smoothed over those before it.
    fn at(&self, tokens: f64) -> f64 {
        let (from, to) = (tokens * (1.0 - WINDOW), tokens);
        let first = self.points.partition_point(|point| point.0 <= from);
        let inside = &self.points[first..first.max(self.points.partition_point(|point| point.0 <= to))];
        if !inside.is_empty() {
            return inside.iter().map(|point| point.1).sum::<f64>() / inside.len() as f64;
        }
        // large steps: the one next to it
        let nearest =
            |a: &&(f64, f64), b: &&(f64, f64)| (a.0 - tokens).abs().total_cmp(&(b.0 - tokens).abs());
        self.points.iter().min_by(nearest).map_or(f64::NAN, |point| point.1)
    }
}

/// A gain in training loss, nats a token, and its two parts; positive is better.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attribution {
    /// From more (or fewer) tokens in the budget.
    pub throughput: f64,
    /// From what each token teaches: the difference at equal tokens.
    pub learning: f64,
    /// Tokens of the candidate over those of the champion.
    pub tokens: f64,
}

impl Attribution {
    /// Of a candidate over its champion.
    pub fn of(candidate: &Curve, champion: &Curve) -> Self {
        let (mine, theirs) = (candidate.tokens(), champion.tokens());
        let equal = mine.min(theirs);
        let learning = champion.at(equal) - candidate.at(equal);
        let total = champion.at(theirs) - candidate.at(mine);
        Self { throughput: total - learning, learning, tokens: mine / theirs }
    }
}

impl std::fmt::Display for Attribution {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { throughput, learning, tokens } = self;
        write!(
            f,
            "{:+.4} nats of training loss: {throughput:+.4} from throughput ({tokens:.2} x the tokens), \
             {learning:+.4} from learning per token",
            throughput + learning
        )
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// Oracle of all tests: curves whose law is known, loss = scale · tokens^-0.1.
    fn curve(scale: f64, steps: u32, tokens_a_step: f64) -> Curve {
        let point = |step: u32| {
            let tokens = f64::from(step) * tokens_a_step;
            (tokens, scale * tokens.powf(-0.1))
        };
        Curve::new((1..=steps).map(point).collect()).unwrap()
    }

    #[test]
    fn more_tokens_on_the_same_curve_are_all_throughput() {
        let slow = curve(10.0, 1000, 1000.0);
        let gain = Attribution::of(&curve(10.0, 1500, 1000.0), &slow);
        assert!(gain.learning.abs() < 1e-9 && (gain.tokens - 1.5).abs() < 1e-9);
        let expected = 10.0 * (1e6f64.powf(-0.1) - 1.5e6f64.powf(-0.1));
        assert!((gain.throughput / expected - 1.0).abs() < 0.01, "{gain:?}, expected {expected}");
        let loss = Attribution::of(&slow, &curve(10.0, 1500, 1000.0));
        assert!(loss.learning.abs() < 1e-9 && (loss.throughput + gain.throughput).abs() < 1e-9);
    }

    #[test]
    fn a_lower_curve_of_the_same_length_is_all_learning() {
        // larger steps, and no step of one at a step of the other
        let gain = Attribution::of(&curve(9.8, 333, 3000.0), &curve(10.0, 999, 1000.0));
        assert!(gain.throughput.abs() < 1e-3 * gain.learning.abs(), "{gain:?}");
        assert!((gain.learning / (0.2 * 1e6f64.powf(-0.1)) - 1.0).abs() < 0.05, "{gain:?}");
    }

    #[test]
    fn a_slower_candidate_that_learns_more_shows_both() {
        let gain = Attribution::of(&curve(9.0, 700, 1000.0), &curve(10.0, 1000, 1000.0));
        assert!(gain.learning > 0.0 && gain.throughput < 0.0, "{gain:?}");
    }

    #[test]
    fn what_is_no_curve_is_none() {
        let dir = tempfile::tempdir().unwrap();
        let read = |text: &str| {
            fs::write(dir.path().join("steps.csv"), text).unwrap();
            Curve::read(dir.path())
        };
        let head = "step,seconds,progress,tokens,loss\n";
        assert!(read(&format!("{head}0,0.1,0.5,100,5.0\n1,0.2,1.0,200,4.5\n")).is_some());
        for bad in
            ["", "x\n", head, &format!("{head}0,0,0,100,nan\n"), &format!("{head}0,0,0,200,5\n1,0,0,100,4\n")]
        {
            assert_eq!(read(bad), None, "{bad}");
        }
        fs::remove_file(dir.path().join("steps.csv")).unwrap();
        assert_eq!(Curve::read(dir.path()), None);
    }
}
