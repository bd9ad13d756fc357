//! One run of a built candidate: preflight, then fit and score as processes of their own.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use prepare::{
    bpb::Bpb,
    exam::{self, Exam},
    profile::Profile,
    resit::{Agreement, Resit},
    vouch::{VOUCH_ENV, Voucher},
};
use sandbox::Policy;
use serde_json::json;

use crate::{
    commands::{Place, limits},
    config::Task,
    error::{Doing, Error, Result},
    exec::{self, End, Ended, Spec, StopFlag},
    figures::{self, FitFigures},
    noise::Value,
    progress::{Observer, Phase, Progress},
    reach::{Reach, confinement},
    runlog::{RunLog, Stream, plain, tail_of},
    setting::Setting,
    state::write_new,
    verdict::Crash,
};

/// From the process's start until its clock runs.
const STARTUP: Duration = Duration::from_secs(60);
/// After the clock, to store the model.
const SAVING: Duration = Duration::from_secs(30);
/// What a fit's referee may say.
const RECORD_BYTES: usize = 64 << 10;
/// The largest `fit.json` or `steps.csv`: a night's loss curve has some megabytes.
const LARGEST_RECORD: u64 = 64 << 20;
/// The longest last line of a `score` that is read.
const LAST_LINE: usize = 64 << 10;

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
        observer.tell(Progress::Phase { phase: Phase::Preflight, about: None });
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

    fn run_logged(&self, log: &mut RunLog, observer: &mut dyn Observer) -> Result<Result<Measured, Failure>> {
        self.place.clear()?;
        let mut peak_bytes = 0;
        let mut fit_figures = None;
        if let Some(step) = &self.task.fit {
            let budget = self.setting.budget();
            observer.tell(Progress::Phase { phase: Phase::Fit, about: budget });
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
        observer.tell(Progress::Phase { phase: Phase::Score, about: None });
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

    /// A fit whose figures are those that its referee vouches for; they replace what lies in `fit.json`.
    fn vouched_fit(
        &self,
        command: &[String],
        limit: u64,
        log: &mut RunLog,
    ) -> Result<(Ended, Result<Option<FitFigures>, Crash>)> {
        let voucher = Voucher::new()
            .map_err(|error| Error::internal("could not draw a nonce for the fit").because(error))?;
        let mut said = Vec::new();
        let mut hear = |stream, bytes: &[u8]| {
            if stream == Stream::Out {
                let room = RECORD_BYTES.saturating_sub(said.len());
                said.extend_from_slice(&bytes[..bytes.len().min(room)]);
            }
        };
        let policy = || self.reach().fit(command);
        let step = Command { command, timeout_s: limit, stdin: Some(voucher.input()) };
        let ended = self.exec(step, policy, log, &mut hear)?;
        let Some(record) = voucher.record(&said) else {
            let reason = "the fit ended without its referee's record".to_owned();
            return Ok((ended, Err(Crash { outcome: "claim_impossible".to_owned(), reason })));
        };
        write_new(&self.place.dir.join("fit.json"), record.as_bytes())?;
        Ok((ended, FitFigures::parse(&record).map(Some)))
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

    /// Two sittings: all rows, then some of them in a process that has not seen the others.
    fn hold_exam(&self, exam: &Exam, log: &mut RunLog) -> Result<Result<Score, Failure>> {
        let (scored, peak_bytes) = match self.sit(exam, log)? {
            Ok(sat) => sat,
            Err(failure) => return Ok(Err(failure)),
        };
        let value = match exam.bpb(&scored).map(Bpb::get) {
            Ok(value) => value,
            Err(error) => return Ok(Err(Failure::crash("not_finite", error.to_string()))),
        };
        let resit = Resit::of(exam, &scored)
            .map_err(|error| Error::internal("could not draw rows for a second sitting").because(error))?;
        let (second, _) = match self.sit(resit.exam(), log)? {
            Ok(sat) => sat,
            Err(failure) => return Ok(Err(failure)),
        };
        let agreement = match resit.agree(&scored, &second) {
            Ok(agreement) => agreement,
            Err(rejected) => return Ok(Err(rejected_model(&rejected))),
        };
        self.write_scores(exam, &scored, &agreement, value)?;
        match Value::new(value) {
            Ok(value) => Ok(Ok(Score { value, peak_bytes, memory_gb: None })),
            Err(error) => Ok(Err(Failure::crash("not_finite", error.to_string()))),
        }
    }

    /// One process's sitting: its figures, and the memory it took.
    fn sit(&self, exam: &Exam, log: &mut RunLog) -> Result<Result<(exam::Scored, u64), Failure>> {
        let mut input = Vec::new();
        exam.write(&mut input).map_err(|error| Error::internal("could not write the exam").because(error))?;
        let rows = exam.row_bytes().len();
        let room = (2 << 20) + 128 * rows; // answers, and some stray output; the exam itself refuses more
        let mut answers = Vec::new();
        let score = &self.task.score;
        let policy = || self.reach().score(&score.command);
        let mut hear = |stream, bytes: &[u8]| {
            if stream == Stream::Err {
                return;
            }
            let left = room - answers.len();
            answers.extend_from_slice(&bytes[..bytes.len().min(left)]);
        };
        let command = Command { command: &score.command, timeout_s: score.timeout_s, stdin: Some(input) };
        let ended = self.exec(command, policy, log, &mut hear)?;
        if let Some(failure) = failed("score", &ended) {
            return Ok(Err(failure));
        }
        let verdict = exam.read(answers.as_slice(), |event| {
            if let exam::Event::Stray(line) = event {
                log.push(Stream::Out, format!("{line}\n").as_bytes());
            }
        });
        Ok(match verdict {
            Ok(exam::Verdict::Scored(scored)) => Ok((scored, ended.peak_bytes)),
            Ok(exam::Verdict::Rejected(rejected)) => Err(rejected_model(&rejected)),
            Err(error @ (exam::ExamError::Impossible(_) | exam::ExamError::Twice)) => {
                Err(Failure::crash("claim_impossible", error.to_string()))
            }
            Err(error) => Err(Failure::crash("score_failed", error.to_string())),
        })
    }

    fn write_scores(
        &self,
        exam: &Exam,
        scored: &exam::Scored,
        agreement: &Agreement,
        value: f64,
    ) -> Result<()> {
        let path = self.place.dir.join("rows.f32");
        let rows: Vec<u8> = scored.nats.iter().flat_map(|nats| (*nats as f32).to_le_bytes()).collect();
        write_new(&path, &rows)?;
        let path = self.place.dir.join("score.json");
        let name = &self.task.metric.name;
        let json = json!({
            name: value,
            "rows": scored.nats.len(),
            "tokens": exam.tokens(),
            "bytes": exam.row_bytes().iter().sum::<u64>(),
            "seconds": scored.seconds,
            "batch_rows": scored.batch_rows,
            "probes": scored.probes,
            "resit": agreement,
        });
        write_new(&path, format!("{json:#}\n").as_bytes())
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

fn rejected_model(rejected: &exam::Rejected) -> Failure {
    Failure::crash(&rejected.reason.to_string(), format!("the model was rejected: {rejected}"))
}

/// By how much a fit may pass its budget.
fn grace(budget: Duration) -> Duration {
    (budget / 20).max(Duration::from_secs(2))
}

/// What a command's end means, unless it went well.
fn failed(phase: &str, ended: &Ended) -> Option<Failure> {
    let outcome = match &ended.end {
        End::Exited(0) => return None,
        End::Stopped => return Some(Failure::Stopped),
        End::NotStarted(error) => {
            return Some(Failure::crash(
                &format!("{phase}_failed"),
                format!("{phase} could not be started: {error}"),
            ));
        }
        End::TimedOut => format!("{phase}_timed_out"),
        End::OutOfMemory => "out_of_memory".to_owned(),
        End::OutOfDisk => "out_of_disk".to_owned(),
        // nobody else sends KILL to a trial but the kernel that has no memory left
        End::Killed(9) | End::Exited(137) => "out_of_memory".to_owned(), // 137: a shell saw its child killed
        End::Exited(124) => format!("{phase}_timed_out"), // the contest's own watchdog, and `timeout`
        End::Exited(_) | End::Killed(_) => format!("{phase}_failed"),
    };
    Some(Failure::crash(&outcome, format!("{phase} {}", ended.end)))
}

/// Adds the log's last words to a crash, and tells running out of memory from other failures.
fn explain(failure: Failure, log_path: &Path) -> Failure {
    let Failure::Crash(mut crash) = failure else { return failure };
    if !crash.outcome.ends_with("_failed") {
        return Failure::Crash(crash);
    }
    let lines = tail_of(log_path, 40);
    let memory = |line: &String| {
        let line = line.to_lowercase();
        line.contains("out of memory")
            || line.contains("out_of_memory")
            || line.contains("memory allocation of")
    };
    if lines.iter().any(memory) {
        crash.outcome = "out_of_memory".to_owned();
    }
    // a panic's message says more than the backtrace behind it
    let telling = |line: &&String| {
        line.contains("panicked at") || line.starts_with("error") || line.starts_with("Error")
    };
    let last = lines.iter().rev().find(|line| !line.is_empty());
    if let Some(line) = lines.iter().rfind(telling).or(last) {
        crash.reason = format!("{}: {}", crash.reason, plain(line, 160));
    }
    Failure::Crash(crash)
}

/// Refuses a fit that spent more than its budget, whatever it did meanwhile: a twentieth more time is worth more
/// than many a keep. What is forgiven is a last step that took longer than any before it.
fn in_time(fit: Option<&FitFigures>, budget: Duration) -> Result<(), String> {
    let forgiven = (budget / 100).max(Duration::from_secs(1));
    match fit.and_then(|fit| fit.training_seconds) {
        Some(seconds) if seconds > (budget + forgiven).as_secs_f64() => Err(format!(
            "fit trained {seconds:.1} s of a budget of {} s, {:.0} s more are forgiven: stop when trial.done()",
            budget.as_secs(),
            forgiven.as_secs_f64()
        )),
        _ => Ok(()),
    }
}

/// Holds `fit.json` against what the driver knows.
fn believable(
    fit: Option<&FitFigures>,
    profile: Profile,
    budget: Duration,
    seed: u64,
    wall: Duration,
) -> Result<(), String> {
    let Some(fit) = fit else { return Err("fit left no fit.json".into()) };
    if fit.profile.as_deref() != Some(profile.name()) {
        return Err(format!("fit.json is of profile {:?}, not {profile}", fit.profile));
    }
    if fit.seed != Some(seed) {
        return Err(format!("fit.json is of seed {:?}, not {seed}", fit.seed));
    }
    // a referee that knows of no other budget says none, and has kept to the profile's
    let kept_to = fit.budget_s.unwrap_or(profile.spec().budget.as_secs_f64());
    if kept_to != budget.as_secs_f64() {
        return Err(format!("fit.json is of a budget of {kept_to} s, not {} s", budget.as_secs_f64()));
    }
    let most = (budget + grace(budget)).min(wall).as_secs_f64();
    match fit.training_seconds {
        Some(seconds) if seconds > 0.0 && seconds <= most => {}
        other => {
            return Err(format!(
                "fit.json claims {other:?} seconds of training; at most {most:.1} were possible"
            ));
        }
    }
    match fit.final_loss {
        Some(loss) if loss.is_finite() => Ok(()),
        other => Err(format!("fit.json claims a final loss of {other:?}")),
    }
}

/// The last line that is not blank, of a stream of any length.
#[derive(Debug, Default)]
struct LastLine {
    current: Vec<u8>,
    last: Vec<u8>,
}

impl LastLine {
    fn push(&mut self, bytes: &[u8]) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let room = LAST_LINE.saturating_sub(self.current.len());
            self.current.extend_from_slice(&piece[..piece.len().min(room)]);
            if piece.ends_with(b"\n") {
                self.end_line();
            }
        }
    }

    fn end_line(&mut self) {
        if !self.current.trim_ascii().is_empty() {
            std::mem::swap(&mut self.last, &mut self.current);
        }
        self.current.clear();
    }

    fn finish(mut self) -> String {
        self.end_line();
        String::from_utf8_lossy(self.last.trim_ascii()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_survives_pieces_blank_lines_and_floods() {
        let mut last = LastLine::default();
        last.push(b"one\ntw");
        last.push(b"o\n\n  \n");
        assert_eq!(last.finish(), "two");
        let mut last = LastLine::default();
        last.push(&vec![b'x'; 1 << 20]);
        last.push(b"\n{}");
        assert_eq!(last.finish(), "{}");
    }

    #[test]
    fn claims_that_cannot_be_true_are_not_believed() {
        const BUDGET: Duration = Duration::from_secs(3); // of the profile smoke
        let wall = Duration::from_secs(5);
        let good = FitFigures {
            profile: Some("smoke".into()),
            seed: Some(7),
            training_seconds: Some(3.1),
            final_loss: Some(5.0),
            ..Default::default()
        };
        let believed = |fit: &FitFigures| believable(Some(fit), Profile::Smoke, BUDGET, 7, wall).is_ok();
        assert!(believed(&good));
        assert!(believable(None, Profile::Smoke, BUDGET, 7, wall).is_err());
        let with = |change: fn(&mut FitFigures)| {
            let mut fit = good.clone();
            change(&mut fit);
            fit
        };
        assert!(!believed(&with(|fit| fit.seed = Some(8))));
        assert!(!believed(&with(|fit| fit.profile = Some("laptop".into()))));
        assert!(!believed(&with(|fit| fit.training_seconds = Some(5.01))), "budget 3 s and grace 2 s");
        assert!(!believed(&with(|fit| fit.training_seconds = Some(f64::NAN))));
        assert!(!believed(&with(|fit| fit.final_loss = Some(f64::NAN))));
        assert!(!believed(&with(|fit| fit.final_loss = None)));
        assert!(in_time(Some(&good), BUDGET).is_ok());
        assert!(in_time(Some(&with(|fit| fit.training_seconds = Some(4.5))), BUDGET).is_err());
        let brief = Duration::from_secs(1);
        assert!(
            believable(Some(&good), Profile::Smoke, BUDGET, 7, brief).is_err(),
            "longer than the process lived"
        );
        let longer = Duration::from_secs(60);
        let long = Duration::from_secs(70);
        assert!(believable(Some(&good), Profile::Smoke, longer, 7, long).is_err(), "of another budget");
        let asked = FitFigures { budget_s: Some(60.0), training_seconds: Some(59.0), ..good };
        assert!(believable(Some(&asked), Profile::Smoke, longer, 7, long).is_ok());
    }
}
