//! The result: a table, comparisons, and what they support in words; `ablation.json` holds all of it.

use std::{collections::BTreeMap, fmt::Write};

use mechanism::Hook;
use serde::{Deserialize, Serialize};
use statrs::distribution::{Beta, ContinuousCDF};

use super::{
    meter::{CRASH_S, RUN_S, TOKENS_A_SECOND},
    outcome::{Counted, Had, Outcome},
    plan::{Group, On, Plan},
    statistics::{Comparison, LEVEL, Mean, compare, smallest},
};
use crate::{config::Goal, search::Standing};

/// Repeats below which intervals are remarked on.
const FEW: usize = 10;

/// The result of an ablation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What was compared.
    pub plan: Plan,
    /// Seconds of trials and proposals that each repeat had.
    pub budget_s: f64,
    /// One row a group.
    pub groups: Vec<Row>,
    /// Every pair of groups; of true changes on `sim`, else of measured ones.
    pub comparisons: Vec<Comparison>,
    /// What the figures support, a sentence each.
    pub conclusion: Vec<String>,
    /// Every repeat.
    pub outcomes: Vec<Outcome>,
}

/// What the repeats of a group came to; changes are the last champion's value minus the baseline's.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Row {
    /// The group.
    pub group: Group,
    /// What it is.
    pub says: String,
    /// Repeats.
    pub n: usize,
    /// The change as it was measured; a champion was chosen for it, so luck is part of it.
    pub delta: Mean,
    /// The change without noise, where that is known.
    pub true_delta: Option<Mean>,
    /// Mean trials a repeat.
    pub trials: f64,
    /// Mean keeps a repeat, without the baseline.
    pub keeps: f64,
    /// Mean crashes a repeat.
    pub crashes: f64,
    /// Mean proposals a repeat that came to nothing.
    pub in_vain: f64,
    /// Mean seconds of trials.
    pub trials_s: f64,
    /// Mean seconds of proposals.
    pub proposing_s: f64,
    /// Mean tokens.
    pub tokens: f64,
    /// Gain an hour of trials; true gain where that is known.
    pub gain_per_hour: f64,
    /// Gain a US dollar; `None` where nothing was paid or a price is not known.
    pub gain_per_usd: Option<f64>,
    /// Mean seconds between two trials by the clock.
    pub between_s: f64,
    /// Looks at the settings in all repeats.
    pub cycles: Counted,
    /// Research sessions in all repeats.
    pub sessions: Counted,
    /// What became of mechanisms, in all repeats.
    pub mechanisms: Fates,
}

/// What became of mechanisms.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Fates {
    /// How many there were.
    pub came: usize,
    /// How many stood how at the end of their repeat.
    pub standing: BTreeMap<String, usize>,
    /// Of which none of the answers was ever used: nothing is to their credit.
    pub inactive: usize,
    /// Calls of each hook.
    pub calls: BTreeMap<Hook, u64>,
    /// Those whose answer was used.
    pub acted: BTreeMap<Hook, u64>,
}

impl Fates {
    fn of<'a>(all: impl Iterator<Item = &'a Had>) -> Self {
        let mut fates = Self::default();
        for had in all {
            fates.came += 1;
            fates.inactive += usize::from(had.is_inactive());
            *fates.standing.entry(had.standing.as_str().to_owned()).or_default() += 1;
            had.calls.iter().for_each(|(hook, times)| *fates.calls.entry(*hook).or_default() += times);
            had.acted.iter().for_each(|(hook, times)| *fates.acted.entry(*hook).or_default() += times);
        }
        fates
    }

    /// One line.
    fn text(&self) -> String {
        let standing: Vec<String> = self.standing.iter().map(|(word, n)| format!("{n} {word}")).collect();
        let hooks: Vec<String> = self
            .calls
            .iter()
            .map(|(hook, calls)| format!("{hook} {calls}/{}", self.acted.get(hook).copied().unwrap_or(0)))
            .collect();
        format!(
            "{} mechanisms ({}; {} inactive), calls/acted: {}",
            self.came,
            standing.join(", "),
            self.inactive,
            hooks.join(", ")
        )
    }
}

