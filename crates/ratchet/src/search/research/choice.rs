//! Which hypothesis is built, if any: the critic gives the numbers, and the score is computed here.

use super::{
    Notes,
    answers::{Critique, Hypothesis},
};
use crate::proposer::context::line;

/// Hypotheses that are looked at.
const MOST: usize = 8;
/// The scale of the critic's numbers.
const SCALE: std::ops::RangeInclusive<f64> = 1.0..=10.0;
/// Remarks on assessments that cannot be used.
const REMARKS: usize = 8;

/// What is built.
#[derive(Debug, PartialEq)]
pub(super) struct Choice {
    /// From 0.
    pub(super) index: usize,
    /// Impact × feasibility ÷ complexity.
    pub(super) score: f64,
    /// What the critic has against it, in one line.
    pub(super) objection: String,
}

/// The hypotheses as the critic sees them, numbered from 1; those beyond the eighth are left out.
pub(super) fn listed(hypotheses: &[Hypothesis]) -> Vec<String> {
    let entry = |(number, idea): (usize, &Hypothesis)| {
        format!(
            "{number}. From {}: {}\n   Aimed at: {}\n   Takes: {}\n   Risk: {}\n",
            line(&idea.domain, 100),
            line(&idea.mechanism, 1_000),
            line(&idea.target, 600),
            line(&idea.complexity, 400),
            line(&idea.risk, 400)
        )
    };
    (1..).zip(hypotheses.iter().take(MOST)).map(entry).collect()
}

/// The best of those that are to be pursued; the first of equals. `None` where there is none: nothing is built then.
///
/// An assessment of something that is not in the list, a second one of the same, or one whose numbers are off the
/// scale counts for nothing, and is remarked on.
pub(super) fn choose(critique: &Critique, listed: usize, notes: &mut Notes) -> Option<Choice> {
    let mut seen = vec![false; listed];
    let mut best: Option<Choice> = None;
    let mut wrong = Vec::new();
    for given in &critique.assessments {
        let number = given.hypothesis;
        let index = usize::try_from(number).ok().and_then(|number| number.checked_sub(1));
        let Some(index) = index.filter(|index| *index < listed) else {
            wrong.push(format!("the critic judged hypothesis {number}, which is none"));
            continue;
        };
        if std::mem::replace(&mut seen[index], true) {
            wrong.push(format!("the critic judged hypothesis {number} twice; the first counts"));
            continue;
        }
        if ![given.impact, given.feasibility, given.complexity].iter().all(|number| SCALE.contains(number)) {
            wrong.push(format!("the critic's numbers for hypothesis {number} are not from 1 to 10"));
            continue;
        }
        let score = given.impact * given.feasibility / given.complexity;
        notes.scores.push((number, score));
        if given.pursue && best.as_ref().is_none_or(|best| score > best.score) {
            best = Some(Choice { index, score, objection: line(&given.objection, 600) });
        }
    }
    wrong.truncate(REMARKS);
    notes.remarks.append(&mut wrong);
    notes.chosen = best.as_ref().map(|best| best.index as u64 + 1);
    best
}
