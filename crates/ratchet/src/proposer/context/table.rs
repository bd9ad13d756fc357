//! The trials as a table that fits, in which none is forgotten.
//!
//! While there is room every trial is a row. Then the keeps and the latest are rows, and older ones are mentioned
//! in a line for each kind of change. With less room these lines hold numbers of trials, the range of values that
//! was tried and the best of it. At every step each trial's number stands somewhere, alone or within a range.

use std::{collections::BTreeMap, fmt::Write};

use super::line;
use crate::{
    config::{Goal, Metric},
    journal::{Status, TrialRecord},
    novelty::category_of,
    proposer::Proposal,
};

/// How much is said, from much to little.
const LEVELS: [Level; 8] = [
    Level { latest: usize::MAX, keeps: usize::MAX, older: Older::Words(0) },
    Level { latest: 40, keeps: usize::MAX, older: Older::Words(80) },
    Level { latest: 40, keeps: usize::MAX, older: Older::Words(30) },
    Level { latest: 30, keeps: usize::MAX, older: Older::Knobs },
    Level { latest: 20, keeps: 40, older: Older::Knobs },
    Level { latest: 12, keeps: 20, older: Older::Categories },
    Level { latest: 6, keeps: 10, older: Older::Together },
    Level { latest: 0, keeps: 0, older: Older::Together },
];

#[derive(Clone, Copy)]
pub(super) struct Level {
    /// The latest trials that are rows.
    pub(super) latest: usize,
    /// The latest keeps that are rows.
    pub(super) keeps: usize,
    pub(super) older: Older,
}

/// What is said of a trial that is no row.
#[derive(Clone, Copy)]
pub(super) enum Older {
    /// So many bytes of its description, among others of its kind.
    Words(usize),
    /// Its number, in a line for its category and what it moved.
    Knobs,
    /// Its number, in a line for its category.
    Categories,
    /// That it was.
    Together,
}

/// All trials in at most `room` bytes; a few hundred always suffice. Those before a restart, so many, are rows only
/// where they were kept.
pub(super) fn table(trials: &[TrialRecord], before_restart: usize, metric: &Metric, room: usize) -> String {
    if trials.is_empty() {
        return String::new();
    }
    let since = trials.len().saturating_sub(before_restart);
    let text = |level: &Level| {
        let older = match level.older {
            Older::Words(0) if before_restart > 0 => Older::Knobs, // nothing would be said of them
            older => older,
        };
        at(&Level { latest: level.latest.min(since), older, ..*level }, trials, metric)
    };
    let last = LEVELS.len() - 1;
    LEVELS[..last].iter().map(text).find(|text| text.len() <= room).unwrap_or_else(|| text(&LEVELS[last]))
}

pub(super) fn at(level: &Level, trials: &[TrialRecord], metric: &Metric) -> String {
    let kept = trials.iter().filter(|trial| trial.status == Status::Keep).count();
    let old_keeps = kept.saturating_sub(level.keeps);
    let old = trials.len().saturating_sub(level.latest);
    let (mut rows, mut older, mut keeps) = (String::new(), Vec::new(), 0);
    for (index, trial) in trials.iter().enumerate() {
        keeps += usize::from(trial.status == Status::Keep);
        let shown = index >= old || (trial.status == Status::Keep && keeps > old_keeps);
        if shown { rows += &row(trial) } else { older.push(trial) }
    }
    let mut text = "# Trials so far\n\n".to_owned();
    if !older.is_empty() {
        let _ =
            write!(text, "Older ones, by kind of change:\n\n{}\n", groups(&older, level.older, metric.goal));
    }
    if !rows.is_empty() {
        let _ = write!(
            text,
            "| trial | status | {} | delta | expected | category | what |\n|---|---|---|---|---|---|---|\n{rows}",
            metric.name
        );
    }
    text + "\n"
}

fn row(trial: &TrialRecord) -> String {
    let number = |value: Option<f64>| value.map_or(String::new(), |value| format!("{value:+.6}"));
    let proposal = &trial.proposal;
    let mut what = line(&proposal.description, 140);
    what += &changed(proposal, 240);
    if trial.status == Status::Crash {
        let _ = write!(what, " [{}: {}]", line(&trial.verdict.outcome, 40), line(&trial.verdict.reason, 120));
    }
    let word = match trial.status {
        Status::Discard => format!("discard, {}", line(&trial.verdict.outcome, 20)),
        status => status.as_str().to_owned(),
    };
    format!(
        "| {} | {word} | {} | {} | {} | {} | {} |\n",
        trial.trial,
        trial.value.map_or(String::new(), |value| format!("{value:.6}")),
        number(trial.delta),
        number(proposal.expected_delta),
        cell(&line(&proposal.category, 40)),
        cell(&what)
    )
}

