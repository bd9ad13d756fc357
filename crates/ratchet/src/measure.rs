//! One run of a built candidate: preflight, then fit and score as processes of their own.

mod claims;
mod end;
mod exam;
mod text;

use std::{
    fs,
    time::{Duration, Instant},
};

use prepare::{exam::Exam, vouch::VOUCH_ENV};
use sandbox::Policy;

pub(crate) use self::text::NoText;
use self::{
    claims::{believable, grace, in_time},
    end::{explain, failed},
};
use crate::{
    commands::{Place, limits},
    config::Task,
    error::{Doing, Result},
    exec::{self, Ended, Spec, StopFlag},
    figures::{self, FitFigures, LastLine},
    noise::Value,
    progress::{Observer, Phase, Progress},
    reach::{Reach, confinement},
    runlog::{RunLog, Stream, tail_of},
    setting::Setting,
    state::write_new,
    verdict::Crash,
};

/// From the process's start until its clock runs.
const STARTUP: Duration = Duration::from_secs(60);
/// After the clock, to store the model.
const SAVING: Duration = Duration::from_secs(30);
/// The largest `fit.json` or `steps.csv`: a night's loss curve has some megabytes.
const LARGEST_RECORD: u64 = 64 << 20;

/// What a run measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Measured {
    /// The metric.
    pub value: Value,
    /// Peak memory of fit and score.
    pub memory_gb: f64,
    /// Tokens trained on, in millions.
    pub tokens_m: Option<f64>,
    /// MFU in percent.
    pub mfu_percent: Option<f64>,
}

/// Why a run has no value.
#[derive(Clone, Debug, PartialEq)]
pub enum Failure {
    /// The candidate's fault.
    Crash(Crash),
    /// A stop was asked for.
    Stopped,
}

impl Failure {
    fn crash(outcome: &str, reason: impl Into<String>) -> Self {
        Self::Crash(Crash { outcome: outcome.to_owned(), reason: reason.into() })
    }
}

impl From<Crash> for Failure {
    fn from(crash: Crash) -> Self {
        Self::Crash(crash)
    }
}

/// What a score command measured.
struct Score {
    value: Value,
    /// Sampled.
    peak_bytes: u64,
    /// As the referee reports it.
    memory_gb: Option<f64>,
}

/// One of the contract's commands.
struct Command<'a> {
    command: &'a [String],
    timeout_s: u64,
    stdin: Option<Vec<u8>>,
}

/// Runs a candidate's commands.
pub struct Bench<'a> {
    /// The contract.
    pub task: &'a Task,
    /// Profile, device, data.
    pub setting: &'a Setting,
    /// Where.
    pub place: Place,
    /// Asks to stop.
    pub stop: &'a StopFlag,
}

