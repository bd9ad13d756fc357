//! `ratchet transfer`: does the gain last when the model is larger and trains longer?
//!
//! Baseline and champion, and on request the champion without each keep, are trained again with another
//! budget and depth, on the same seeds. Nothing of it is a trial, and nothing of it changes the champion. A
//! run that has ended is not made again: the same command goes on where it was stopped.

mod curve;
mod plan;
mod report;

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use self::plan::{Arm, Plan};
pub use self::report::{Estimate, Report, Without};
use crate::{
    error::{Doing, Error, Result},
    git::Oid,
    journal::Event,
    measure::{Failure, Measured},
    plain_file,
    progress::{Observer, Progress},
    session::Session,
    state::write_atomic,
    verdict::Crash,
};

/// What is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Longer {
    /// Time to train.
    pub budget: Duration,
    /// Value of the contestant's knob named DEPTH.
    pub depth: u32,
    /// Runs of each side, at least 1; a standard error needs 2.
    pub runs: u32,
    /// Whether to run the champion without each of its keeps as well.
    pub leave_one_out: bool,
}

/// How one run of one side ended; `run.json` in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Run {
    value: Option<f64>,
    /// Why there is no value.
    reason: Option<String>,
    seconds: f64,
    tokens_m: Option<f64>,
}

impl Session {
    /// Runs what is not run yet, and reports. `None` when a stop was asked for; what has ended is kept.
    ///
    /// Exit code 2 when there is nothing to compare, or no knob for the depth.
    pub fn transfer(&mut self, asked: &Longer, observer: &mut dyn Observer) -> Result<Option<Report>> {
        self.ensure_data(observer)?;
        let plan = Plan::of(self, asked)?;
        let dir = self.transfer_folder(&plan)?;
        for without in &plan.conflicts {
            observer.tell(Progress::Note(&format!(
                "the champion without trial {} cannot be made: {}",
                without.trial, without.reason
            )));
        }
        self.setting.longer = Some(asked.budget);
        let ran = self.run_arms(&plan, &dir, observer);
        self.setting.longer = None;
        self.restore()?;
        if ran?.is_none() {
            return Ok(None);
        }
        let report = Report::of(self, &plan, &dir)?;
        let json = serde_json::to_vec_pretty(&report)
            .map_err(|error| Error::internal("could not write the report").at(&dir).because(error))?;
        let path = dir.join("summary.json");
        if !path.exists() {
            write_atomic(&path, &json)?;
            self.journal.append(Event::Transferred {
                folder: report.folder.clone(),
                budget_s: asked.budget.as_secs_f64(),
                depth: asked.depth,
                champion: report.champion,
                gain: report.gain.as_ref().map(|gain| gain.mean),
                error: report.gain.as_ref().and_then(|gain| gain.error),
            })?;
        }
        Ok(Some(report))
    }

    /// The folder of this plan: the latest one if it was begun under the same plan, else the next.
    fn transfer_folder(&self, plan: &Plan) -> Result<PathBuf> {
        let all = self.dir.path().join("transfer");
        let numbers = fs::read_dir(&all).into_iter().flatten().flatten();
        let last = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
        let folder = |number: u32| all.join(format!("{number:03}"));
        let text = plan.to_json();
        if let Some(last) = last
            && plain_file::read(&folder(last).join("plan.json")).is_ok_and(|known| known == text)
        {
            return Ok(folder(last));
        }
        let dir = folder(last.map_or(1, |last| last + 1));
        fs::create_dir_all(&dir).doing("create", &dir)?;
        write_atomic(&dir.join("plan.json"), &text)?;
        Ok(dir)
    }

    /// Runs every arm with each seed, seed by seed, so that what has ended is a comparison at any time.
    fn run_arms(&mut self, plan: &Plan, dir: &Path, observer: &mut dyn Observer) -> Result<Option<()>> {
        let mut built = HashSet::new();
        for run in 0..plan.runs {
            for arm in &plan.arms {
                let place = arm_run(dir, arm, run);
                if read_run(&place)?.is_some() {
                    continue;
                }
                observer.tell(Progress::Note(&format!("run {} of {}: {}", run + 1, plan.runs, arm.name)));
                let bin = dir.join(&arm.name).join("bin");
                // one from an earlier start may be half a copy
                if built.insert(&arm.name) && bin.exists() {
                    fs::remove_dir_all(&bin).doing("clear", &bin)?;
                }
                let began = Instant::now();
                let ended = match self.run_commit(arm.commit, bin, place.clone(), run, observer)? {
                    Ok(Measured { value, tokens_m, .. }) => (Some(value.get()), None, tokens_m),
                    Err(Failure::Crash(Crash { reason, .. })) => {
                        observer.tell(Progress::Note(&format!("{} has no value: {reason}", arm.name)));
                        (None, Some(reason), None)
                    }
                    Err(Failure::Stopped) => return Ok(None),
                };
                let (value, reason, tokens_m) = ended;
                let run = Run { value, reason, seconds: began.elapsed().as_secs_f64(), tokens_m };
                let json = serde_json::to_vec(&run)
                    .map_err(|error| Error::internal("could not write a run").at(&place).because(error))?;
                write_atomic(&place.join("run.json"), &json)?;
            }
        }
        for arm in &plan.arms {
            let bin = dir.join(&arm.name).join("bin");
            if bin.exists() {
                fs::remove_dir_all(&bin).doing("remove", &bin)?;
            }
        }
        Ok(Some(()))
    }

    /// `commit` with the depth that is asked for; `what` names it in the error where there is no such knob.
    fn deepened(&self, commit: Oid, depth: u32, what: &str) -> Result<Oid> {
        let files = self.desk().source_files(commit)?;
        let profile = self.setting.profile.map(|profile| profile.name());
        let edits = crate::proposer::knobs::with_knob(&files, profile, plan::DEPTH, &depth.to_string())
            .map_err(|reason| Error::usage(reason).at(self.state.root()))?
            .ok_or_else(|| {
                Error::usage(format!("{what} has no knob named {}", plan::DEPTH))
                    .at(self.state.root())
                    .hint("mark the value that makes the model larger, for example `pub const DEPTH: usize = 8; // knob: int 1..16`")
            })?;
        self.repo.commit_files(commit, &edits, &format!("{what} at depth {depth}"))
    }
}

fn arm_run(dir: &Path, arm: &Arm, run: u32) -> PathBuf {
    dir.join(&arm.name).join(run.to_string())
}

/// A run that has ended; `None` for one that has not.
fn read_run(place: &Path) -> Result<Option<Run>> {
    let path = place.join("run.json");
    match plain_file::read(&path) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|error| {
            Error::internal("not what run.json should be").at(&path).because(error).hint("remove it")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("read", &path),
    }
}
