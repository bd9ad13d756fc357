//! The retrospector: looks at what has come of finished trials, and keeps the lessons.

use ::llm::AskError;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{
    super::{asker::Asker, refused},
    Writers,
    lessons::{Lesson, Lessons},
};
use crate::{
    journal::TrialRecord,
    proposer::{ProposeError, context::line},
};

/// Trials that are looked at together at most; after a long time without it, the latest.
const AT_ONCE: usize = 12;

/// What the new trials teach.
#[derive(Debug, Deserialize, JsonSchema)]
struct Retrospect {
    /// New lessons, and better versions of old ones. Few; none where the trials teach nothing.
    lessons: Vec<Learnt>,
}

/// One lesson.
#[derive(Debug, Deserialize, JsonSchema)]
struct Learnt {
    /// One sentence that helps to choose the next experiments: what worked or did not, under which condition.
    lesson: String,
    /// Numbers of the trials that show it.
    trials: Vec<u64>,
    /// How sure it is, from 0 to 1. One trial within the noise shows next to nothing.
    confidence: f64,
    /// Numbers of lessons in the list that this one contradicts or says better; they are dropped.
    replaces: Vec<usize>,
}

/// Learns from the trials that were not looked at yet. What cannot be used teaches nothing, and is not asked for
/// again.
pub(super) fn look_back(
    writers: &Writers<'_>,
    asker: &mut Asker<'_>,
    lessons: &mut Lessons,
) -> Result<(), ProposeError> {
    let trials = writers.brief.trials;
    let Some(last) = trials.last().map(|trial| trial.trial) else { return Ok(()) };
    // the baseline teaches nothing
    let fresh: Vec<&TrialRecord> =
        trials.iter().filter(|trial| trial.trial > lessons.seen() && trial.parent.is_some()).collect();
    if fresh.is_empty() {
        return Ok(());
    }
    let rows: String =
        fresh[fresh.len().saturating_sub(AT_ONCE)..].iter().map(|trial| outcome(trial)).collect();
    let text = format!(
        "{}# Trials that have ended since\n\n{rows}\n# Now: the lessons\n\nSay what is to be learnt from these \
         trials. The list is short: what is not worth a place in it is left out.",
        lessons.numbered(last)
    );
    match asker.ask::<Retrospect>("retrospect", writers.system, &mut Vec::new(), text) {
        Ok(found) => {
            let exists = |trial: &u64| trials.iter().any(|record| record.trial == *trial);
            let learnt = found.lessons.into_iter().map(|learnt| {
                let evidence = learnt.trials.into_iter().filter(exists).collect();
                (Lesson::learnt(&learnt.lesson, evidence, learnt.confidence), learnt.replaces)
            });
            lessons.learn(learnt.collect(), last);
        }
        Err(AskError::Malformed(_) | AskError::TooLarge | AskError::Rejected(_)) => {
            lessons.learn(Vec::new(), last)
        }
        Err(error) => return Err(refused(error)),
    }
    lessons.write().map_err(|error| ProposeError::Failed(error.to_string()))
}

/// What was believed of a trial, and what came of it.
fn outcome(trial: &TrialRecord) -> String {
    let number = |value: Option<f64>| value.map_or("nothing".to_owned(), |value| format!("{value:+.6}"));
    format!(
        "- trial {}, {}: {} Hypothesis: {} Expected {}, measured {}; {}\n",
        trial.trial,
        trial.status.as_str(),
        line(&trial.proposal.description, 200),
        line(&trial.proposal.hypothesis, 300),
        number(trial.proposal.expected_delta),
        number(trial.delta),
        line(&trial.verdict.reason, 200)
    )
}
