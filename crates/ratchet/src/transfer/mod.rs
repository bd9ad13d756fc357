//! `ratchet transfer`: does the gain last when the model is larger and trains longer?
//!
//! Baseline and champion, and on request the champion without each keep, are trained again with another
//! budget and depth, on the same seeds. Nothing of it is a trial, and nothing of it changes the champion.

mod curve;
mod plan;
mod report;

use std::time::Duration;

use self::plan::Plan;
pub use self::report::{Estimate, Report, Without};
use crate::{
    arms::{Arm, folder_of},
    error::{Error, Result},
    git::Oid,
    journal::Event,
    progress::{Observer, Progress},
    session::Session,
    state::write_atomic,
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

impl Session {
    /// Runs what is not run yet, and reports. `None` when a stop was asked for; what has ended is kept.
    ///
    /// Exit code 2 when there is nothing to compare, or no knob for the depth.
    pub fn transfer(&mut self, asked: &Longer, observer: &mut dyn Observer) -> Result<Option<Report>> {
        self.ensure_data(observer)?;
        let plan = Plan::of(self, asked)?;
        let dir = folder_of(&self.dir.path().join("transfer"), &plan.to_json(), |_| true)?;
        for without in &plan.conflicts {
            observer.tell(Progress::Note(&format!(
                "the champion without trial {} cannot be made: {}",
                without.trial, without.reason
            )));
        }
        self.setting.longer = Some(asked.budget);
        let arms: Vec<Arm<'_>> =
            plan.arms.iter().map(|arm| Arm { name: &arm.name, commit: arm.commit }).collect();
        let ran = self.run_arms(&arms, plan.runs, false, &dir, observer);
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