impl Report {
    pub(super) fn of(plan: &Plan, budget_s: f64, outcomes: Vec<Outcome>) -> Self {
        let mut groups = Vec::new();
        let mut judged = Vec::new();
        for group in &plan.groups {
            let own: Vec<&Outcome> = outcomes.iter().filter(|outcome| outcome.group == *group).collect();
            let finals = |truths| own.iter().filter_map(|outcome| outcome.change(truths)).collect::<Vec<_>>();
            let Some(delta) = Mean::of(&finals(false)) else { continue };
            let mean = |of: &dyn Fn(&Outcome) -> f64| {
                own.iter().map(|outcome| of(outcome)).sum::<f64>() / own.len() as f64
            };
            let true_delta = Mean::of(&finals(true));
            let gain = plan.gain(0.0, true_delta.unwrap_or(delta).mean);
            let within =
                |outcome: &Outcome| outcome.points.last().map(|point| point.used).unwrap_or_default();
            let usd = mean(&|outcome| within(outcome).usd);
            let priced = usd > 0.0 && own.iter().all(|outcome| outcome.used.unpriced == 0);
            let trials_s = mean(&|outcome| within(outcome).trials_s);
            groups.push(Row {
                group: *group,
                says: group.says().to_owned(),
                n: own.len(),
                delta,
                true_delta,
                trials: mean(&|outcome| outcome.points.len() as f64),
                keeps: mean(&|outcome| outcome.counts[0].saturating_sub(1) as f64),
                crashes: mean(&|outcome| outcome.counts[2] as f64),
                in_vain: mean(&|outcome| outcome.in_vain as f64),
                trials_s,
                proposing_s: mean(&|outcome| within(outcome).proposing_s),
                tokens: mean(&|outcome| within(outcome).tokens as f64),
                gain_per_hour: gain / (trials_s / 3600.0).max(f64::MIN_POSITIVE),
                gain_per_usd: priced.then(|| gain / usd),
                between_s: mean(&|outcome| outcome.between_s),
                cycles: own.iter().map(|outcome| outcome.cycles).sum(),
                sessions: own.iter().map(|outcome| outcome.sessions).sum(),
                mechanisms: Fates::of(own.iter().flat_map(|outcome| &outcome.mechanisms)),
            });
            let of = |repeat| own.iter().find(|outcome| outcome.repeat == repeat);
            let truths = plan.on == On::Sim;
            judged.push((1..=plan.repeats).map(|repeat| of(repeat)?.change(truths)).collect());
        }
        let names: Vec<String> = groups.iter().map(|row| row.group.to_string()).collect();
        let comparisons = compare(&names, &judged);
        let mut conclusion = conclude(plan, &groups, &comparisons);
        conclusion.extend(conclude_of_mechanisms(&groups));
        conclusion.extend(overhead(plan, &groups));
        Self { plan: plan.clone(), budget_s, groups, comparisons, conclusion, outcomes }
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let Self { plan, budget_s, .. } = self;
        let metric = &plan.metric.name;
        let hours = budget_s / 3600.0;
        let mut text = format!(
            "ablation {plan}\neach repeat had {hours:.2} h of trials and proposals, from the same baseline\n"
        );
        let sim = plan.on == On::Sim;
        if sim {
            let _ = writeln!(
                text,
                "time by price: a run {RUN_S} s, one that crashes {CRASH_S} s, {TOKENS_A_SECOND} tokens a second"
            );
        }
        text.push('\n');
        let truth = if sim { format!("{:>30}", "without noise [95 %]") } else { String::new() };
        let _ = writeln!(
            text,
            "{:<33}{:>4} {:>32}{truth}{:>8}{:>7}{:>9}{:>9}{:>12}{:>10}",
            "group",
            "n",
            format!("change of {metric} [95 %]"),
            "trials",
            "keeps",
            "crashes",
            "in vain",
            "gain/GPU h",
            "gain/USD"
        );
        for row in &self.groups {
            let truth = row.true_delta.map_or(String::new(), |mean| format!("{:>30}", shown(&mean)));
            let _ = writeln!(
                text,
                "{:<33}{:>4} {:>32}{truth}{:>8.1}{:>7.1}{:>9.1}{:>9.1}{:>12.5}{:>10}",
                format!("{} {}", row.group, row.says),
                row.n,
                shown(&row.delta),
                row.trials,
                row.keeps,
                row.crashes,
                row.in_vain,
                row.gain_per_hour,
                row.gain_per_usd.map_or("-".to_owned(), |gain| format!("{gain:.5}"))
            );
        }
        if self.groups.iter().any(|row| row.n < FEW) {
            let _ = writeln!(
                text,
                "Of fewer than {FEW} repeats an interval holds less than it says: of 5 about 84 %."
            );
        }
        text.push('\n');
        for row in &self.groups {
            let Row { group, cycles, sessions, mechanisms, .. } = row;
            let of = |what, counted: Counted| match counted.done {
                0 => String::new(),
                done => format!("{done} {what} ({} failed), ", counted.failed),
            };
            let asked = of("cycles", *cycles) + of("sessions", *sessions).as_str();
            if mechanisms.came > 0 {
                let _ = writeln!(text, "{group}: {asked}{}", mechanisms.text());
            } else if !asked.is_empty() {
                let _ = writeln!(text, "{group}: {}", asked.trim_end_matches(", "));
            }
        }
        let of = if sim { "without noise" } else { "as measured" };
        let _ =
            writeln!(text, "\n{:<8}{:>30}{:>10}{:>12}", "pair", format!("difference, {of}"), "p", "adjusted");
        for pair in &self.comparisons {
            let name = format!("{} - {}", pair.a, pair.b);
            let difference = shown(&pair.difference);
            let _ = writeln!(text, "{name:<8}{difference:>30}{:>10.5}{:>12.5}", pair.p, pair.p_adjusted);
        }
        text.push('\n');
        for sentence in &self.conclusion {
            let _ = writeln!(text, "{sentence}");
        }
        text
    }
}