impl Bench<'_> {
    /// Runs `[preflight]`, if there is one. The failure's message is for the proposer.
    pub fn preflight(&self, observer: &mut dyn Observer) -> Result<Result<(), (Failure, String)>> {
        let Some(step) = &self.task.preflight else { return Ok(Ok(())) };
        observer.tell(Progress::Phase {
            phase: Phase::Preflight,
            about: None,
            folder: Some(&self.place.dir),
        });
        let path = self.place.dir.join("preflight.log");
        let mut log = RunLog::create(&path);
        self.place.clear()?;
        let policy = || self.reach().preflight(&step.command);
        let command = Command { command: &step.command, timeout_s: step.timeout_s, stdin: None };
        let ended = self.exec(command, policy, &mut log, &mut |_, _| {});
        log.close();
        let failure = failed("preflight", &ended?);
        self.take_record("preflight.json")?;
        Ok(failure.map_or(Ok(()), |failure| Err((explain(failure, &path), tail_of(&path, 30).join("\n")))))
    }

    /// Fits and scores. Notes that a person should know go to `observer`.
    pub fn run(&self, observer: &mut dyn Observer) -> Result<Result<Measured, Failure>> {
        let log_path = self.place.dir.join("run.log");
        let mut log = RunLog::create(&log_path);
        let result = self.run_logged(&mut log, observer);
        if let Some(note) = log.close() {
            observer.tell(Progress::Note(&note));
        }
        // the log is whole only now; a crash is explained by its last words. Those of an exam's process stay in
        // the log: it has seen the rows, and a reason is shown to proposers.
        let examined = self.task.score.exam && self.place.dir.join("fit.json").exists();
        result.map(|result| {
            result.map_err(|failure| if examined { failure } else { explain(failure, &log_path) })
        })
    }

    /// Scores the model in the place's folder on the held-out rows, as `run` does on those that decide.
    pub fn audit(&self) -> Result<Result<Value, Failure>> {
        let log_path = self.place.dir.join("run.log");
        let mut log = RunLog::create(&log_path);
        let scored = self.hold_exam(&self.setting.audit_exam()?, &mut log)?;
        log.close();
        Ok(scored.map(|score| score.value).map_err(|failure| explain(failure, &log_path)))
    }

    /// Nats that the model in the place's folder pays for each row of an exam that decides nothing.
    pub(crate) fn nats(&self, exam: &Exam) -> Result<Result<Vec<f64>, Failure>> {
        let mut log = RunLog::create(&self.place.dir.join("run.log"));
        let sat = self.sit(exam, &mut log)?;
        log.close();
        Ok(sat.map(|(scored, _)| scored.nats))
    }

    fn run_logged(&self, log: &mut RunLog, observer: &mut dyn Observer) -> Result<Result<Measured, Failure>> {
        self.place.clear()?;
        let mut peak_bytes = 0;
        let mut fit_figures = None;
        if let Some(step) = &self.task.fit {
            let budget = self.setting.budget();
            observer.tell(Progress::Phase {
                phase: Phase::Fit,
                about: budget,
                folder: Some(&self.place.dir),
            });
            let limit = budget.map_or(step.timeout_s, |budget| {
                let own = (STARTUP + budget + grace(budget) + SAVING).as_secs();
                // the contract's limit is made for the profile's budget
                if self.setting.longer.is_some() { own } else { own.min(step.timeout_s) }
            });
            let begun = Instant::now();
            let (ended, figures) = if self.task.score.exam {
                self.vouched_fit(&step.command, limit, log)?
            } else {
                let command = Command { command: &step.command, timeout_s: limit, stdin: None };
                let policy = || self.reach().fit(&step.command);
                let ended = self.exec(command, policy, log, &mut |_, _| {})?;
                let figures = FitFigures::read(&self.place.out().join("fit.json"));
                self.take_record("fit.json")?;
                (ended, figures)
            };
            self.take_record("steps.csv")?;
            let wall = begun.elapsed();
            peak_bytes = ended.peak_bytes;
            if let Some(failure) = failed("fit", &ended) {
                return Ok(Err(failure));
            }
            fit_figures = match figures {
                Ok(figures) => figures,
                Err(crash) => return Ok(Err(crash.into())),
            };
            if let (Some(profile), Some(budget)) = (self.setting.profile, budget) {
                let fit = fit_figures.as_ref();
                if let Err(reason) = believable(fit, profile, budget, self.place.seed, wall) {
                    return Ok(Err(Failure::crash("claim_impossible", reason)));
                }
                if let Err(reason) = in_time(fit, budget) {
                    return Ok(Err(Failure::crash("fit_timed_out", reason)));
                }
            }
        }
        observer.tell(Progress::Phase { phase: Phase::Score, about: None, folder: Some(&self.place.dir) });
        let score = match self.score(log)? {
            Ok(score) => score,
            Err(failure) => return Ok(Err(failure)),
        };
        let fit = fit_figures.unwrap_or_default();
        let measured_gb = peak_bytes.max(score.peak_bytes).max(fit.peak_mem_bytes.unwrap_or(0)) as f64 / 1e9;
        Ok(Ok(Measured {
            value: score.value,
            memory_gb: score.memory_gb.unwrap_or(measured_gb),
            tokens_m: fit.tokens.map(|tokens| tokens as f64 / 1e6),
            mfu_percent: fit.mfu_percent,
        }))
    }

    fn score(&self, log: &mut RunLog) -> Result<Result<Score, Failure>> {
        let score = &self.task.score;
        if score.exam {
            return self.hold_exam(&self.setting.exam()?, log);
        }
        let mut last = LastLine::default();
        let policy = || self.reach().score(&score.command);
        let mut hear = |stream, bytes: &[u8]| {
            if stream == Stream::Out {
                last.push(bytes);
            }
        };
        let command = Command { command: &score.command, timeout_s: score.timeout_s, stdin: None };
        let ended = self.exec(command, policy, log, &mut hear)?;
        if let Some(failure) = failed("score", &ended) {
            return Ok(Err(failure));
        }
        let line = last.finish();
        let figures = match figures::read_line(&line, &self.task.metric.name) {
            Ok(figures) => figures,
            Err(crash) => return Ok(Err(crash.into())),
        };
        let path = self.place.dir.join("score.json");
        write_new(&path, format!("{line}\n").as_bytes())?;
        Ok(Ok(Score { value: figures.value, peak_bytes: ended.peak_bytes, memory_gb: figures.memory_gb }))
    }

    fn reach(&self) -> Reach<'_> {
        Reach { task: self.task, setting: self.setting, place: &self.place }
    }

    /// Takes a record that a run left in its own folder to those of the driver, where it is a plain file of a
    /// size that one can be.
    fn take_record(&self, name: &str) -> Result<()> {
        let (from, to) = (self.place.out().join(name), self.place.dir.join(name));
        let _ = fs::remove_file(&to); // of an earlier run here
        match fs::symlink_metadata(&from) {
            Ok(meta) if meta.is_file() && meta.len() <= LARGEST_RECORD => {
                fs::rename(&from, &to).doing("take the record", &from)
            }
            _ => Ok(()),
        }
    }

    fn exec(
        &self,
        step: Command<'_>,
        policy: impl FnOnce() -> Policy,
        log: &mut RunLog,
        out: &mut dyn FnMut(Stream, &[u8]),
    ) -> Result<Ended> {
        let command = self.place.expand(step.command, self.setting);
        let (dir, mut env) = (self.place.worktree.clone(), self.place.env(self.setting));
        if step.stdin.is_some() {
            env.insert(VOUCH_ENV.into(), "1".into());
        }
        let spec = Spec {
            // what a referee answers is nobody's log
            log_stdout: step.stdin.is_none(),
            stdin: step.stdin,
            confinement: confinement(self.task, policy)?,
            limits: limits(self.task, &self.place.dir),
            ..Spec::new(&command, dir, env, Duration::from_secs(step.timeout_s))
        };
        let ended = exec::run(spec, log, out, self.stop);
        self.place.open_up()?;
        Ok(ended)
    }
}
