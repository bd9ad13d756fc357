//! `ratchet accept`: a branch of the accepted keeps, upon the commit that the tag started from.
//!
//! Each keep is one commit with a message for people; what it changes is carried over by three-way merge. Then
//! the branch's head and the baseline are run again with the same seeds. The branch is the last thing made, whole
//! or not at all, under a name that nothing had; nothing is merged or pushed, and the checkout is not touched.
//! The same decisions give the same commits, so that the same command goes on where it was stopped.

mod message;
mod outcome;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
};

use jiff::Timestamp;
use serde_json::json;

use self::message::message;
pub use self::outcome::{Confirmation, Outcome, Taken};
use crate::{
    arms::{Arm, Run, folder_of, place_of, read_run},
    error::{Error, Result},
    git::{Oid, Repo, short},
    journal::Event,
    plain_file,
    progress::Observer,
    review::{
        Decision, Review, in_force, keeps,
        lineage::{Lacking, Lineage},
    },
    sampling,
    session::Session,
    state::{TagDir, write_atomic},
};

/// The folder of the baseline's runs.
const BASELINE: &str = "baseline";
/// The folder of the head's.
const BRANCH: &str = "branch";
/// What they came to.
const SUMMARY: &str = "summary.json";

impl Session {
    /// Makes the branch, by default `accepted/TAG`, of what is accepted; `runs` of each side. `None` when a stop
    /// was asked for: runs that have ended are kept. An outcome without a branch is one whose head, or whose
    /// baseline, has no value.
    ///
    /// Exit code 2 when nothing is accepted, or the name is another branch's; 3 when a keep needs one that is not
    /// accepted. Then nothing is created.
    pub fn accept(
        &mut self,
        branch: Option<&str>,
        runs: u32,
        observer: &mut dyn Observer,
    ) -> Result<Option<Outcome>> {
        let name = branch.map_or_else(|| format!("accepted/{}", self.tag), str::to_owned);
        let there = self.repo.branch_called(&name)?;
        let decided = in_force(&self.dir, self.history())?;
        let (base, head, taken) = self.carry_over(&decided)?;
        if let Some(tip) = there.filter(|tip| *tip != head) {
            let what =
                format!("the branch {name} stands at {}; what is accepted gives {}", short(tip), short(head));
            return Err(Error::usage(what)
                .hint(format!("choose another --branch, or delete that one: git branch -D {name}")));
        }
        self.repo.unlock_branch(&name);
        let plan =
            json!({ "branch": name, "base": base.to_string(), "head": head.to_string(), "runs": runs });
        // one without a branch has failed, and may fare better now
        let goes_on = |dir: &Path| read(dir).is_none_or(|outcome| outcome.branch.is_some());
        let all = self.dir.path().join("accepted");
        let dir = folder_of(&all, plan.to_string().as_bytes(), goes_on)?;
        let outcome = match read(&dir) {
            Some(outcome) => outcome,
            None => {
                self.ensure_data(observer)?;
                let arms = [Arm { name: BRANCH, commit: head }, Arm { name: BASELINE, commit: base }];
                let ran = self.run_arms(&arms, runs, true, &dir, observer);
                self.restore()?;
                if ran?.is_none() {
                    return Ok(None);
                }
                let (confirmation, [baseline, values]) = self.confirm(&dir, runs)?;
                let folder = dir.file_name().unwrap_or_default().to_string_lossy();
                let outcome = Outcome {
                    folder: format!("accepted/{folder}"),
                    branch: confirmation.gain.map(|_| name.clone()),
                    base: base.to_string(),
                    head: head.to_string(),
                    keeps: taken,
                    left_out: self.left_out(&decided),
                    metric: self.task.metric.name.clone(),
                    baseline,
                    values,
                    confirmation,
                };
                self.write_down(&dir, &outcome)?;
                outcome
            }
        };
        if there.is_none() && outcome.branch.is_some() {
            if in_force(&self.dir, self.history())? != decided {
                return Err(Error::usage("what is accepted has changed meanwhile")
                    .hint("run `ratchet accept` again, for the decisions as they are now"));
            }
            self.repo.create_branch_called(&name, head)?;
        }
        Ok(Some(outcome))
    }

    /// The accepted keeps as commits upon the tag's base: that, the last of them, and all.
    fn carry_over(&self, decided: &BTreeMap<u64, Review>) -> Result<(Oid, Oid, Vec<Taken>)> {
        let history = self.history();
        let lineage = Lineage::of(&self.repo, history)?;
        let accepted: BTreeMap<u64, &Review> = (decided.iter())
            .filter(|(_, review)| review.decision == Decision::Accepted)
            .map(|(trial, review)| (*trial, review))
            .collect();
        if accepted.is_empty() {
            return Err(Error::usage(format!("nothing of the tag {} is accepted", self.tag))
                .hint("`ratchet review` walks the keeps"));
        }
        let chosen: BTreeSet<u64> = accepted.keys().copied().collect();
        let lacking = lineage.lacking(&chosen)?;
        if !lacking.is_empty() {
            return Err(refused(&lacking, decided));
        }
        let (mut head, mut taken) = (lineage.base, Vec::new());
        for keep in &lineage.keeps {
            let record = keep.record;
            let Some(review) = accepted.get(&record.trial) else { continue };
            let tree = self.repo.carry(keep.before, keep.commit, self.repo.tree_of(head)?)?;
            let tree = tree.ok_or_else(|| {
                Error::internal(format!("trial {} no longer applies", record.trial)).at(self.state.root())
            })?;
            let message = message(record, review, history, &self.task.metric.name);
            head = self.repo.commit_at(tree, head, &message, seconds(&record.ended), seconds(&review.at))?;
            taken.push(Taken {
                trial: record.trial,
                commit: head.to_string(),
                description: record.proposal.description.clone(),
                carries: history.carried(record.carries).map(|carried| carried.trial).collect(),
            });
        }
        Ok((lineage.base, head, taken))
    }