impl Outcome {
    /// The last champion's value minus the baseline's; `None` where there is none.
    pub(super) fn change(&self, true_one: bool) -> Option<f64> {
        let values = if true_one { self.truths.as_ref()? } else { &self.values };
        Some(values.last()? - values.first()?)
    }
}

fn shown(mean: &Mean) -> String {
    match mean.interval {
        Some([low, high]) => format!("{:+.5} [{low:+.5}, {high:+.5}]", mean.mean),
        None => format!("{:+.5}", mean.mean),
    }
}

/// What the figures support.
fn conclude(plan: &Plan, groups: &[Row], comparisons: &[Comparison]) -> Vec<String> {
    let n = groups.iter().map(|row| row.n).min().unwrap_or(0);
    if groups.len() < 2 {
        return vec![format!("One group, n = {n}: nothing is compared.")];
    }
    let least = smallest(n, comparisons.len());
    if least > LEVEL {
        let enough = (n..).find(|n| smallest(*n, comparisons.len()) <= LEVEL).unwrap_or(n);
        return vec![format!(
            "n = {n} is too small for any claim: the smallest p that it can give, over {}, is {least:.2}. It takes {enough} repeats.",
            counted(comparisons.len())
        )];
    }
    let credible: Vec<&Comparison> = comparisons.iter().filter(|pair| pair.p_adjusted <= LEVEL).collect();
    let lower_is_better = plan.metric.goal == Goal::Minimize;
    let mut said: Vec<String> = credible
        .iter()
        .map(|pair| {
            let a_is_better = (pair.difference.mean < 0.0) == lower_is_better;
            let (better, worse) = if a_is_better { (&pair.a, &pair.b) } else { (&pair.b, &pair.a) };
            format!(
                "{better} ends better than {worse}, by {:.5} (n = {}, adjusted p = {:.4}).",
                pair.difference.mean.abs(),
                pair.difference.n,
                pair.p_adjusted
            )
        })
        .collect();
    let not = comparisons.len() - credible.len();
    match (said.is_empty(), not) {
        (true, _) => said.push(format!("No difference between groups is credible at n = {n}.")),
        (false, 0) => {}
        (false, _) => said.push(format!(
            "No other pair of {} shows a credible difference, which is no evidence that there is none.",
            comparisons.len()
        )),
    }
    said.extend(beyond_restarts(groups, comparisons, lower_is_better));
    said
}

