//! The decision, a pure function.
//!
//! Under `noise` the first run only screens. What is not better than what the candidate builds on is
//! discarded at once; nearly all candidates end here, for the price of one run. What is better but too
//! little to be worth further runs is *promising*: not kept, but carried, so that the next candidates build
//! on it and small gains can add up until together they are large enough to be told from noise. Only then
//! is the whole tested against the champion, on further runs of both: is what its gain leaves after the
//! price of added lines and memory more than nothing? The gain has the standard error
//!
//! ```text
//! s = √( σ²·(1/n + 1/m) + r² )
//! ```
//!
//! with n runs of the candidate, m of the champion, σ the noise of one run, and r what the choice of
//! validation rows leaves of uncertainty, from the nats of both on the same rows. Where equal seeds do much
//! the same to both, the differences of pairs have the smaller error, and take the place of the means.
//!
//! | the candidate | decision |
//! |---|---|
//! | has two runs or more, and a net gain of at least z·s and `min_delta` | keep |
//! | is likely enough to get there | another run of both sides, then again |
//! | is better than what it builds on | discard; promising, and carried |
//! | is none of these | discard, unless the code is simpler and the value no worse than the slack allows |
//!
//! z follows from the level that [`Risk`] gives this test and from how often it is looked at, so that over
//! a tag the share of keeps that are no improvement stays near or below `false_keeps`; where it does not,
//! `examples/nights` shows. False is a keep as a whole: single edits in it may do nothing. Without `carry` there is no
//! screening: whatever has a chance is tested, by itself.
//!
//! Simplifications are judged against the best estimate that any champion ever had, not against the last
//! one, and with their own luck inside the slack, so that a thousand of them together cost no more than it.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal};

use crate::{
    config::Goal,
    noise::{Noise, Runs},
    risk::{Risk, bar},
};

/// How gains are told from noise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Rule {
    /// Any better value keeps.
    Strict,
    /// A gain must exceed what noise explains.
    #[default]
    Noise,
}

/// The `[accept]` section of the task contract.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Policy {
    /// How gains are told from noise.
    pub rule: Rule,
    /// σ of one run, in the metric's unit, used until replicates have measured it.
    pub sigma: Option<f64>,
    /// What share of the keeps of a tag may be no improvement.
    pub false_keeps: f64,
    /// Whether later candidates build on what is promising and not yet proven.
    pub carry: bool,
    /// Gains smaller than this are not worth a commit, in the metric's unit.
    pub min_delta: f64,
    /// Further runs of a candidate, and of the champion, that one decision may ask for.
    pub max_replicates: u32,
    /// Gain that each line added on balance has to bring, in σ.
    pub line_price: f64,
    /// What all simplifications together may lose against the best estimate ever, in σ.
    pub slack: f64,
    /// Candidates that need more memory than this are discarded.
    pub memory_limit_gb: Option<f64>,
    /// Gain that each added GB has to bring, in the metric's unit.
    pub memory_price: f64,
    /// Which way is better. Taken from `[metric]`; not a key of `[accept]`.
    #[serde(skip)]
    pub goal: Goal,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            rule: Rule::Noise,
            sigma: None,
            false_keeps: 0.05,
            carry: true,
            min_delta: 0.0,
            max_replicates: 2,
            line_price: 0.05, // twenty lines cost one σ: on `full`, about 0.001 bpb
            slack: 1.0,
            memory_limit_gb: None,
            memory_price: 0.0,
            goal: Goal::Minimize,
        }
    }
}

impl Policy {
    /// Refuses figures that no verdict could use; the error names the key and what it may be.
    pub fn check(&self) -> Result<(), String> {
        let amounts = [
            ("min_delta", self.min_delta),
            ("line_price", self.line_price),
            ("slack", self.slack),
            ("memory_price", self.memory_price),
            ("memory_limit_gb", self.memory_limit_gb.unwrap_or(0.0)),
            ("sigma", self.sigma.unwrap_or(0.0)),
        ];
        if !(self.false_keeps > 0.0 && self.false_keeps < 0.5) {
            return Err(format!("false_keeps is {}; it must be a share between 0 and 0.5", self.false_keeps));
        }
        match amounts.iter().find(|(_, amount)| !(amount.is_finite() && *amount >= 0.0)) {
            Some((key, amount)) => Err(format!("{key} is {amount}; it must be 0 or a positive number")),
            None => Ok(()),
        }
    }
}

/// A candidate's measurements.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The metric, one value a run, in seed order.
    pub runs: Runs,
    /// Lines of the editable files that hold code, see [`crate::source::lines`].
    pub lines: u64,
    /// Peak memory of fit and score.
    pub memory_gb: f64,
    /// Standard error that the choice of exam rows leaves in the difference to the champion; 0 where there
    /// are no rows.
    pub sampling: f64,
}

/// The champion, as the verdict needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Its measurements.
    pub score: Score,
    /// The best estimate that it or any keep of this tag before it has, each the mean of its runs.
    pub best: f64,
    /// What the tests of the tag have used up.
    pub risk: Risk,
    /// Where the candidate builds on carried edits: the value that they are believed to have, what their
    /// lines and memory cost included.
    pub lead: Option<f64>,
}