    fn left_out(&self, decided: &BTreeMap<u64, Review>) -> Vec<(u64, String)> {
        keeps(self.history())
            .map(|record| (record.trial, word(decided, record.trial).to_owned()))
            .filter(|(_, word)| word != Decision::Accepted.as_str())
            .collect()
    }

    /// Reads the runs, as far as they were made: what they come to, and the values of baseline and head.
    fn confirm(&self, dir: &Path, runs: u32) -> Result<(Confirmation, [Vec<Option<f64>>; 2])> {
        let ended = |arm: &str| -> Result<Vec<Option<Run>>> {
            (0..runs).map(|run| read_run(&place_of(dir, arm, run))).collect()
        };
        let sides = [ended(BASELINE)?, ended(BRANCH)?];
        let values = sides
            .each_ref()
            .map(|runs| runs.iter().map(|run| run.as_ref().and_then(|run| run.value)).collect::<Vec<_>>());
        let whole = |values: &[Option<f64>]| values.iter().copied().collect::<Option<Vec<f64>>>();
        let confirmation = match (whole(&values[1]), whole(&values[0])) {
            (Some(head), Some(baseline)) => {
                let (task, sampling) = (&self.task, self.sampling_of(dir)?);
                let (goal, rule) = (task.metric.goal, task.accept.rule);
                Confirmation::of([&head, &baseline], goal, rule, &self.noise(None), sampling)
            }
            _ => {
                let reason = |side: &[Option<Run>]| side.iter().flatten().find_map(|run| run.reason.clone());
                let head = reason(&sides[1]).map(|reason| format!("its head has no value: {reason}"));
                let baseline = reason(&sides[0]).map(|reason| format!("the baseline has no value: {reason}"));
                Confirmation::none(head.or(baseline).unwrap_or_default())
            }
        };
        Ok((confirmation, values))
    }

    /// What the choice of exam rows leaves open between head and baseline, from the first run of each.
    fn sampling_of(&self, dir: &Path) -> Result<f64> {
        if !self.task.score.exam {
            return Ok(0.0);
        }
        let [head, baseline] = [BRANCH, BASELINE].map(|arm| sampling::read(&place_of(dir, arm, 0)));
        let (Some(head), Some(baseline)) = (head, baseline) else { return Ok(0.0) };
        let exam = self.setting.exam()?;
        Ok(sampling::standard_error(&head, &baseline, exam.row_bytes()).unwrap_or(0.0))
    }

    fn write_down(&mut self, dir: &Path, outcome: &Outcome) -> Result<()> {
        let json = serde_json::to_vec_pretty(outcome)
            .map_err(|error| Error::internal("could not write the outcome").at(dir).because(error))?;
        write_atomic(&dir.join(SUMMARY), &json)?;
        self.journal.append(Event::Accepted {
            at: crate::run::now(),
            folder: outcome.folder.clone(),
            branch: outcome.branch.clone(),
            head: outcome.head.clone(),
            trials: outcome.keeps.iter().map(|taken| taken.trial).collect(),
            gain: outcome.confirmation.gain,
            error: outcome.confirmation.error,
            confirmed: outcome.confirmation.confirmed,
        })
    }
}

/// The keeps that stand on a branch which `accept` made and which is still there, with its name.
pub(crate) fn taken(repo: &Repo, tag: &TagDir) -> BTreeMap<u64, String> {
    let folders = fs::read_dir(tag.path().join("accepted")).into_iter().flatten().flatten();
    let mut taken = BTreeMap::new();
    for outcome in folders.filter_map(|folder| read(&folder.path())) {
        let Some(branch) = outcome.branch.filter(|branch| repo.has_branch(branch)) else { continue };
        taken.extend(outcome.keeps.iter().map(|keep| (keep.trial, branch.clone())));
    }
    taken
}

/// What was concluded in a folder; `None` where nothing was.
fn read(dir: &Path) -> Option<Outcome> {
    serde_json::from_slice(&plain_file::read(&dir.join(SUMMARY)).ok()?).ok()
}

fn word(decided: &BTreeMap<u64, Review>, trial: u64) -> &'static str {
    decided.get(&trial).map_or("unreviewed", |review| review.decision.as_str())
}

/// The error where keeps need others that are not accepted.
fn refused(lacking: &[Lacking], decided: &BTreeMap<u64, Review>) -> Error {
    let one = |lacking: &Lacking| {
        let needs =
            lacking.needs.iter().map(|need| format!("trial {need}, which is {}", word(decided, *need)));
        format!("trial {} needs {}", lacking.trial, needs.collect::<Vec<_>>().join(", and "))
    };
    let all: Vec<String> = lacking.iter().map(one).collect();
    let (trial, needs) = (lacking[0].trial, lacking[0].needs.iter().map(u64::to_string).collect::<Vec<_>>());
    Error::refused(all.join("; ")).hint(format!(
        "accept what it needs (`ratchet review {} --accept`) or leave it out (`ratchet review {trial} --reject`)",
        needs.join(" ")
    ))
}

/// Seconds since 1970 of a time of the driver's; 0 for what is none.
fn seconds(at: &str) -> i64 {
    at.parse::<Timestamp>().map_or(0, Timestamp::as_second)
}
