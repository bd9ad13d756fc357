//! What a repeat has used of its budget, after every trial, and where it stood then.
//!
//! On `sim` time is a price list, so that what takes milliseconds costs what it stands for; elsewhere it is the clock.

use std::{
    io::Write,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{plan::On, repeat::Order};
use crate::{
    error::{Doing, Error, Result},
    exec::StopFlag,
    history::History,
    journal::{self, Status},
    progress::{Observer, Progress},
    session::Session,
    state::{State, Tag},
};

/// What one run of a candidate stands for on `sim`, replicates included: the contest's budget.
pub(crate) const RUN_S: f64 = 300.0;
/// What a run stands for that does not fit into memory.
pub(crate) const CRASH_S: f64 = 30.0;
/// Tokens, prompt and answer together, that a model takes a second for: a call of 8,000 takes 16 s.
pub(crate) const TOKENS_A_SECOND: f64 = 500.0;

/// What was used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Used {
    /// Seconds of the trials, on the GPU where there is one.
    pub trials_s: f64,
    /// Seconds of proposals, and of what the levels above asked.
    pub proposing_s: f64,
    /// Tokens.
    pub tokens: u64,
    /// US dollars, as far as they are known.
    pub usd: f64,
    /// Calls of a model whose price is not known.
    pub unpriced: u64,
    /// Calls of a model.
    pub calls: u64,
}

impl Used {
    /// What is held against the budget.
    pub fn seconds(&self) -> f64 {
        self.trials_s + self.proposing_s
    }

    /// As a tag's journal and account have it.
    fn of(on: On, history: &History, state: &State, tag: &Tag) -> Result<Self> {
        let spent = state.spent_by(tag.as_str())?;
        let records = history.trials().iter();
        let (trials_s, proposing_s) = match on {
            On::Sim => {
                let runs: usize = records.clone().map(|record| record.values.len()).sum();
                let crashes = records.filter(|record| record.status == Status::Crash).count();
                let trials = runs as f64 * RUN_S + crashes as f64 * CRASH_S;
                (trials, spent.tokens as f64 / TOKENS_A_SECOND)
            }
            On::Gpt => {
                let trials: f64 = records.map(|record| record.seconds).sum();
                (trials, (history.duty().wall_s - trials).max(0.0))
            }
        };
        let (tokens, usd, unpriced, calls) = (spent.tokens, spent.usd, spent.unpriced, spent.calls);
        Ok(Self { trials_s, proposing_s, tokens, usd, unpriced, calls })
    }
}

/// Where a repeat stood after a trial.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The trial.
    pub trial: u64,
    /// What was used by then.
    pub used: Used,
    /// The champion's trial then.
    pub champion: Option<u64>,
}

/// Ends a run when its budget is used. A trial that ends after that does not count, whoever is over by how much.
pub(crate) struct Meter {
    on: On,
    /// `None`: the baseline alone.
    budget_s: Option<f64>,
    stop: StopFlag,
    path: PathBuf,
    of: Option<(State, Tag, PathBuf)>,
    pub(crate) points: Vec<Point>,
    used: Used,
    failed: Option<Error>,
}

impl Meter {
    pub(crate) fn new(order: &Order, folder: &Path, stop: StopFlag) -> Self {
        let path = folder.join("points.jsonl");
        let (on, budget_s) = (order.on, order.budget_s);
        Self { on, budget_s, stop, path, of: None, points: Vec::new(), used: Used::default(), failed: None }
    }

    /// Reads on from where an earlier process was ended.
    pub(crate) fn attach(&mut self, session: &Session) -> Result<()> {
        let text = std::fs::read_to_string(&self.path).unwrap_or_default();
        // a torn last line is of a trial that the journal has, and is made up for by the next point
        self.points = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        self.of = Some((session.state.clone(), session.tag.clone(), session.dir.journal()));
        self.measure()
    }

    /// What was used so far.
    pub(crate) fn used(&self) -> Used {
        self.used
    }

    pub(crate) fn is_used_up(&self) -> bool {
        self.budget_s.is_some_and(|budget| self.used.seconds() >= budget)
    }

    /// Whether it is about the baseline's time alone.
    pub(crate) fn alone(&self) -> bool {
        self.budget_s.is_none()
    }

    /// The first error that came up while a run went on.
    pub(crate) fn check(&mut self) -> Result<()> {
        self.failed.take().map_or(Ok(()), Err)
    }

    fn measure(&mut self) -> Result<()> {
        let Some((state, tag, journal)) = &self.of else { return Ok(()) };
        let history = journal::read(journal)?;
        self.used = Used::of(self.on, &history, state, tag)?;
        let Some(last) = history.trials().last() else { return Ok(()) };
        if self.points.last().is_none_or(|point| point.trial < last.trial) {
            let champion = history.champion().map(|record| record.trial);
            let point = Point { trial: last.trial, used: self.used, champion };
            let mut line = serde_json::to_vec(&point).unwrap_or_default(); // numbers: cannot fail
            line.push(b'\n');
            let file = std::fs::OpenOptions::new().create(true).append(true).open(&self.path);
            file.and_then(|mut file| file.write_all(&line)).doing("write", &self.path)?;
            self.points.push(point);
        }
        Ok(())
    }
}

impl Observer for Meter {
    fn tell(&mut self, progress: Progress<'_>) {
        if !matches!(progress, Progress::Ended { .. } | Progress::NoProposal { .. }) {
            return;
        }
        if let Err(error) = self.measure() {
            self.failed.get_or_insert(error);
        }
        if self.is_used_up() || self.failed.is_some() {
            self.stop.shared().store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }
}
