//! One trial, from candidate to verdict.
//!
//! The order in which things are written is what makes a kill at any point harmless: the candidate's ref,
//! then `opened`, then (after the runs) the kept commit's ref, then `closed`, then `results.tsv`, then the
//! branch, then the worktree. Whatever is missing is made good from the journal by the next start.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use prepare::{
    cache::CACHE_ENV,
    manifest::{hex, sha256_file},
};
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::{
    build::{self, BuildFailure},
    candidate::{Candidate, message},
    commands::{Place, seed},
    cuda::gpu_driver,
    error::{Doing, Error, Result},
    fingerprint::{Snapshot, difference},
    git::{Files, remove},
    hints::Hints,
    history::mean,
    journal::{Event, Status, TrialRecord},
    ledger,
    measure::{Bench, Failure, Measured},
    plain_file,
    progress::{Observer, Phase, Progress, Stopwatch},
    runlog::plain,
    session::Session,
    state::write_new,
    verdict::{Crash, Decision, Outcome, Verdict, verdict},
};

/// How a trial ended.
#[derive(Debug)]
pub enum Done {
    /// With a row.
    Closed(Box<TrialRecord>),
    /// A stop was asked for: no row, and the number is free again.
    Stopped,
}

/// A trial under way.
pub struct Open {
    /// Its number.
    pub trial: u64,
    /// What is tried.
    pub candidate: Candidate,
    pub(crate) files: Files,
    before: Snapshot,
    began: Instant,
    pub(crate) watch: Stopwatch,
}

/// Why a candidate cannot be fitted.
pub enum NotReady {
    /// It does not build, or fails its preflight. The message is for its proposer.
    Crash(Crash, String),
    /// A stop was asked for.
    Stopped,
}

impl Session {
    /// Begins a trial: its number, folder, ref and journal record.
    pub fn begin(&mut self, candidate: Candidate, observer: &mut dyn Observer) -> Result<Open> {
        let began = Instant::now();
        self.repo.check_branch(&self.tag, self.champion())?;
        self.check_surroundings()?;
        let trial = self.history().next_trial();
        let dir = self.dir.trial(trial);
        if dir.exists() {
            remove(&dir)?;
        }
        fs::create_dir_all(&dir).doing("create the trial's folder", &dir)?;
        observer.tell(Progress::Started {
            trial,
            proposer: &candidate.proposer,
            description: &plain(&candidate.proposal.description, 100),
        });
        let mut open = Open {
            trial,
            candidate,
            files: Files::new(),
            before: Snapshot::new(),
            began,
            watch: Stopwatch::default(),
        };
        self.stand(&mut open)?;
        Ok(open)
    }

    /// Puts a mended candidate in the place of one that did not build.
    pub fn mend(&mut self, open: &mut Open, candidate: Candidate) -> Result<()> {
        open.candidate = candidate;
        self.stand(open)
    }

    /// Records the candidate and makes the worktree equal to it.
    fn stand(&mut self, open: &mut Open) -> Result<()> {
        let (trial, candidate) = (open.trial, &open.candidate);
        let dir = self.dir.trial(trial);
        self.repo.keep_ref(&self.tag, trial, candidate.commit)?;
        let patch = self.repo.patch(self.champion(), candidate.commit)?;
        write_new(&dir.join("diff.patch"), &patch)?;
        write_new(&dir.join("proposal.json"), &pretty(&candidate.proposal))?;
        let lock = self.worktree.path().join("Cargo.lock");
        let toolchain = self.toolchain().map(str::to_owned);
        let env = json!({
            "ratchet": env!("CARGO_PKG_VERSION"),
            "profile": self.setting.profile,
            "device": self.setting.device,
            "cuda": self.setting.card.is_some(),
            "toolchain": toolchain,
            "lockfile": sha256_file(&lock).ok(),
            "data": self.setting.data_fingerprint(),
            "cache": self.setting.cache_root().map(|root| json!({ CACHE_ENV: root })),
            "gpu_driver": gpu_driver(),
            "program": plain_file::read(&self.state.root().join("program.md")).ok().map(|text| hex(&Sha256::digest(text))),
            "seed": seed(self.tag.as_str(), 0),
        });
        write_new(&dir.join("env.json"), &pretty(&env))?;
        self.journal.append(Event::Opened {
            trial,
            parent: candidate.parent,
            commit: candidate.commit.to_string(),
            hint: candidate.demand.hint_id.clone(),
        })?;
        open.files = self.repo.files(candidate.commit)?;
        self.worktree.restore(candidate.commit, &open.files)
    }

    /// Builds and preflights.
    pub fn make_ready(
        &mut self,
        open: &mut Open,
        observer: &mut dyn Observer,
    ) -> Result<Result<(), NotReady>> {
        match self.build(open, observer)? {
            Ok(()) => self.preflight(open, observer),
            Err(not_ready) => Ok(Err(not_ready)),
        }
    }

