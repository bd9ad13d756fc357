//! A candidate's figures against its champion's, and what follows from them.

use statrs::distribution::{ContinuousCDF, Normal};

use super::{Decision, IMPROVED, Judged, PROMISING, Policy, Score, Scored};
use crate::{
    config::Goal,
    noise::{Noise, Runs},
    risk::bar,
};

/// σ that a carried gain must be believed to have before it is tested. Lower, runs are wasted on tests that
/// fail; higher, a run ends with more that is not proven yet. Found by simulation: examples/nights.
const WORTH_TESTING: f64 = 2.0;
/// The share of a single run's gain that is believed: as if the variance of candidates' effects were two
/// thirds of the noise's.
const BELIEF: f64 = 0.4;
/// Runs without which nothing is kept as an improvement: the first one is a selected one.
const FEWEST_RUNS: u32 = 2;
/// Chance of getting over the last look's bar below which further runs are not paid for.
const HOPE: f64 = 0.25;
/// Standard errors of its own mean by which a simplification must be inside the slack to be kept, or outside
/// to be dropped before all replicates are run.
const SIMPLER_ERRORS: f64 = 1.5;

/// A candidate's figures against its champion's; gains are positive when better, whichever the goal.
pub(super) struct Weighed {
    goal: Goal,
    pub(super) delta: f64,
    pub(super) gain: f64,
    pub(super) lines: i64,
    runs: u32,
    pub(super) paired: bool,
    sigma: f64,
    /// No σ yet, and runs left to get one: nothing can be decided for good.
    blind: bool,
    more_runs: bool,
    /// Whether the screening has let it through to the test.
    pub(super) tested: bool,
    pub(super) level: f64,
    /// Standard errors asked for at this look.
    pub(super) z: f64,
    /// Standard error of the gain.
    pub(super) error: f64,
    /// What added lines and memory cost.
    pub(super) price: f64,
    /// The net gain asked for.
    pub(super) bar: f64,
    /// Whether further runs have a chance of getting there.
    hope: bool,
    /// Whether it is better than what it builds on, and may be carried.
    promising: bool,
    carries: bool,
    /// The value that it is believed to have.
    pub(super) lead: f64,
    pub(super) slack: f64,
    best: f64,
    /// How far behind the best estimate, memory's price included.
    behind: f64,
    /// Leeway of the candidate's own mean.
    leeway: f64,
}

impl Weighed {
    pub(super) fn new(standing: &Scored, score: &Score, noise: &Noise, policy: &Policy) -> Self {
        let (goal, champion) = (policy.goal, &standing.score);
        let (mine, theirs) = (score.runs.count(), champion.runs.count());
        let sigma = noise.sigma().unwrap_or(0.0);
        let Difference { delta, error, paired } = Difference::of(&score.runs, &champion.runs, noise);
        let error = error.hypot(score.sampling);
        let lines = score.lines as i64 - champion.lines as i64;
        let memory_price = policy.memory_price * (score.memory_gb - champion.memory_gb).max(0.0);
        let price = policy.line_price * sigma * lines.max(0) as f64 + memory_price;
        let gain = goal.gain(0.0, delta);

        let net = gain - price;

        // what is believed of the gain: that of the carried edits, and of what is on top of them a share
        let believed = standing.lead.map_or(0.0, |lead| goal.gain(champion.runs.mean(), lead));
        let weight = BELIEF * f64::from(mine);
        let ahead = (net - believed) * weight / (weight + 1.0 - BELIEF);
        let carry = policy.carry && noise.sigma().is_some();
        let worth_testing = believed + ahead >= WORTH_TESTING * sigma;
        let tested = net > 0.0 && (!carry || mine > 1 || ahead > 0.0 && worth_testing);

        let most = 1 + policy.max_replicates;
        let fewest = if sigma > 0.0 { FEWEST_RUNS.min(most) } else { 1 };
        let looks = most.max(mine) + 1 - fewest;
        let more_runs = mine < most;
        let level = standing.risk.level(policy.false_keeps);
        let z = bar(level, looks);
        // the last look, as it would be: what is still to come of noise, and what it has to reach
        let ends = f64::from(most.max(mine));
        let last = (sigma * (1.0 / ends + 1.0 / ends.max(f64::from(theirs))).sqrt()).hypot(score.sampling);
        let to_come = (error.powi(2) - last.powi(2)).max(0.0).sqrt();
        let missing = (z * last).max(policy.min_delta) - net;
        let hope = missing <= -Normal::standard().inverse_cdf(HOPE) * to_come;
        Self {
            goal,
            delta,
            gain,
            lines,
            runs: mine,
            paired,
            sigma,
            blind: noise.sigma().is_none() && more_runs,
            more_runs,
            tested: tested && mine >= fewest,
            level,
            z,
            error,
            price,
            bar: (z * error).max(policy.min_delta),
            // the screening's one run is a selected one: how far it is ahead says nothing of chances
            hope: tested && (hope || carry && mine < fewest),
            promising: carry && ahead > 0.0,
            carries: standing.lead.is_some(),
            lead: match goal {
                Goal::Minimize => champion.runs.mean() - believed - ahead,
                Goal::Maximize => champion.runs.mean() + believed + ahead,
            },
            slack: policy.slack * sigma,
            best: standing.best,
            behind: memory_price - goal.gain(standing.best, score.runs.mean()),
            leeway: SIMPLER_ERRORS * sigma / f64::from(mine).sqrt(),
        }
    }

