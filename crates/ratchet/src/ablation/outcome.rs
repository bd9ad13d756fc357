//! What one repeat came to.

use std::{collections::BTreeMap, path::Path};

use mechanism::Hook;
use serde::{Deserialize, Serialize};

use super::{
    meter::{Meter, Point, Used},
    plan::Group,
    repeat::Order,
};
use crate::{
    error::{Doing, Error, Result},
    journal::{Status, TrialRecord},
    plain_file,
    search::{self, Mechanism, Standing},
    session::Session,
    sim::{FILE, Landscape, Settings},
    state::write_atomic,
};

/// What one repeat came to; `outcome.json` in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its group.
    pub group: Group,
    /// Which repeat, from 1.
    pub repeat: usize,
    /// What it started from: hashes of the protected and of the editable files. The same for all groups.
    pub start: String,
    /// Why it ended.
    pub reason: String,
    /// What was used at its end, which may be past the budget by the last trial.
    pub used: Used,
    /// Trials that ended within the budget, in their order.
    pub points: Vec<Point>,
    /// The metric's value after each of them, the mean of all runs of the champion of that time.
    pub values: Vec<f64>,
    /// On `sim`, the same without noise.
    pub truths: Option<Vec<f64>>,
    /// Keeps, discards and crashes among them; the baseline is a keep.
    pub counts: [usize; 3],
    /// Proposals that came to nothing.
    pub in_vain: u64,
    /// Seconds between two trials by the clock, mean: proposals, hooks, all that is no trial.
    pub between_s: f64,
    /// Looks at the settings.
    pub cycles: Counted,
    /// Research sessions.
    pub sessions: Counted,
    /// Every mechanism that there was.
    pub mechanisms: Vec<Had>,
}

/// How often something was done, and how often it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// How often.
    pub done: u64,
    /// Of these, in vain.
    pub failed: u64,
}

impl std::iter::Sum for Counted {
    fn sum<I: Iterator<Item = Self>>(all: I) -> Self {
        all.fold(Self::default(), |sum, one| Self {
            done: sum.done + one.done,
            failed: sum.failed + one.failed,
        })
    }
}

/// A mechanism that a repeat had.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Had {
    /// Its name in the library.
    pub id: String,
    /// What its author calls it.
    pub name: String,
    /// How it stood at the end.
    pub standing: Standing,
    /// Why.
    pub reason: String,
    /// Calls of each hook.
    pub calls: BTreeMap<Hook, u64>,
    /// Those whose answer was used.
    pub acted: BTreeMap<Hook, u64>,
    /// Trials with it, and without.
    pub trials: [usize; 2],
    /// Gain a minute with it minus that without; `None` without trials of both.
    pub effect: Option<f64>,
}

impl Had {
    /// Whether none of its answers was ever used: it earns nothing, whatever the trials came to.
    pub fn is_inactive(&self) -> bool {
        self.acted.values().all(|times| *times == 0)
    }
}

impl From<&Mechanism> for Had {
    fn from(known: &Mechanism) -> Self {
        Self {
            id: known.id.clone(),
            name: known.name.clone(),
            standing: known.standing,
            reason: known.reason.clone(),
            calls: known.calls.clone(),
            acted: known.acted.clone(),
            trials: known.trials(),
            effect: known.effect(),
        }
    }
}

impl Outcome {
    pub(super) fn of(order: &Order, session: &Session, meter: Meter, reason: String) -> Result<Self> {
        let history = session.history();
        let within = |point: &Point| order.budget_s.is_none_or(|budget| point.used.seconds() <= budget);
        let used = meter.used();
        let points: Vec<Point> = meter.points.into_iter().filter(within).collect();
        let champion = |point: &Point| {
            let champion = point.champion.and_then(|trial| history.trial(trial));
            champion.ok_or_else(|| Error::internal(format!("trial {} has no champion", point.trial)))
        };
        let value =
            |record: &TrialRecord| record.value.ok_or_else(|| Error::internal("a keep without a value"));
        let values = points.iter().map(|point| value(champion(point)?)).collect::<Result<_>>()?;
        let truths = match order.task {
            Some(_) => None,
            None => {
                let landscape = Landscape::new(order.drawn("landscape"));
                let truth = |point: &Point| truth(session, champion(point)?, &landscape);
                Some(points.iter().map(truth).collect::<Result<_>>()?)
            }
        };
        let counted = |status| {
            let within = |record: &&TrialRecord| points.iter().any(|point| point.trial == record.trial);
            history.trials().iter().filter(within).filter(|record| record.status == status).count()
        };
        let trials_s: f64 = history.trials().iter().map(|record| record.seconds).sum();
        let search = history.search();
        let times = |counted: search::Counted| Counted { done: counted.done, failed: counted.failed };
        let baseline = history.baseline().ok_or_else(|| Error::internal("there is no baseline"))?;
        let protected = history.init().map(|init| init.protected.as_str()).unwrap_or_default();
        Ok(Self {
            group: order.group,
            repeat: order.repeat,
            start: format!("{protected} {}", baseline.source),
            reason,
            used,
            counts: [Status::Keep, Status::Discard, Status::Crash].map(counted),
            in_vain: history.attempts().saturating_sub(history.trials().len() as u64),
            between_s: (history.duty().wall_s - trials_s).max(0.0) / history.trials().len() as f64,
            cycles: times(search.cycles()),
            sessions: times(search.sessions()),
            mechanisms: search.mechanisms().iter().map(Had::from).collect(),
            points,
            values,
            truths,
        })
    }

    pub(super) fn write(&self, folder: &Path) -> Result<()> {
        let json =
            serde_json::to_vec_pretty(self).map_err(|error| Error::internal("no outcome").because(error))?;
        write_atomic(&folder.join("outcome.json"), &json)
    }

    /// That of a repeat which is done.
    pub(super) fn read(folder: &Path) -> Result<Option<Self>> {
        let path = folder.join("outcome.json");
        match plain_file::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| {
                Error::internal("not what outcome.json should be")
                    .at(&path)
                    .because(error)
                    .hint("remove the folder: the repeat is made again")
            }),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).doing("read", &path),
        }
    }
}

/// The noise-free value of a trial's settings.
fn truth(session: &Session, record: &TrialRecord, landscape: &Landscape) -> Result<f64> {
    let commit = session.repo.parse(record.commit.as_deref().unwrap_or_default())?;
    let files = session.repo.editable_files(commit, session.task.editable())?;
    let text = files.get(Path::new(FILE)).map(|bytes| String::from_utf8_lossy(bytes)).unwrap_or_default();
    let settings = Settings::parse(&text).map_err(Error::internal)?;
    landscape.truth(&settings).map_err(|error| Error::internal(error.to_string()))
}