    /// Takes over a build that was made ahead, in `run`, and preflights it.
    pub(crate) fn make_ready_from(
        &mut self,
        run: &Path,
        open: &mut Open,
        observer: &mut dyn Observer,
    ) -> Result<Result<(), NotReady>> {
        let dir = self.dir.trial(open.trial);
        for name in ["bin", "build.log"] {
            let from = run.join(name);
            fs::rename(&from, dir.join(name)).doing("take over what was built ahead", &from)?;
        }
        self.preflight(open, observer)
    }

    fn build(&mut self, open: &mut Open, observer: &mut dyn Observer) -> Result<Result<(), NotReady>> {
        if self.night.is_some() {
            return Ok(Ok(())); // whether it builds is in the recording of its run
        }
        let place = self.place(self.dir.trial(open.trial), None, 0);
        let mut timed = open.watch.over(observer);
        let observer = &mut timed;
        if self.task.build.is_some() {
            observer.tell(Progress::Phase { phase: Phase::Build, about: None, folder: Some(&place.dir) });
        }
        let log = place.dir.join("build.log");
        match build::build(
            &self.task,
            &self.setting,
            &place,
            &open.candidate.paths,
            &log,
            &self.stop,
            observer,
        )? {
            Ok(()) => {}
            Err(BuildFailure::Stopped) => return Ok(Err(NotReady::Stopped)),
            Err(BuildFailure::Crash(crash, message)) => return Ok(Err(NotReady::Crash(crash, message))),
        }
        if let Some(reason) = self.desk().unseen_source(&open.files, open.candidate.commit, &place)? {
            let crash = Crash { outcome: "build_failed".to_owned(), reason: reason.clone() };
            return Ok(Err(NotReady::Crash(crash, reason)));
        }
        // a build may write into the worktree what it likes, but not into files of the commit; from here on
        // nothing may be written there
        if self.task.build.is_some() {
            self.worktree.checkout(open.candidate.commit, &open.files)?;
        }
        Ok(Ok(()))
    }

    fn preflight(&mut self, open: &mut Open, observer: &mut dyn Observer) -> Result<Result<(), NotReady>> {
        if self.night.is_some() {
            return Ok(Ok(()));
        }
        let place = self.place(self.dir.trial(open.trial), None, 0);
        open.before = self.watcher.snapshot(self.worktree.path(), open.files.keys().map(PathBuf::as_path));
        let bench = Bench { task: &self.task, setting: &self.setting, place, stop: &self.stop };
        match bench.preflight(&mut open.watch.over(observer))? {
            Ok(()) => Ok(Ok(())),
            Err((Failure::Stopped, _)) => Ok(Err(NotReady::Stopped)),
            Err((Failure::Crash(crash), message)) => Ok(Err(NotReady::Crash(crash, message))),
        }
    }

    /// Fits, scores and judges a candidate that is ready.
    pub fn finish(&mut self, mut open: Open, observer: &mut dyn Observer) -> Result<Done> {
        let place = self.place(self.dir.trial(open.trial), None, 0);
        match self.run_at(place, 0, &mut open, observer)? {
            Ok(measured) => self.judge(open, measured, observer),
            Err(Failure::Stopped) => self.abandon(open),
            Err(Failure::Crash(crash)) => self.close_crashed(open, crash, observer),
        }
    }

    /// Ends a trial that has no score.
    pub fn close_crashed(&mut self, open: Open, crash: Crash, observer: &mut dyn Observer) -> Result<Done> {
        let noise = self.noise(None);
        let verdict =
            verdict(self.scored_champion().as_ref(), &Outcome::Crashed(crash), &noise, &self.task.accept);
        self.close(open, verdict, None, Vec::new(), observer)
    }

    /// Gives a trial up because a stop was asked for.
    pub fn abandon(&mut self, open: Open) -> Result<Done> {
        self.journal.append(Event::Abandoned { trial: open.trial, reason: "stopped".into() })?;
        self.restore()?;
        Ok(Done::Stopped)
    }

    pub(crate) fn run_at(
        &mut self,
        place: Place,
        run: u32,
        open: &mut Open,
        observer: &mut dyn Observer,
    ) -> Result<Result<Measured, Failure>> {
        if let Some(night) = &self.night {
            return Ok(night.measured(open.trial, run));
        }
        let bench = Bench { task: &self.task, setting: &self.setting, place, stop: &self.stop };
        let measured = bench.run(&mut open.watch.over(observer))?;
        let after = self.watcher.snapshot(self.worktree.path(), open.files.keys().map(PathBuf::as_path));
        Ok(match (measured, difference(&open.before, &after)) {
            (Ok(_), Some(path)) => Err(Failure::Crash(Crash {
                outcome: "files_changed".to_owned(),
                reason: format!(
                    "the run changed {}, which may only be read while it is measured",
                    path.display()
                ),
            })),
            (measured, _) => measured,
        })
    }

