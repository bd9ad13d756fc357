//! Playing a night back: the loop as it is, with proposals and runs from the file.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    fs,
    path::{Path, PathBuf},
};

use llm::Recorded;

use super::{Again, DECIDES, Head, Line, Trial, read};
use crate::{
    account::error,
    candidate::{Candidate, remove_files, source_of},
    config::Task,
    error::{Doing, Error, Result},
    git::{Oid, Repo},
    measure::{Failure, Measured},
    noise::{Spread, Value},
    proposer::{Nothing, Repair, llm::Author},
    proposing::{Ask, NoCandidate, Wish},
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
    compared: usize,
}

#[derive(Debug)]
enum Attempt {
    Nothing { proposer: String, why: NoCandidate, calls: Vec<String> },
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
            compared: 0,
        };
        for line in lines {
            match line {
                Line::Head(_) | Line::End { .. } => {
                    return Err(Error::usage("two nights in one file").at(path));
                }
                Line::Nothing { proposer, kind, reason, calls } => {
                    let why = NoCandidate::Nothing(kind, reason);
                    night.attempts.push_back(Attempt::Nothing { proposer, why, calls });
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
        match night.attempts.pop_front() {
            Some(Attempt::Trial(1)) => Ok(night),
            _ => Err(Error::usage("the recorded night has no baseline").at(path)),
        }
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
        self.compared += 1;
        let recorded = self.trials.get(&trial).map_or("", |trial| trial.verdict.as_str());
        if recorded.as_bytes() != verdict {
            self.differences.push(format!("trial {trial} is decided otherwise than it was recorded"));
        }
    }

    /// What came out otherwise than it was recorded.
    pub fn differences(&self) -> &[String] {
        &self.differences
    }

    /// Trials that it holds, and how many of them were played.
    pub fn trials(&self) -> (usize, usize) {
        (self.trials.len(), self.compared)
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
            Some(Attempt::Nothing { proposer, why, calls }) => {
                // what the search itself refused was a candidate all the same
                let steered = matches!(why, NoCandidate::Nothing(Nothing::Steered, _));
                if !steered && let Some(candidate) = self.answered(&calls)? {
                    self.differs(
                        candidate.is_some(),
                        "answers that came to nothing make a candidate".to_owned(),
                    );
                }
                return Ok((proposer, Err(why)));
            }
            Some(Attempt::Trial(number)) => number,
        };
        let Some(trial) = night.trials.get(&number).cloned() else {
            return Err(Error::internal(format!("trial {number} of the night is missing")));
        };
        self.chosen = trial.excursion;
        let other_start = self.desk().builds_on(&trial.proposer) != (trial.carries, trial.excursion);
        self.differs(
            other_start,
            format!("trial {number} starts from other files than it was recorded with"),
        );
        if let Some(candidate) = self.answered(&trial.calls)? {
            let same = candidate.is_some_and(|candidate| candidate.source == trial.source);
            self.differs(!same, format!("the recorded answers of trial {number} make another edit"));
        }
        let desk = self.desk();
        let start = desk.start_commit(&trial.proposer)?;
        self.worktree.restore(start, &self.repo.files(start)?)?;
        let removed = remove_files(self.worktree.path(), &trial.removed, self.task.editable())?;
        let wish = Wish {
            proposer: trial.proposer.clone(),
            may_carry: trial.proposer != "try",
            program: None,
            demand: trial.demand,
        };
        let candidate = match removed {
            Ok(()) => desk.candidate(trial.proposal, wish)?,
            Err(refusal) => Err(refusal.into()),
        };
        if let Err(why) = &candidate {
            self.differs(true, format!("trial {number} makes no candidate ({why:?})"));
            self.restore()?;
        }
        Ok((trial.proposer, candidate))
    }

    fn differs(&mut self, differs: bool, how: String) {
        if let Some(night) = self.night.as_mut().filter(|_| differs) {
            night.differences.push(how);
        }
    }

    /// The candidate that recorded answers make today, asked for as they were; `None` where none are to be held
    /// against the recorded one. Those of a proposal that was made ahead are not: they were given on files and a
    /// history that no longer stood when it was tried.
    fn answered(&self, calls: &[String]) -> Result<Option<Option<Candidate>>> {
        let night = self.night.as_ref().filter(|night| night.trials.values().all(|trial| !trial.ahead));
        let settings = night.and_then(|night| night.head.llm.as_ref());
        let (Some(settings), false) = (settings, calls.is_empty()) else { return Ok(None) };
        let desk = self.desk();
        let start = desk.start_commit("llm")?;
        self.worktree.restore(start, &self.repo.files(start)?)?;
        let mut candidate: Option<Candidate> = None;
        for (round, calls) in calls.iter().enumerate() {
            fs::create_dir_all(&desk.scratch).doing("create", &desk.scratch)?;
            let file = desk.scratch.join("recorded.jsonl");
            fs::write(&file, calls).doing("write", &file)?;
            let recorded = Recorded::read(&file).map_err(error)?;
            let (memory, scratch) = (self.dir.path().to_owned(), desk.scratch.clone());
            let (settings, editable) = (settings.clone(), self.task.editable().clone());
            let mut author = Author::new(settings, editable, Box::new(recorded), memory, scratch);
            let mut ask = Ask::default();
            if let Some(failed) = &candidate {
                self.worktree.restore(failed.commit, &self.repo.files(failed.commit)?)?;
                let (failed, round) = (failed.proposal.clone(), round as u32);
                // what the compiler said was in the prompt, and is in nothing that was answered
                ask.repair = Some(Repair { failed, round, message: String::new() });
            }
            match desk.propose(&mut author, &ask)?.outcome {
                Ok(made) => candidate = Some(made),
                Err(_) if round > 0 => {} // a repair that came to nothing leaves what there was
                Err(_) => return Ok(Some(None)),
            }
        }
        Ok(Some(candidate))
    }
}
