//! What the runs of a transfer come to.

use std::{fmt::Write, path::Path};

use serde::Serialize;

use super::{curve::Curve, plan::Plan};
use crate::{
    arms::{Run, place_of, read_run},
    config::Goal,
    error::{Error, Result},
    session::Session,
};

/// A mean over pairs of runs with equal seeds, better than the other side where it is above 0.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Estimate {
    /// The mean.
    pub mean: f64,
    /// Its standard error; `None` for a single pair.
    pub error: Option<f64>,
    /// Pairs of which both runs have a value.
    pub pairs: usize,
}

impl Estimate {
    fn of(differences: &[f64]) -> Option<Self> {
        let pairs = differences.len();
        let n = pairs as f64;
        let mean = (pairs > 0).then(|| differences.iter().sum::<f64>() / n)?;
        let squares: f64 = differences.iter().map(|difference| (difference - mean).powi(2)).sum();
        let error = (pairs > 1).then(|| (squares / (n - 1.0) / n).sqrt());
        Some(Self { mean, error, pairs })
    }
}

impl std::fmt::Display for Estimate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.error {
            Some(error) => write!(f, "{:+.6} ± {error:.6}", self.mean),
            None => write!(f, "{:+.6} (one pair: its error is unknown)", self.mean),
        }
    }
}

/// One side's values, one a seed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Side {
    /// `baseline`, `champion`, or `without-NNNN`.
    pub name: String,
    /// `None` for a run that crashed.
    pub values: Vec<Option<f64>>,
    /// Why those have none.
    pub reasons: Vec<String>,
}

/// What one keep is worth to the champion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Without {
    /// The keep.
    pub trial: u64,
    /// Its description.
    pub description: String,
    /// How much better the champion is with it.
    pub carries: Option<Estimate>,
    /// Why that is not known.
    pub reason: Option<String>,
}

/// A transfer's result; `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// Its folder below the tag's.
    pub folder: String,
    /// The metric's name.
    pub metric: String,
    /// Time to train, seconds.
    pub budget_s: f64,
    /// The depth.
    pub depth: u32,
    /// The baseline's trial.
    pub baseline: u64,
    /// The champion's trial.
    pub champion: u64,
    /// The champion's gain over the baseline in the trials themselves.
    pub trial_gain: Option<f64>,
    /// Every value.
    pub sides: Vec<Side>,
    /// The gain that there is now.
    pub gain: Option<Estimate>,
    /// `gain` over `trial_gain`.
    pub remains: Option<f64>,
    /// Seconds of training after which the champion's smoothed training loss is the baseline's last; one a
    /// seed, `None` where it never is or where there is no curve.
    pub reached_s: Vec<Option<f64>>,
    /// What each keep carries, where that was asked for.
    pub without: Vec<Without>,
}