    pub(super) fn net(&self) -> f64 {
        self.gain - self.price
    }

    pub(super) fn improved(&self) -> Option<Judged> {
        let clear = self.tested && self.net() >= self.bar && !self.blind;
        let needed = figure(self.price + self.bar);
        clear.then(|| (Decision::Keep, IMPROVED, self.say(&format!(", more than the {needed} needed"))))
    }

    pub(super) fn simplified(&self) -> Option<Judged> {
        // A single lucky run is no proof; where runs do not differ at all it is. The candidate's own luck has to
        // fit into the slack too: many keeps at its edge, each by a lucky mean, would otherwise end beyond it.
        let several = self.runs > 1 || self.sigma == 0.0;
        let inside = self.behind + self.leeway <= self.slack;
        (self.lines < 0 && several && inside && !self.blind).then(|| {
            let (lines, slack) = (-self.lines, figure(self.slack));
            let simpler =
                format!("; {lines} lines fewer, and within {slack} of the best, {}", figure(self.best));
            (Decision::Keep, "simplified", self.say(&simpler))
        })
    }

    pub(super) fn open(&self) -> Option<Judged> {
        let grey = self.net() > 0.0 && (self.blind || self.hope);
        let simpler = self.lines < 0 && self.behind - self.leeway <= self.slack;
        let runs_differ = self.blind || self.error > 0.0;
        (self.more_runs && runs_differ && (grey || simpler))
            .then(|| (Decision::Replicate(self.runs + 1), "open", self.say("; more runs have to settle it")))
    }

    pub(super) fn promising(&self) -> Option<Judged> {
        let why = if self.tested { ", within the noise" } else { ", too little to test by itself" };
        self.promising.then(|| (Decision::Discard, PROMISING, self.say(&format!("{why}; carried"))))
    }

    pub(super) fn lost(&self) -> Judged {
        let (outcome, why) = if self.gain <= 0.0 {
            ("worse", String::new())
        } else if self.carries && !self.promising {
            ("worse", ", but no better than the edits that it carries".to_owned())
        } else if self.gain >= self.bar {
            let needed = figure(self.price + self.bar);
            ("price", format!(", less than the {needed} that {} added lines and memory ask for", self.lines))
        } else {
            ("within_noise", format!(", within the {} needed", figure(self.bar)))
        };
        (Decision::Discard, outcome, self.say(&why))
    }

    /// One sentence: the difference, what follows from it, and what that rests on.
    fn say(&self, what_follows: &str) -> String {
        let sigma = if self.blind { "unknown".to_owned() } else { figure(self.sigma) };
        let runs = if self.runs == 1 { "1 run".to_owned() } else { format!("{} runs each", self.runs) };
        format!("{}{what_follows} (σ {sigma}, {runs})", by(self.goal, self.gain))
    }
}

/// Candidate − champion.
struct Difference {
    delta: f64,
    /// Standard error, from the noise of runs alone.
    error: f64,
    paired: bool,
}

impl Difference {
    /// The better of two estimates: by the means of all runs, or by the pairs of equal seeds.
    fn of(candidate: &Runs, champion: &Runs, noise: &Noise) -> Self {
        let [mine, theirs] = [candidate, champion].map(|runs| f64::from(runs.count()));
        let means = Self {
            delta: candidate.mean() - champion.mean(),
            error: noise.sigma().unwrap_or(0.0) * (1.0 / mine + 1.0 / theirs).sqrt(),
            paired: false,
        };
        let pairs = mine.min(theirs);
        let pairs = Self {
            delta: candidate.differences(champion).sum::<f64>() / pairs,
            error: noise.sigma_of_pairs().unwrap_or(0.0) * (2.0 / pairs).sqrt(),
            paired: true,
        };
        if pairs.error < means.error { pairs } else { means }
    }
}

/// "lower by 0.012 than the champion", whichever way is better.
pub(super) fn by(goal: Goal, gain: f64) -> String {
    let lower = (goal == Goal::Minimize) == (gain > 0.0);
    match gain {
        0.0 => "equal to the champion".to_owned(),
        _ => {
            format!("{} than the champion by {}", if lower { "lower" } else { "higher" }, figure(gain.abs()))
        }
    }
}

/// Four significant digits, without an exponent where that stays readable.
pub(super) fn figure(x: f64) -> String {
    if x == 0.0 {
        return "0".to_owned();
    }
    let digits = x.abs().log10().floor();
    if (-7.0..9.0).contains(&digits) {
        format!("{x:.*}", (3.0 - digits).clamp(0.0, 10.0) as usize)
    } else {
        format!("{x:.3e}")
    }
}