/// The values a proposal moved, in parentheses; empty where none are known.
pub(super) fn changed(proposal: &Proposal, bytes: usize) -> String {
    let moved: Vec<String> = proposal
        .changes
        .iter()
        .map(|change| format!("{} {} → {}", change.name, change.from, change.to))
        .collect();
    if moved.is_empty() { String::new() } else { format!(" ({})", line(&moved.join(", "), bytes)) }
}

fn cell(text: &str) -> String {
    text.replace('|', "/")
}

/// One line a group.
fn groups(trials: &[&TrialRecord], older: Older, goal: Goal) -> String {
    let mut groups: BTreeMap<String, Vec<&TrialRecord>> = BTreeMap::new();
    for trial in trials {
        let category = category_of(trial).unwrap_or_else(|| line(&trial.proposer, 40));
        let key = match (older, touched(&trial.proposal)) {
            (Older::Together, _) => "all".to_owned(),
            (Older::Words(_) | Older::Knobs, Some(touched)) => format!("{category}, {touched}"),
            _ => category,
        };
        groups.entry(key).or_default().push(trial);
    }
    let mut text = String::new();
    for (key, trials) in groups {
        let _ = match older {
            Older::Words(bytes) => writeln!(text, "- {key}: {}", mentions(&trials, bytes)),
            Older::Knobs | Older::Categories | Older::Together => {
                writeln!(text, "- {key}: {}", summary(&trials, goal))
            }
        };
    }
    text
}

/// What a change is about: the one knob that it moved, else the first constant that its description names.
fn touched(proposal: &Proposal) -> Option<String> {
    let constant = |word: &&str| {
        word.len() > 2
            && word.starts_with(|c: char| c.is_ascii_uppercase())
            && word.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
    };
    match &proposal.changes[..] {
        [] => {
            let mut words = proposal.description.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
            words.find(constant).map(|word| line(word, 40))
        }
        [one] => Some(line(&one.name, 40)),
        _ => Some("several knobs".to_owned()),
    }
}

fn mentions(trials: &[&TrialRecord], bytes: usize) -> String {
    let mention = |trial: &&TrialRecord| {
        let end = match (trial.status, trial.delta) {
            (Status::Crash, _) => "crash".to_owned(),
            (_, Some(delta)) => format!("{delta:+.6}"),
            (status, None) => status.as_str().to_owned(),
        };
        let mut what = line(&trial.proposal.description, bytes);
        what += &changed(&trial.proposal, bytes);
        format!("#{} {end} {what}", trial.trial)
    };
    trials.iter().map(mention).collect::<Vec<_>>().join("; ")
}

/// Numbers, the values tried, and the best of it.
fn summary(trials: &[&TrialRecord], goal: Goal) -> String {
    let numbers: Vec<u64> = trials.iter().map(|trial| trial.trial).collect();
    let mut text = format!("{} trials ({})", trials.len(), ranges(&numbers));
    let moved = trials.iter().flat_map(|trial| match &trial.proposal.changes[..] {
        [one] => Some(one.to.as_str()),
        _ => None,
    });
    let values: Vec<f64> = moved.filter_map(|value| value.replace('_', "").parse().ok()).collect();
    if let (Some(least), Some(most)) =
        (values.iter().copied().reduce(f64::min), values.iter().copied().reduce(f64::max))
    {
        let _ = write!(text, ", values {least} to {most}");
    }
    let scored = trials.iter().filter_map(|trial| Some((trial.delta?, trial.trial)));
    let best = scored.reduce(|best, next| if goal.better(next.0, best.0) { next } else { best });
    if let Some((delta, trial)) = best {
        let _ = write!(text, ", best delta {delta:+.6} (trial {trial})");
    }
    for (status, word) in [(Status::Keep, "kept"), (Status::Crash, "crashed")] {
        let count = trials.iter().filter(|trial| trial.status == status).count();
        if count > 0 {
            let _ = write!(text, ", {count} {word}");
        }
    }
    text
}

/// Ascending numbers, runs as `3-7`.
fn ranges(numbers: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == *number => *last = *number,
            _ => runs.push((*number, *number)),
        }
    }
    let shown = |(first, last): &(u64, u64)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    runs.iter().map(shown).collect::<Vec<_>>().join(", ")
}