impl Report {
    /// Reads the runs of a plan, all of which have ended.
    pub(super) fn of(session: &Session, plan: &Plan, dir: &Path) -> Result<Self> {
        let history = session.history();
        let goal = session.task.metric.goal;
        let mut sides = Vec::new();
        for arm in &plan.arms {
            let runs: Vec<Run> = (0..plan.runs)
                .map(|run| {
                    let place = place_of(dir, &arm.name, run);
                    read_run(&place)?.ok_or_else(|| Error::internal("a run has vanished").at(place))
                })
                .collect::<Result<_>>()?;
            let values = runs.iter().map(|run| run.value).collect();
            let reasons = runs.into_iter().filter_map(|run| run.reason).collect();
            sides.push(Side { name: arm.name.clone(), values, reasons });
        }
        let (baseline, champion) = (&sides[0], &sides[1]);
        let gain = better(goal, champion, baseline);
        let value = |trial| history.trial(trial).and_then(|record| record.value);
        let trial_gain = value(plan.champion)
            .zip(value(plan.baseline))
            .map(|(champion, baseline)| difference(goal, champion, baseline));
        let remains = gain
            .as_ref()
            .zip(trial_gain)
            .filter(|(_, trial_gain)| *trial_gain != 0.0)
            .map(|(gain, trial_gain)| gain.mean / trial_gain);
        let described =
            |trial| history.trial(trial).map_or(String::new(), |record| record.proposal.description.clone());
        let mut without: Vec<Without> = plan
            .arms
            .iter()
            .zip(&sides)
            .filter_map(|(arm, side)| {
                let trial = arm.without?;
                let carries = better(goal, champion, side);
                let reason = carries.is_none().then(|| side.reasons.first().cloned()).flatten();
                Some(Without { trial, description: described(trial), carries, reason })
            })
            .collect();
        without.extend(plan.conflicts.iter().map(|conflict| Without {
            trial: conflict.trial,
            description: described(conflict.trial),
            carries: None,
            reason: Some(conflict.reason.clone()),
        }));
        without.sort_by_key(|without| without.trial);
        let curve =
            |arm: usize, run| Curve::read(&place_of(dir, &plan.arms[arm].name, run).join("steps.csv"));
        let reached_s = (0..plan.runs).map(|run| curve(1, run)?.reaches(curve(0, run)?.end())).collect();
        let name = dir.file_name().unwrap_or_default().to_string_lossy();
        Ok(Self {
            folder: format!("transfer/{name}"),
            metric: session.task.metric.name.clone(),
            budget_s: plan.budget_s,
            depth: plan.depth,
            baseline: plan.baseline,
            champion: plan.champion,
            trial_gain,
            sides,
            gain,
            remains,
            reached_s,
            without,
        })
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut text = format!(
            "{} at depth {} after {:.0} s of training; above 0 is better\n",
            self.metric, self.depth, self.budget_s
        );
        for side in &self.sides {
            let values =
                side.values.iter().map(|value| value.map_or("crash".to_owned(), |v| format!("{v:.6}")));
            let _ = writeln!(text, "  {:14} {}", side.name, values.collect::<Vec<_>>().join("  "));
        }
        let known = |gain: Option<f64>| gain.map_or("unknown".to_owned(), |gain| format!("{gain:+.6}"));
        let _ = writeln!(text, "gain in the trials   {}", known(self.trial_gain));
        match &self.gain {
            Some(gain) => {
                let share = self.remains.map_or(String::new(), |share| {
                    let error =
                        gain.error.zip(self.trial_gain).map(|(error, trial)| 100.0 * (error / trial).abs());
                    let error = error.map_or(String::new(), |error| format!(" ± {error:.0}"));
                    format!("; {:.0}{error} % of it remain", 100.0 * share)
                });
                let _ = writeln!(text, "gain now             {gain}{share}");
            }
            None => text.push_str("gain now             unknown: no seed has a value on both sides\n"),
        }
        let reached: Vec<f64> = self.reached_s.iter().flatten().copied().collect();
        if reached.is_empty() {
            text.push_str(
                "the champion's training loss never reaches the baseline's last, or there is no steps.csv\n",
            );
        } else {
            let mean = reached.iter().sum::<f64>() / reached.len() as f64;
            let _ = writeln!(
                text,
                "the champion reaches the baseline's last training loss after {mean:.0} s, {:.0} % of the time, in {} of {} runs \
                 (training loss, mean of 5 % of the steps: not the exam's)",
                100.0 * mean / self.budget_s,
                reached.len(),
                self.reached_s.len()
            );
        }
        if !self.without.is_empty() {
            text.push_str("what the champion loses without each keep:\n");
        }
        for keep in &self.without {
            let carries = match (&keep.carries, &keep.reason) {
                (Some(carries), _) => carries.to_string(),
                (None, reason) => format!("unknown: {}", reason.as_deref().unwrap_or("a run has no value")),
            };
            let _ = writeln!(
                text,
                "  trial {:<5} {carries}  {}",
                keep.trial,
                crate::runlog::plain(&keep.description, 80)
            );
        }
        text
    }
}

/// By how much one value is better than another.
fn difference(goal: Goal, mine: f64, other: f64) -> f64 {
    match goal {
        Goal::Minimize => other - mine,
        Goal::Maximize => mine - other,
    }
}

/// By how much one side is better than another, seed by seed.
fn better(goal: Goal, mine: &Side, other: &Side) -> Option<Estimate> {
    let pairs = mine.values.iter().zip(&other.values).filter_map(|(mine, other)| mine.zip(*other));
    Estimate::of(&pairs.map(|(mine, other)| difference(goal, mine, other)).collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standard_error_is_that_of_the_pairs() {
        // Oracle: by hand. Differences 1, 2, 3: mean 2, variance 1, standard error 1/√3.
        let side = |values: &[f64]| Side {
            name: String::new(),
            values: values.iter().copied().map(Some).chain([None]).collect(),
            reasons: vec![],
        };
        let (mine, other) = (side(&[1.0, 5.0, 2.0]), side(&[2.0, 7.0, 5.0]));
        let estimate = better(Goal::Minimize, &mine, &other).unwrap();
        assert_eq!((estimate.mean, estimate.pairs), (2.0, 3));
        assert!((estimate.error.unwrap() - 1.0 / 3f64.sqrt()).abs() < 1e-12);
        assert_eq!(better(Goal::Maximize, &mine, &other).unwrap().mean, -2.0);
        assert_eq!(Estimate::of(&[4.0]).unwrap().error, None);
        assert_eq!(Estimate::of(&[]), None);
    }
}
