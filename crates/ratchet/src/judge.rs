//! From measurements to a verdict: further runs of both sides where the first ones leave it open.

use std::{fs, path::PathBuf, time::Instant};

use crate::{
    build::{self, BuildFailure},
    error::{Doing, Result},
    git::{Oid, remove},
    journal::{Event, Status, TrialRecord},
    measure::{Bench, Failure, Measured},
    noise::Runs,
    progress::{Observer, Phase, Progress, Stopwatch},
    sampling,
    session::Session,
    trial::{Done, Open},
    verdict::{Crash, Decision, Outcome, Policy, Score, Scored, Verdict, verdict},
};

impl Session {
    /// Asks the verdict until it is one, running further seeds where it wants them.
    pub(crate) fn judge(
        &mut self,
        mut open: Open,
        first: Measured,
        observer: &mut dyn Observer,
    ) -> Result<Done> {
        let mut score = Score {
            runs: Runs::new(first.value),
            lines: open.candidate.lines,
            memory_gb: first.memory_gb,
            sampling: self.sampling_error(open.trial)?,
        };
        let accept = &self.task.accept;
        let mut policy = Policy { carry: accept.carry && open.candidate.may_carry, ..accept.clone() };
        loop {
            let noise = self.noise(Some(&score.runs));
            let lead = open.candidate.carries.and_then(|trial| self.history().trial(trial)?.verdict.lead);
            let champion = self.scored_champion().map(|champion| Scored { lead, ..champion });
            let judged = verdict(champion.as_ref(), &Outcome::Scored(score.clone()), &noise, &policy);
            let Decision::Replicate(wanted) = judged.decision else {
                let judged = self.with_speed(judged);
                let values = score.runs.values().collect();
                return self.close(open, judged, Some(first), values, observer);
            };
            observer.tell(Progress::Note(&format!("a second look: run {wanted} of both sides")));
            while score.runs.count() < wanted {
                let run = score.runs.count();
                let dir = self.dir.trial(open.trial).join("runs").join(run.to_string());
                let bin = self.dir.trial(open.trial).join("bin");
                self.worktree.restore(open.candidate.commit, &open.files)?;
                let place = self.place(dir, Some(bin), run);
                let ran = self.run_at(place.clone(), run, &mut open, observer)?;
                place.discard()?;
                match ran {
                    Ok(measured) => score.runs.push(measured.value),
                    Err(Failure::Stopped) => return self.abandon(open),
                    Err(Failure::Crash(crash)) => {
                        let reason = format!("run {} of {}: {}", run + 1, wanted, crash.reason);
                        return self.close_crashed(open, Crash { reason, ..crash }, observer);
                    }
                }
            }
            let replicated = self.replicate_champion(wanted, &mut open.watch.over(observer))?;
            match replicated {
                Ok(()) => {}
                Err(Failure::Stopped) => return self.abandon(open),
                Err(Failure::Crash(crash)) => {
                    observer.tell(Progress::Note(&format!(
                        "the champion could not be run again ({}); deciding on what there is",
                        crash.reason
                    )));
                    policy = Policy { max_replicates: 0, ..policy };
                }
            }
        }
    }

    /// What the choice of exam rows leaves open between a trial and the champion, from the first run of each.
    fn sampling_error(&self, trial: u64) -> Result<f64> {
        if let Some(night) = &self.night {
            return Ok(night.sampling(trial));
        }
        let Some(champion) = self.history().champion().filter(|_| self.task.score.exam) else {
            return Ok(0.0);
        };
        let rows = [trial, champion.trial].map(|trial| sampling::read(&self.dir.trial(trial)));
        let [Some(mine), Some(theirs)] = rows else { return Ok(0.0) };
        let exam = self.setting.exam()?;
        Ok(sampling::standard_error(&mine, &theirs, exam.row_bytes()).unwrap_or(0.0))
    }

    /// Says in a verdict that the machine was not what it was when the champion was measured.
    fn with_speed(&self, mut judged: Verdict) -> Verdict {
        let drift = self.history().drift().filter(|drift| drift.speed_changed());
        if let Some(speed) = drift.and_then(|drift| drift.speed) {
            let percent = (100.0 * speed).round();
            judged.reason += &format!("; the machine ran at {percent} % of the champion's speed");
        }
        judged
    }