/// What became of the mechanisms that are known to be of no use, and whether what acted can be credited at all.
fn conclude_of_mechanisms(groups: &[Row]) -> Vec<String> {
    let mut said = Vec::new();
    for Row { group, n, mechanisms, .. } in groups {
        if matches!(group, Group::P | Group::H) {
            let count = |standing: Standing| mechanisms.standing.get(standing.as_str()).copied().unwrap_or(0);
            let gone = count(Standing::Retired) + count(Standing::Rejected);
            let [low, high] = share_interval(gone, *n);
            said.push(format!(
                "{group}: of {n} mechanisms that {} {gone} were retired ({:.1} %, 95 % interval {low:.1} to {high:.1}), {} ended adopted.",
                if *group == Group::P { "do nothing" } else { "do harm" },
                100.0 * gone as f64 / *n as f64,
                count(Standing::Adopted),
            ));
        } else if mechanisms.came > 0 && mechanisms.came == mechanisms.inactive {
            said.push(format!(
                "No mechanism of {group} ever acted: whatever {group} gained is none of theirs."
            ));
        }
    }
    said
}

/// What mechanisms take of a trial's time, by the clock; what M's refused candidates took is part of it.
fn overhead(plan: &Plan, groups: &[Row]) -> Option<String> {
    let of = |group: Group| groups.iter().find(|row| row.group == group);
    let (with, without) = (of(Group::M)?, of(Group::A)?);
    let trial_s = match plan.on {
        On::Sim => RUN_S,
        On::Gpt => without.trials_s / without.trials,
    };
    let more = with.between_s - without.between_s;
    Some(format!(
        "Between two trials M took {:.3} s and A {:.3} s: mechanisms cost {more:.3} s, {:.2} % of a trial of {trial_s:.0} s.",
        with.between_s,
        without.between_s,
        100.0 * more / trial_s
    ))
}

/// The 95 % interval of a share, in percent (Clopper and Pearson 1934).
fn share_interval(hits: usize, n: usize) -> [f64; 2] {
    let (k, n) = (hits as f64, n as f64);
    // the parameters are above 0 by the guards, which is all that it asks
    let end = |a: f64, b: f64, at: f64| Beta::new(a, b).map_or(f64::NAN, |beta| 100.0 * beta.inverse_cdf(at));
    let low = if k > 0.0 { end(k, n - k + 1.0, 0.025) } else { 0.0 };
    let high = if k < n { end(k + 1.0, n - k, 0.975) } else { 100.0 };
    [low, high]
}

fn counted(comparisons: usize) -> String {
    format!("{comparisons} comparison{}", if comparisons == 1 { "" } else { "s" })
}

/// Whether what the mechanisms' groups gain is more than restarts give.
fn beyond_restarts(groups: &[Row], comparisons: &[Comparison], lower_is_better: bool) -> Vec<String> {
    let searched =
        [Group::C, Group::D].into_iter().filter(|group| groups.iter().any(|row| row.group == *group));
    let against = |group: Group, other: Group| {
        let (group, other) = (group.to_string(), other.to_string());
        comparisons.iter().find_map(|pair| {
            let sign = if lower_is_better { -1.0 } else { 1.0 };
            let gain = sign * pair.difference.mean;
            match (pair.a == group && pair.b == other, pair.b == group && pair.a == other) {
                (true, _) => Some((gain, pair.p_adjusted)),
                (_, true) => Some((-gain, pair.p_adjusted)),
                _ => None,
            }
        })
    };
    searched
        .filter_map(|group| {
            let (gain, p) = against(group, Group::R)?;
            Some(if gain > 0.0 && p <= LEVEL {
                format!("{group} gains more than its restarts alone do: {gain:.5} over R.")
            } else {
                format!("That {group} gains more than its restarts alone do is not shown: {gain:+.5} over R.")
            })
        })
        .collect()
}

#[cfg(test)]
mod tests;
