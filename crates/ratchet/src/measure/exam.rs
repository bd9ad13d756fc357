//! What a contest adds to a run: a fit whose figures are vouched for, and an exam in two sittings.

use prepare::{
    bpb::Bpb,
    exam::{self, Exam},
    resit::{Agreement, Resit},
    vouch::Voucher,
};
use serde_json::json;

use super::{Bench, Command, Failure, Score, end::failed};
use crate::{
    error::{Error, Result},
    exec::Ended,
    figures::FitFigures,
    noise::Value,
    runlog::{RunLog, Stream},
    state::write_new,
    verdict::Crash,
};

/// What a fit's referee may say.
const RECORD_BYTES: usize = 64 << 10;

impl Bench<'_> {
    /// A fit whose figures are those that its referee vouches for; they replace what lies in `fit.json`.
    pub(super) fn vouched_fit(
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

    /// Two sittings: all rows, then some of them in a process that has not seen the others.
    pub(super) fn hold_exam(&self, exam: &Exam, log: &mut RunLog) -> Result<Result<Score, Failure>> {
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
    pub(super) fn sit(&self, exam: &Exam, log: &mut RunLog) -> Result<Result<(exam::Scored, u64), Failure>> {
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
}

fn rejected_model(rejected: &exam::Rejected) -> Failure {
    Failure::crash(&rejected.reason.to_string(), format!("the model was rejected: {rejected}"))
}
