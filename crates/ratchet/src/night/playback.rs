//! Playing a night back: the loop as it is, with proposals and runs from the file.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use super::{Again, DECIDES, Head, Line, Trial, read};
use crate::{
    candidate::{Candidate, source_of},
    config::Task,
    error::{Doing, Error, Result},
    git::{Oid, Repo},
    measure::{Failure, Measured},
    noise::{Spread, Value},
    proposing::{NoCandidate, Wish},
    session::Session,
    verdict::Crash,
};

/// A night that is played back.
#[derive(Debug)]
pub struct Playback {
    path: PathBuf,
    head: Head,
    attempts: VecDeque<Attempt>,
    trials: BTreeMap<u64, Trial>,
    again: HashMap<(u64, u32), VecDeque<Again>>,
    differences: Vec<String>,
}

#[derive(Debug)]
enum Attempt {
    Nothing(String, NoCandidate),
    Trial(u64),
}

impl Playback {
    /// Reads a recorded night. Exit code 2 for a file that is none.
    pub fn read(path: &Path) -> Result<Self> {
        let (head, lines) = read(path)?;
        let mut night = Self {
            path: path.to_path_buf(),
            head,
            attempts: VecDeque::new(),
            trials: BTreeMap::new(),
            again: HashMap::new(),
            differences: Vec::new(),
        };
        for line in lines {
            match line {
                Line::Head(_) => return Err(Error::usage("two nights in one file").at(path)),
                Line::Nothing { proposer, kind, reason, .. } => {
                    night.attempts.push_back(Attempt::Nothing(proposer, NoCandidate::Nothing(kind, reason)));
                }
                Line::Trial(trial) => {
                    night.attempts.push_back(Attempt::Trial(trial.trial));
                    night.trials.insert(trial.trial, *trial);
                }
                Line::Again(again) => {
                    night.again.entry((again.trial, again.run)).or_default().push_back(again);
                }
            }
        }
        // the baseline needs no proposal
        if matches!(night.attempts.front(), Some(Attempt::Trial(1))) {
            night.attempts.pop_front();
        }
        Ok(night)
    }

    /// The profile it was played under.
    pub(crate) fn profile(&self) -> Option<&str> {
        self.head.profile.as_deref()
    }

    /// The device of a tag that holds recorded values: they are never compared with any that are measured here.
    pub(crate) fn device(&self) -> String {
        format!("replay of {}", self.head.device)
    }

    pub(crate) fn noise_of_other_tags(&self) -> Option<Spread> {
        self.head.noise
    }

    /// Exit code 2 where another task, or other files, stand here.
    pub(crate) fn check(&self, task: &Task, repo: &Repo, base: Oid) -> Result<()> {
        let decides: Vec<_> =
            task.contract().into_iter().filter(|(name, _)| DECIDES.contains(&name.as_str())).collect();
        if let Some((section, _)) = decides.iter().find(|section| !self.head.contract.contains(section)) {
            return Err(
                Error::usage(format!("the night was recorded under another [{section}]")).at(&self.path)
            );
        }
        if source_of(repo, base, task.editable())?.0 != self.head.source {
            return Err(Error::usage("the night began with other editable files than stand here")
                .at(&self.path)
                .hint("check out the commit that it was recorded from"));
        }
        Ok(())
    }

    pub(crate) fn measured(&self, trial: u64, run: u32) -> std::result::Result<Measured, Failure> {
        match self.trials.get(&trial) {
            Some(trial) => trial.measured(run).map_err(Failure::Crash),
            None => Err(not_recorded(trial, run)),
        }
    }

    pub(crate) fn measured_again(&mut self, trial: u64, run: u32) -> std::result::Result<Measured, Failure> {
        let again = self.again.get_mut(&(trial, run)).and_then(VecDeque::pop_front);
        let again = again.ok_or_else(|| not_recorded(trial, run))?;
        let value =
            again.value.and_then(|value| Value::new(value).ok()).ok_or_else(|| not_recorded(trial, run))?;
        Ok(Measured { value, memory_gb: 0.0, tokens_m: again.tokens_m, mfu_percent: None })
    }

    pub(crate) fn sampling(&self, trial: u64) -> f64 {
        self.trials.get(&trial).map_or(0.0, |trial| trial.sampling)
    }

    /// Holds a verdict, as it is written, against the recorded one.
    pub(crate) fn compare(&mut self, trial: u64, verdict: &[u8]) {
        let recorded = self.trials.get(&trial).map_or("", |trial| trial.verdict.as_str());
        if recorded.as_bytes() != verdict {
            self.differences.push(format!("trial {trial} is decided otherwise than it was recorded"));
        }
    }

    /// What came out otherwise than it was recorded.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// Trials that it holds.
    pub fn trials(&self) -> usize {
        self.trials.len()
    }
}

fn not_recorded(trial: u64, run: u32) -> Failure {
    let reason = format!("run {} of trial {trial} is not in the recording, or has no value there", run + 1);
    Failure::Crash(Crash { outcome: "not_recorded".to_owned(), reason })
}

impl Session {
    /// The next recorded attempt: a candidate or what came of it, and who made it.
    pub(crate) fn play(&mut self) -> Result<(String, std::result::Result<Candidate, NoCandidate>)> {
        let Some(night) = &mut self.night else { return Err(Error::internal("no night is played back")) };
        let number = match night.attempts.pop_front() {
            None => {
                let over = NoCandidate::Exhausted("the recorded night is over".to_owned());
                return Ok(("replay".to_owned(), Err(over)));
            }
            Some(Attempt::Nothing(proposer, why)) => return Ok((proposer, Err(why))),
            Some(Attempt::Trial(number)) => number,
        };
        let Some(trial) = night.trials.get(&number).cloned() else {
            return Err(Error::internal(format!("trial {number} of the night is missing")));
        };
        let desk = self.desk();
        let start = desk.start_commit()?;
        if desk.builds_on() != (trial.carries, trial.excursion) {
            let difference = format!("trial {number} starts from other files than it was recorded with");
            self.night.iter_mut().for_each(|night| night.differences.push(difference.clone()));
        }
        self.worktree.restore(start, &self.repo.files(start)?)?;
        for path in &trial.removed {
            let path = self.worktree.path().join(path);
            // a path of the recording may be anything: only what git tracks here is removed
            if path
                .strip_prefix(self.worktree.path())
                .is_ok_and(|inside| self.task.editable().contains(inside))
            {
                fs::remove_file(&path).doing("remove", &path)?;
            }
        }
        let wish = Wish {
            proposer: trial.proposer.clone(),
            may_carry: trial.proposer != "try",
            program: None,
            demand: trial.demand,
        };
        let candidate = self.desk().candidate(trial.proposal, wish)?;
        if candidate.is_err() {
            self.restore()?;
        }
        Ok((trial.proposer, candidate))
    }
}
