//! What the fresh runs of a branch say: whether its gain over the baseline is confirmed.

use std::fmt::Write;

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, Normal, StudentsT};

use crate::{config::Goal, noise::Noise, runlog::plain, show::short, verdict::Rule};

/// The chance that a gain of nothing is taken for one. There is one test, of a branch that was chosen before.
const LEVEL: f64 = 0.05;

/// A branch that was made of accepted keeps; `summary.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its folder below the tag's.
    pub folder: String,
    /// The branch; `None` where there is none, since its head has no value.
    pub branch: Option<String>,
    /// The commit that it was built upon, the baseline's.
    pub base: String,
    /// Its last commit.
    pub head: String,
    /// The keeps that it holds, oldest first.
    pub keeps: Vec<Taken>,
    /// The keeps that it does not hold: their trials, and why.
    pub left_out: Vec<(u64, String)>,
    /// The metric's name.
    pub metric: String,
    /// Of the baseline, one value a seed; null for a run that crashed or was not made.
    pub baseline: Vec<Option<f64>>,
    /// Of the branch's head, likewise.
    pub values: Vec<Option<f64>>,
    /// What the runs come to.
    #[serde(flatten)]
    pub confirmation: Confirmation,
}

/// One keep of a branch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Taken {
    /// Its trial.
    pub trial: u64,
    /// Its commit on the branch.
    pub commit: String,
    /// What it does, in a line.
    pub description: String,
    /// Promising trials whose edits are part of it.
    pub carries: Vec<u64>,
}

/// Whether a gain is one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Confirmation {
    /// By how much the branch is better than the baseline, over pairs of equal seeds; above 0 is better.
    pub gain: Option<f64>,
    /// Its standard error; `None` where nothing is known of it.
    pub error: Option<f64>,
    /// The gain that noise alone reaches in one case of twenty.
    pub needed: Option<f64>,
    /// Whether the gain is at least that.
    pub confirmed: bool,
    /// The same in a sentence.
    pub reason: String,
}

impl Confirmation {
    /// Of equally many values of branch and baseline, seed by seed; `sampling` is the standard error that comes
    /// from the choice of exam rows.
    pub(super) fn of(
        [branch, baseline]: [&[f64]; 2],
        goal: Goal,
        rule: Rule,
        noise: &Noise,
        sampling: f64,
    ) -> Self {
        let gains: Vec<f64> =
            branch.iter().zip(baseline).map(|(mine, other)| goal.gain(*other, *mine)).collect();
        let pairs = gains.len() as f64;
        let gain = gains.iter().sum::<f64>() / pairs;
        let (error, z) = match (rule, noise.sigma()) {
            (Rule::Strict, _) => (Some(0.0), 0.0),
            (Rule::Noise, Some(sigma)) => {
                let sigma = noise.sigma_of_pairs().map_or(sigma, |of_pairs| of_pairs.min(sigma));
                (Some(sigma * (2.0 / pairs).sqrt()), Normal::standard().inverse_cdf(1.0 - LEVEL))
            }
            (Rule::Noise, None) if gains.len() < 2 => (None, 0.0),
            (Rule::Noise, None) => {
                let squares: f64 = gains.iter().map(|one| (one - gain).powi(2)).sum();
                let t = StudentsT::new(0.0, 1.0, pairs - 1.0);
                let z = t.map_or(f64::INFINITY, |t| t.inverse_cdf(1.0 - LEVEL));
                (Some((squares / (pairs - 1.0) / pairs).sqrt()), z)
            }
        };
        let error = error.map(|error| if rule == Rule::Strict { error } else { error.hypot(sampling) });
        let needed = error.map(|error| z * error);
        let confirmed = gain > 0.0 && needed.is_some_and(|needed| gain >= needed);
        let reason = match needed {
            _ if gain <= 0.0 => "it is no better than the baseline".to_owned(),
            None => "one run of each does not tell how much of it is noise; --runs asks for more".to_owned(),
            Some(_) if rule == Rule::Strict => "the task's rule takes any gain for one".to_owned(),
            Some(needed) if confirmed => format!("noise alone reaches {needed:.6} in one case of twenty"),
            Some(needed) => {
                format!("noise alone reaches {needed:.6} in one case of twenty; --runs asks for more runs")
            }
        };
        Self { gain: Some(gain), error, needed, confirmed, reason }
    }

    /// Of runs that came to nothing.
    pub(super) fn none(reason: String) -> Self {
        Self { gain: None, error: None, needed: None, confirmed: false, reason }
    }
}