    pub(crate) fn place(&self, dir: PathBuf, bin: Option<PathBuf>, run: u32) -> Place {
        // best effort: a folder that cannot be made shows as the run's own failure
        let _ = fs::create_dir_all(&dir);
        Place {
            root: self.state.root().to_path_buf(),
            worktree: self.worktree.path().to_path_buf(),
            target: self.dir.target(),
            bin: bin.unwrap_or_else(|| dir.join("bin")),
            dir,
            seed: seed(self.tag.as_str(), run),
        }
    }

    pub(crate) fn close(
        &mut self,
        open: Open,
        judged: Verdict,
        measured: Option<Measured>,
        values: Vec<f64>,
        observer: &mut dyn Observer,
    ) -> Result<Done> {
        let Open { trial, candidate, began, watch, .. } = open;
        let status = match judged.decision {
            Decision::Keep => Status::Keep,
            Decision::Crash => Status::Crash,
            Decision::Discard | Decision::Replicate(_) => Status::Discard,
        };
        let before = self.champion();
        let commit = if status == Status::Keep && candidate.parent.is_some() {
            let message = self.kept_message(trial, &candidate, &judged);
            let commit = self.repo.reword(candidate.commit, &message)?;
            self.repo.keep_ref(&self.tag, trial, commit)?;
            commit
        } else {
            candidate.commit
        };
        let dir = self.dir.trial(trial);
        let decided = pretty(&judged);
        write_new(&dir.join("verdict.json"), &decided)?;
        if let Some(night) = &mut self.night {
            night.compare(trial, &decided);
        }
        let files = candidate.files();
        let record = TrialRecord {
            trial,
            status,
            value: mean(&values),
            values,
            delta: judged.delta,
            memory_gb: measured.as_ref().map_or(0.0, |measured| measured.memory_gb),
            seconds: began.elapsed().as_secs_f64(),
            commit: Some(commit.to_string()),
            parent: candidate.parent,
            carries: candidate.carries,
            excursion: candidate.excursion,
            class: candidate.class,
            ahead: candidate.ahead,
            program: candidate.program,
            demand: candidate.demand,
            uses: candidate.uses,
            proposer: candidate.proposer,
            proposal: crate::proposer::Proposal { edits: Vec::new(), ..candidate.proposal },
            source: candidate.source,
            files,
            lines: candidate.lines,
            tokens_m: measured.as_ref().and_then(|measured| measured.tokens_m),
            mfu_percent: measured.as_ref().and_then(|measured| measured.mfu_percent),
            verdict: judged,
            phases: watch.seconds(),
            ended: jiff::Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_default().to_string(),
        };
        self.settle(trial, status)?;
        self.journal.append(Event::Closed(Box::new(record.clone())))?;
        ledger::write(&self.state, &self.task.metric.name, self.history().trials())?;
        if status == Status::Keep {
            if commit != before {
                self.repo.advance_branch(&self.tag, before, commit)?;
            }
            self.journal.append(Event::Advanced { commit: commit.to_string() })?;
        }
        Hints::of(&self.dir).sweep(self.history())?;
        self.put_away(trial, status)?;
        if status == Status::Keep {
            self.set_champion(commit)?
        } else {
            self.restore()?
        }
        observer.tell(Progress::Ended { record: &record, champion: self.history().champion() });
        Ok(Done::Closed(Box::new(record)))
    }

    /// A kept commit's message, whose trailers make `git log` a lab book.
    fn kept_message(&self, trial: u64, candidate: &Candidate, judged: &Verdict) -> String {
        let metric = &self.task.metric.name;
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        let carried: String = (self.history().carried(candidate.carries))
            .map(|record| {
                format!("Carries: {}: {}\n", record.trial, plain(&record.proposal.description, 100))
            })
            .collect();
        format!(
            "{}\n\nTrial: {trial}\n{carried}{}: {}\nDelta: {}\nProposer: {}\n",
            message(&candidate.proposal),
            trailer(metric),
            number(judged.value),
            judged.delta.map_or("-".to_owned(), |delta| format!("{delta:+.6}")),
            plain(&candidate.proposer, 60),
        )
    }
}

/// `val_bpb` → `Val-Bpb`.
pub(crate) fn trailer(metric: &str) -> String {
    let parts = metric.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty());
    let capital = |part: &str| part[..1].to_ascii_uppercase() + &part[1..];
    parts.map(capital).collect::<Vec<_>>().join("-")
}

fn pretty(value: &impl serde::Serialize) -> Vec<u8> {
    let mut bytes = serde_json::to_vec_pretty(value).unwrap_or_default(); // maps with string keys: cannot fail
    bytes.push(b'\n');
    bytes
}

/// The error for a trial number that does not exist.
pub fn no_such_trial(trial: u64, tag: &crate::state::Tag) -> Error {
    Error::usage(format!("the tag {tag} has no trial {trial}")).hint("`ratchet log` lists them")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metrics_trailer_is_a_legal_git_trailer() {
        assert_eq!(trailer("val_bpb"), "Val-Bpb");
        assert_eq!(trailer("loss"), "Loss");
        assert_eq!(trailer("f1@leaf.mean"), "F1-Leaf-Mean");
    }
}