/// A candidate that has no score.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// A short code, for example `build_failed`.
    pub outcome: String,
    /// One line for a person.
    pub reason: String,
}

/// What came of running a candidate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Outcome {
    /// It has a score.
    Scored(Score),
    /// It has none.
    Crashed(Crash),
}

/// What to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Decision {
    /// The candidate becomes the champion.
    Keep,
    /// The champion stays.
    Discard,
    /// There is no score to judge.
    Crash,
    /// Undecided: give both sides this many runs in all, then ask again.
    Replicate(u32),
}

/// A decision with all that led to it; stored as `verdict.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// What becomes of the trial.
    pub decision: Decision,
    /// What it rests on, in one word: `baseline`, `improved`, `simplified`, `promising`, `within_noise`,
    /// `price`, `worse`, `memory`, `open`, or the crash's own code.
    pub outcome: String,
    /// One sentence for people.
    pub reason: String,
    /// The rule applied.
    pub rule: Rule,
    /// The candidate's mean value.
    pub value: Option<f64>,
    /// The champion's mean value.
    pub champion: Option<f64>,
    /// Candidate − champion, over the pairs where there are several.
    pub delta: Option<f64>,
    /// Runs of the candidate and of the champion.
    #[serde(default)]
    pub runs: [u32; 2],
    /// Whether `delta` is of pairs of equal seeds; else it is of the means.
    #[serde(default)]
    pub paired: bool,
    /// The chance of a false keep that this test may take, in all of its looks; 0 where there was none.
    #[serde(default)]
    pub level: f64,
    /// Standard errors that follow from it for this look.
    #[serde(default)]
    pub z: Option<f64>,
    /// What the choice of exam rows adds to the standard error.
    #[serde(default)]
    pub sampling: f64,
    /// The value that candidate and all it carries are believed to have, costs included: of σ it claims only
    /// the part that a gain of this size usually keeps when it is measured again.
    #[serde(default)]
    pub lead: Option<f64>,
    /// σ of one run, and where it comes from.
    pub noise: Noise,
    /// Standard error of `delta`.
    pub standard_error: Option<f64>,
    /// Gain asked for: from noise or `min_delta`, and the price of lines and memory.
    pub gain_needed: Option<f64>,
    /// Lines added on balance; negative when the candidate is simpler.
    pub lines_added: Option<i64>,
    /// The best estimate ever, which simplifications are held against.
    pub best: Option<f64>,
    /// How far behind the best estimate a simplification may fall, in the metric's unit.
    pub slack: Option<f64>,
}

/// The outcome of a keep that a test has shown to be better.
pub const IMPROVED: &str = "improved";
/// The outcome of a discard that later candidates build on.
pub const PROMISING: &str = "promising";
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

/// Judges a trial. Pure: the same input gives the same verdict, and nothing else is read.
///
/// Without a champion the trial is the baseline, kept if it has a score.
pub fn verdict(champion: Option<&Scored>, trial: &Outcome, noise: &Noise, policy: &Policy) -> Verdict {
    let mut note = Verdict {
        decision: Decision::Crash,
        outcome: String::new(),
        reason: String::new(),
        rule: policy.rule,
        value: None,
        champion: champion.map(|c| c.score.runs.mean()),
        delta: None,
        runs: [0; 2],
        paired: false,
        level: 0.0,
        z: None,
        sampling: 0.0,
        lead: None,
        noise: *noise,
        standard_error: None,
        gain_needed: None,
        lines_added: None,
        best: champion.map(|c| c.best),
        slack: None,
    };
    let (decision, outcome, reason) = match (trial, champion) {
        (Outcome::Crashed(crash), _) => (Decision::Crash, crash.outcome.as_str(), crash.reason.clone()),
        (Outcome::Scored(score), None) => {
            note.value = Some(score.runs.mean());
            (Decision::Keep, "baseline", "the unedited baseline".to_owned())
        }
        (Outcome::Scored(score), Some(champion)) => {
            note.value = Some(score.runs.mean());
            over_memory(score, policy).unwrap_or_else(|| compare(champion, score, noise, policy, &mut note))
        }
    };
    Verdict { decision, outcome: outcome.to_owned(), reason, ..note }
}