    /// Runs the champion with further seeds until it has `wanted` runs.
    pub(crate) fn replicate_champion(
        &mut self,
        wanted: u32,
        observer: &mut dyn Observer,
    ) -> Result<Result<(), Failure>> {
        let Some(champion) = self.history().champion().cloned() else { return Ok(Ok(())) };
        for run in champion.values.len() as u32..wanted {
            let dir = self.dir.trial(champion.trial).join("runs").join(run.to_string());
            let (began, mut watch) = (Instant::now(), Stopwatch::default());
            let ran = self.run_again(&champion, dir, run, &mut watch.over(observer))?;
            let fit_s = watch.of(Phase::Fit);
            match ran {
                Ok(measured) => self.journal.append(Event::Replicated {
                    trial: champion.trial,
                    run,
                    value: Some(measured.value.get()),
                    seconds: began.elapsed().as_secs_f64(),
                    counts: true,
                    tokens_m: measured.tokens_m,
                    fit_s,
                })?,
                Err(Failure::Stopped) => return Ok(Err(Failure::Stopped)),
                Err(crash) => {
                    self.journal.append(Event::Replicated {
                        trial: champion.trial,
                        run,
                        value: None,
                        seconds: began.elapsed().as_secs_f64(),
                        counts: true,
                        tokens_m: None,
                        fit_s,
                    })?;
                    return Ok(Err(crash));
                }
            }
        }
        Ok(Ok(()))
    }

    /// Runs an earlier trial's commit once more, building it where its binary is gone. The worktree is left
    /// at that commit.
    pub fn run_again(
        &mut self,
        record: &TrialRecord,
        dir: PathBuf,
        run: u32,
        observer: &mut dyn Observer,
    ) -> Result<Result<Measured, Failure>> {
        if let Some(night) = &mut self.night {
            return Ok(night.measured_again(record.trial, run));
        }
        let commit = self.repo.parse(record.commit.as_deref().unwrap_or_default())?;
        let kept = self.dir.model(record.trial).join("bin");
        let bin = if kept.exists() { kept } else { dir.join("bin") };
        self.run_commit(commit, bin, dir, run, observer)
    }

    /// Runs a commit, building it where `bin` is not there. What is in `dir` is removed first. The worktree is
    /// left at that commit.
    pub(crate) fn run_commit(
        &mut self,
        commit: Oid,
        bin: PathBuf,
        dir: PathBuf,
        run: u32,
        observer: &mut dyn Observer,
    ) -> Result<Result<Measured, Failure>> {
        let files = self.repo.files(commit)?;
        self.worktree.restore(commit, &files)?;
        if dir.exists() {
            remove(&dir)?;
        }
        let place = self.place(dir, Some(bin.clone()), run);
        fs::create_dir_all(&place.dir).doing("create", &place.dir)?;
        if self.task.build.is_some() && !bin.exists() {
            observer.tell(Progress::Phase { phase: Phase::Build, about: None, folder: Some(&place.dir) });
            let changed: Vec<PathBuf> =
                files.keys().filter(|path| self.task.editable().contains(path)).cloned().collect();
            let log = place.dir.join("build.log");
            match build::build(&self.task, &self.setting, &place, &changed, &log, &self.stop, observer)? {
                Ok(()) => {}
                Err(BuildFailure::Stopped) => return Ok(Err(Failure::Stopped)),
                Err(BuildFailure::Crash(crash, _)) => return Ok(Err(Failure::Crash(crash))),
            }
        }
        let own_bin = place.dir.join("bin");
        let bench =
            Bench { task: &self.task, setting: &self.setting, place: place.clone(), stop: &self.stop };
        let ran = bench.run(observer)?;
        place.discard()?;
        if own_bin.exists() {
            remove(&own_bin)?;
        }
        Ok(ran)
    }

    /// The champion as the verdict needs it.
    pub(crate) fn scored_champion(&self) -> Option<Scored> {
        let history = self.history();
        let champion = history.champion()?;
        let goal = self.task.metric.goal;
        let values =
            history.trials().iter().filter(|record| record.status == Status::Keep).filter_map(|r| r.value);
        let best = values.reduce(|best, value| if goal.better(value, best) { value } else { best })?;
        let runs = Runs::try_from(champion.values.clone()).ok()?;
        Some(Scored {
            score: Score { runs, lines: champion.lines, memory_gb: champion.memory_gb, sampling: 0.0 },
            best,
            risk: history.risk(),
            lead: None,
        })
    }
}
