//! What is to be compared: baseline, champion, and the champion without each keep.

use serde::Serialize;

use super::Longer;
use crate::{
    error::{Error, Result},
    git::Oid,
    journal::{Status, TrialRecord},
    session::Session,
};

/// The knob that makes a model larger.
pub(super) const DEPTH: &str = "DEPTH";

/// The champion's line without one keep, where that cannot be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Conflict {
    /// The keep.
    pub(super) trial: u64,
    /// What depends on it.
    pub(super) reason: String,
}

/// One side of the comparison.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Arm {
    /// `baseline`, `champion`, `without-0007`; the name of its folder.
    pub(super) name: String,
    /// The keep that is left out.
    pub(super) without: Option<u64>,
    /// Its files, which unlike the commit are the same each time the plan is made.
    tree: String,
    #[serde(skip)]
    pub(super) commit: Oid,
}

/// All that decides the values of a transfer.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Plan {
    pub(super) budget_s: f64,
    pub(super) depth: u32,
    pub(super) runs: u32,
    pub(super) baseline: u64,
    pub(super) champion: u64,
    pub(super) arms: Vec<Arm>,
    pub(super) conflicts: Vec<Conflict>,
}

impl Plan {
    /// Of the session's champion.
    pub(super) fn of(session: &Session, asked: &Longer) -> Result<Self> {
        let history = session.history();
        let keeps: Vec<&TrialRecord> =
            history.trials().iter().filter(|record| record.status == Status::Keep).collect();
        let [baseline, .., champion] = keeps[..] else {
            return Err(Error::usage(format!("the tag {} has no gain yet: nothing to compare", session.tag))
                .hint("`ratchet run` looks for one"));
        };
        let commit = |record: &TrialRecord| session.repo.parse(record.commit.as_deref().unwrap_or_default());
        let arm = |name: String, without, commit, what: &str| -> Result<Arm> {
            let commit = session.deepened(commit, asked.depth, what)?;
            Ok(Arm { name, without, tree: session.repo.tree_of(commit)?.to_string(), commit })
        };
        let mut arms = vec![
            arm("baseline".into(), None, commit(baseline)?, "the baseline")?,
            arm("champion".into(), None, commit(champion)?, "the champion")?,
        ];
        let mut conflicts = Vec::new();
        let pairs = keeps.windows(2).enumerate().filter(|_| asked.leave_one_out);
        for (at, pair) in pairs {
            let (before, keep) = (commit(pair[0])?, commit(pair[1])?);
            let trial = pair[1].trial;
            // the way back from the keep, carried onto what was kept later
            let without = |onto: &TrialRecord| {
                let onto = commit(onto)?;
                session.repo.rebase(keep, before, onto, onto, "without a keep")
            };
            match without(champion)? {
                Some(commit) => {
                    let what = format!("the champion without trial {trial}");
                    arms.push(arm(format!("without-{trial:04}"), Some(trial), commit, &what)?);
                }
                None => {
                    let mut later = keeps[at + 2..].iter();
                    let dependent = later.find(|later| without(later).is_ok_and(|made| made.is_none()));
                    let reason =
                        dependent.map_or("later keeps touch the same lines".to_owned(), |dependent| {
                            format!("trial {} changed the same lines and depends on it", dependent.trial)
                        });
                    conflicts.push(Conflict { trial, reason });
                }
            }
        }
        let (budget_s, depth, runs) = (asked.budget.as_secs_f64(), asked.depth, asked.runs);
        let (baseline, champion) = (baseline.trial, champion.trial);
        Ok(Self { budget_s, depth, runs, baseline, champion, arms, conflicts })
    }

    /// The same for the same plan.
    pub(super) fn to_json(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).unwrap_or_default() // numbers and strings: cannot fail
    }
}