type Judged = (Decision, &'static str, String);

fn over_memory(score: &Score, policy: &Policy) -> Option<Judged> {
    let (used, limit) = (score.memory_gb, policy.memory_limit_gb?);
    (used > limit).then(|| {
        let reason = format!("needs {} GB of memory; memory_limit_gb is {}", figure(used), figure(limit));
        (Decision::Discard, "memory", reason)
    })
}

/// Judges a scored candidate against the champion, and notes the numbers used.
fn compare(standing: &Scored, score: &Score, noise: &Noise, policy: &Policy, note: &mut Verdict) -> Judged {
    let weighed = Weighed::new(standing, score, noise, policy);
    note.delta = Some(weighed.delta);
    note.runs = [score.runs.count(), standing.score.runs.count()];
    note.paired = weighed.paired;
    note.lines_added = Some(weighed.lines);
    if policy.rule == Rule::Strict {
        note.gain_needed = Some(0.0);
        let better = by(policy.goal, weighed.gain);
        return if weighed.gain > 0.0 {
            (Decision::Keep, IMPROVED, format!("{better}, and any gain keeps"))
        } else {
            (Decision::Discard, "worse", better)
        };
    }
    if weighed.tested {
        note.level = weighed.level;
        note.z = Some(weighed.z);
    }
    note.lead = Some(weighed.lead);
    note.sampling = score.sampling;
    note.standard_error = Some(weighed.error);
    note.gain_needed = Some(weighed.price + weighed.bar);
    note.slack = Some(weighed.slack);
    None.or_else(|| weighed.improved())
        .or_else(|| weighed.simplified())
        .or_else(|| weighed.open())
        .or_else(|| weighed.promising())
        .unwrap_or_else(|| weighed.lost())
}

/// A candidate's figures against its champion's; gains are positive when better, whichever the goal.
struct Weighed {
    goal: Goal,
    delta: f64,
    gain: f64,
    lines: i64,
    runs: u32,
    paired: bool,
    sigma: f64,
    /// No σ yet, and runs left to get one: nothing can be decided for good.
    blind: bool,
    more_runs: bool,
    /// Whether the screening has let it through to the test.
    tested: bool,
    level: f64,
    /// Standard errors asked for at this look.
    z: f64,
    /// Standard error of the gain.
    error: f64,
    /// What added lines and memory cost.
    price: f64,
    /// The net gain asked for.
    bar: f64,
    /// Whether further runs have a chance of getting there.
    hope: bool,
    /// Whether it is better than what it builds on, and may be carried.
    promising: bool,
    carries: bool,
    /// The value that it is believed to have.
    lead: f64,
    slack: f64,
    best: f64,
    /// How far behind the best estimate, memory's price included.
    behind: f64,
    /// Leeway of the candidate's own mean.
    leeway: f64,
}

impl Weighed {
    fn new(standing: &Scored, score: &Score, noise: &Noise, policy: &Policy) -> Self {
        let (goal, champion) = (policy.goal, &standing.score);
        let (mine, theirs) = (score.runs.count(), champion.runs.count());
        let sigma = noise.sigma().unwrap_or(0.0);
        let Difference { delta, error, paired } = Difference::of(&score.runs, &champion.runs, noise);
        let error = error.hypot(score.sampling);
        let lines = score.lines as i64 - champion.lines as i64;
        let memory_price = policy.memory_price * (score.memory_gb - champion.memory_gb).max(0.0);
        let price = policy.line_price * sigma * lines.max(0) as f64 + memory_price;
        let gain = gain_over(goal, 0.0, delta);

        let net = gain - price;

        // what is believed of the gain: that of the carried edits, and of what is on top of them a share
        let believed = standing.lead.map_or(0.0, |lead| gain_over(goal, champion.runs.mean(), lead));
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
            behind: memory_price - gain_over(goal, standing.best, score.runs.mean()),
            leeway: SIMPLER_ERRORS * sigma / f64::from(mine).sqrt(),
        }
    }

    fn net(&self) -> f64 {
        self.gain - self.price
    }

    fn improved(&self) -> Option<Judged> {
        let clear = self.tested && self.net() >= self.bar && !self.blind;
        let needed = figure(self.price + self.bar);
        clear.then(|| (Decision::Keep, IMPROVED, self.say(&format!(", more than the {needed} needed"))))
    }

    fn simplified(&self) -> Option<Judged> {
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

    fn open(&self) -> Option<Judged> {
        let grey = self.net() > 0.0 && (self.blind || self.hope);
        let simpler = self.lines < 0 && self.behind - self.leeway <= self.slack;
        let runs_differ = self.blind || self.error > 0.0;
        (self.more_runs && runs_differ && (grey || simpler))
            .then(|| (Decision::Replicate(self.runs + 1), "open", self.say("; more runs have to settle it")))
    }

    fn promising(&self) -> Option<Judged> {
        let why = if self.tested { ", within the noise" } else { ", too little to test by itself" };
        self.promising.then(|| (Decision::Discard, PROMISING, self.say(&format!("{why}; carried"))))
    }

    fn lost(&self) -> Judged {
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

/// How much better `new` is than `old`: positive is better, whichever the goal.
fn gain_over(goal: Goal, old: f64, new: f64) -> f64 {
    match goal {
        Goal::Minimize => old - new,
        Goal::Maximize => new - old,
    }
}

/// "lower by 0.012 than the champion", whichever way is better.
fn by(goal: Goal, gain: f64) -> String {
    let lower = (goal == Goal::Minimize) == (gain > 0.0);
    match gain {
        0.0 => "equal to the champion".to_owned(),
        _ => {
            format!("{} than the champion by {}", if lower { "lower" } else { "higher" }, figure(gain.abs()))
        }
    }
}

/// Four significant digits, without an exponent where that stays readable.
fn figure(x: f64) -> String {
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

#[cfg(test)]
mod tests;
