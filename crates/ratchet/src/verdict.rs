//! The decision, a pure function.
//!
//! Under `noise` a candidate is compared with the champion by the mean of its runs. With n pairs of runs
//! the difference has standard error s = σ·√(2/n); what is left of the gain after the price of added
//! lines and memory decides:
//!
//! | net gain | decision |
//! |---|---|
//! | at least 2.5 s, and at least `min_delta` | keep |
//! | 1 s to 2.5 s, replicates left | another pair of runs, then again |
//! | less | discard, unless the code is simpler and the value no worse than the slack allows |
//!
//! Simplifications are judged against the best estimate that any champion ever had, not against the last
//! one, so that a thousand of them can together cost no more than the one slack.

use serde::{Deserialize, Serialize};

use crate::{
    config::Goal,
    noise::{Noise, Runs},
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
            min_delta: 0.0,
            max_replicates: 3,
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
}

/// The champion, as the verdict needs it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Scored {
    /// Its measurements.
    pub score: Score,
    /// The best estimate that it or any keep of this tag before it has, each the mean of its runs.
    pub best: f64,
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
    /// What it rests on, in one word: `baseline`, `improved`, `simplified`, `within_noise`, `price`, `worse`,
    /// `memory`, `open`, or the crash's own code.
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
    /// Seeds that both have run.
    pub pairs: u32,
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

/// Standard errors that a net gain must reach. A candidate that changes nothing is kept in fewer than one
/// case of fifty over up to four looks (see the test of that name).
const KEEP_ERRORS: f64 = 2.5;
/// Standard errors from which a gain is worth another pair of runs.
const GREY_ERRORS: f64 = 1.0;
/// Standard errors of its own mean by which a simplification must be inside the slack to be kept before
/// all replicates are run, or outside to be dropped.
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
        pairs: 0,
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
    note.pairs = weighed.pairs;
    note.lines_added = Some(weighed.lines);
    if policy.rule == Rule::Strict {
        note.gain_needed = Some(0.0);
        let better = by(policy.goal, weighed.gain);
        return if weighed.gain > 0.0 {
            (Decision::Keep, "improved", format!("{better}, and any gain keeps"))
        } else {
            (Decision::Discard, "worse", better)
        };
    }
    note.standard_error = Some(weighed.error);
    note.gain_needed = Some(weighed.price + weighed.bar);
    note.slack = Some(weighed.slack);
    None.or_else(|| weighed.improved())
        .or_else(|| weighed.simplified())
        .or_else(|| weighed.open())
        .unwrap_or_else(|| weighed.lost())
}

/// A candidate's figures against its champion's; gains are positive when better, whichever the goal.
struct Weighed {
    goal: Goal,
    delta: f64,
    gain: f64,
    lines: i64,
    pairs: u32,
    sigma: f64,
    /// No σ yet, and runs left to get one: nothing can be decided for good.
    blind: bool,
    more_runs: bool,
    /// Standard error of the gain.
    error: f64,
    /// What added lines and memory cost.
    price: f64,
    /// The net gain asked for.
    bar: f64,
    min_delta: f64,
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
        let runs = [score, champion].map(|score| f64::from(score.runs.count()));
        let pairs = score.runs.count().min(champion.runs.count());
        let sigma = noise.sigma().unwrap_or(0.0);
        let (delta, error) = if pairs > 1 {
            let sum: f64 = score.runs.differences(&champion.runs).sum();
            (sum / f64::from(pairs), sigma * (2.0 / f64::from(pairs)).sqrt())
        } else {
            // One run against all that the champion has: its mean is worth more than its first run, which may
            // have become champion by luck.
            (score.runs.mean() - champion.runs.mean(), sigma * (1.0 / runs[0] + 1.0 / runs[1]).sqrt())
        };
        let lines = score.lines as i64 - champion.lines as i64;
        let memory_price = policy.memory_price * (score.memory_gb - champion.memory_gb).max(0.0);
        let more_runs = pairs <= policy.max_replicates;
        Self {
            goal,
            delta,
            gain: gain_over(goal, 0.0, delta),
            lines,
            pairs,
            sigma,
            blind: noise.sigma().is_none() && more_runs,
            more_runs,
            error,
            price: policy.line_price * sigma * lines.max(0) as f64 + memory_price,
            bar: (KEEP_ERRORS * error).max(policy.min_delta),
            min_delta: policy.min_delta,
            slack: policy.slack * sigma,
            best: standing.best,
            behind: memory_price - gain_over(goal, standing.best, score.runs.mean()),
            leeway: SIMPLER_ERRORS * sigma / runs[0].sqrt(),
        }
    }

    fn net(&self) -> f64 {
        self.gain - self.price
    }

    fn improved(&self) -> Option<Judged> {
        let clear = self.net() > 0.0 && self.net() >= self.bar && !self.blind;
        let needed = figure(self.price + self.bar);
        clear.then(|| (Decision::Keep, "improved", self.say(&format!(", more than the {needed} needed"))))
    }

    fn simplified(&self) -> Option<Judged> {
        // A single lucky run is no proof; where runs do not differ at all it is.
        let several = (self.pairs > 1 || self.sigma == 0.0) && self.behind + self.leeway <= self.slack;
        let proven = !self.blind && (several || !self.more_runs);
        (self.lines < 0 && proven && self.behind <= self.slack).then(|| {
            let (lines, slack) = (-self.lines, figure(self.slack));
            let simpler =
                format!("; {lines} lines fewer, and within {slack} of the best, {}", figure(self.best));
            (Decision::Keep, "simplified", self.say(&simpler))
        })
    }

    fn open(&self) -> Option<Judged> {
        let noise_explains = KEEP_ERRORS * self.error;
        let grey = self.net() > 0.0
            && (self.blind
                || self.net() >= GREY_ERRORS * self.error && self.net() + noise_explains >= self.min_delta);
        let simpler = self.lines < 0 && self.behind - self.leeway <= self.slack;
        let runs_differ = self.blind || self.error > 0.0;
        (self.more_runs && runs_differ && (grey || simpler))
            .then(|| (Decision::Replicate(self.pairs + 1), "open", self.say("; more runs have to settle it")))
    }

    fn lost(&self) -> Judged {
        let (outcome, why) = if self.gain <= 0.0 {
            ("worse", String::new())
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
        let runs = if self.pairs == 1 { "1 run".to_owned() } else { format!("{} pairs of runs", self.pairs) };
        format!("{}{what_follows} (σ {sigma}, {runs})", by(self.goal, self.gain))
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
