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

mod policy;
mod weighed;

use serde::{Deserialize, Serialize};

pub use self::policy::{Policy, Rule};
use self::weighed::{Weighed, by, figure};
use crate::{
    noise::{Noise, Runs},
    risk::Risk,
};

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

#[cfg(test)]
mod tests;