impl Outcome {
    /// For a person; the last lines are what to do next.
    pub fn text(&self) -> String {
        let (base, head) = (short(&self.base), short(&self.head));
        let keeps =
            if self.keeps.len() == 1 { "1 keep".to_owned() } else { format!("{} keeps", self.keeps.len()) };
        let mut text = format!("{keeps} upon {base}, head {head}\n");
        for taken in &self.keeps {
            let carried: Vec<String> = taken.carries.iter().map(u64::to_string).collect();
            let carried = match carried.is_empty() {
                true => String::new(),
                false => format!(", with the edits of trial {}", carried.join(", ")),
            };
            let what = plain(&taken.description, 80);
            let _ = writeln!(text, "  {}  trial {}: {what}{carried}", short(&taken.commit), taken.trial);
        }
        for (trial, why) in &self.left_out {
            let _ = writeln!(text, "  left out  trial {trial}: {why}");
        }
        let Confirmation { gain, error, reason, confirmed, .. } = &self.confirmation;
        let values = |values: &[Option<f64>]| {
            let words =
                values.iter().map(|value| value.map_or("-".to_owned(), |value| format!("{value:.6}")));
            words.collect::<Vec<_>>().join("  ")
        };
        let _ = writeln!(text, "{} with the same seeds\n  baseline  {}", self.metric, values(&self.baseline));
        let _ = writeln!(text, "  branch    {}", values(&self.values));
        let Some(branch) = &self.branch else {
            let _ = writeln!(text, "no branch was made: {}", plain(reason, 400));
            return text;
        };
        let gain = gain.map_or("unknown".to_owned(), |gain| format!("{gain:+.6}"));
        let error = error.map_or(String::new(), |error| format!(" ± {error:.6}"));
        let _ = match confirmed {
            true => writeln!(text, "gain {gain}{error}: confirmed, {reason}"),
            false => writeln!(text, "GAIN NOT CONFIRMED: {gain}{error}: {reason}"),
        };
        let _ = write!(
            text,
            "the branch is {branch}; nothing is merged, and your checkout is as it was:\n  \
             git log {base}..{branch}\n  git diff {base} {branch}\n  git merge {branch}\n"
        );
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(branch: &[f64], baseline: &[f64], noise: Noise) -> Confirmation {
        Confirmation::of([branch, baseline], Goal::Minimize, Rule::Noise, &noise, 0.0)
    }

    #[test]
    fn a_gain_is_confirmed_beyond_what_noise_reaches_in_one_case_of_twenty() {
        // Oracle: by hand. σ 0.1, two pairs: error 0.1 · √(2/2); one-sided 5 % is at 1.6449 errors.
        let noise = Noise::stated(0.1);
        let enough = judged(&[0.835, 0.835], &[1.0, 1.0], noise);
        assert!((enough.error.unwrap() - 0.1).abs() < 1e-12);
        assert!((enough.needed.unwrap() - 0.16449).abs() < 1e-5);
        assert!(enough.confirmed && (enough.gain.unwrap() - 0.165).abs() < 1e-12);
        assert!(!judged(&[0.836, 0.836], &[1.0, 1.0], noise).confirmed);
        assert!(!judged(&[1.2, 1.2], &[1.0, 1.0], noise).confirmed);
        let [a, b] = [&[1.2, 1.2][..], &[1.0, 1.0]];
        assert!(Confirmation::of([a, b], Goal::Maximize, Rule::Noise, &noise, 0.0).confirmed);
        // the choice of rows adds to it: √(0.1² + 0.24²) = 0.26
        let rows = Confirmation::of([&[0.8, 0.8], b], Goal::Minimize, Rule::Noise, &noise, 0.24);
        assert!((rows.error.unwrap() - 0.26).abs() < 1e-12 && !rows.confirmed);
    }

    #[test]
    fn where_sigma_is_unknown_the_pairs_have_to_tell() {
        // Oracle: printed tables. t with 2 degrees of freedom: 2.920 one-sided at 5 %.
        let of = judged(&[0.9, 0.8, 0.7], &[1.0, 1.0, 1.0], Noise::unknown());
        let error = 0.1 / 3f64.sqrt();
        assert!((of.error.unwrap() - error).abs() < 1e-12);
        assert!((of.needed.unwrap() / error - 2.920).abs() < 1e-3 && of.confirmed);
        let one = judged(&[0.5], &[1.0], Noise::unknown());
        assert!(!one.confirmed && one.error.is_none() && one.reason.contains("--runs"));
    }

    #[test]
    fn without_noise_any_gain_is_one_and_equality_is_none() {
        assert!(judged(&[0.999], &[1.0], Noise::stated(0.0)).confirmed);
        assert!(!judged(&[1.0], &[1.0], Noise::stated(0.0)).confirmed);
        let strict = |mine: f64| {
            Confirmation::of([&[mine], &[1.0]], Goal::Minimize, Rule::Strict, &Noise::unknown(), 0.0)
        };
        assert!(strict(0.99).confirmed && !strict(1.0).confirmed);
    }
}
