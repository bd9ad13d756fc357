//! `fit` and `score` for a person: both as processes of their own, then the summary block.

use std::fs;
use std::io::{self, BufReader, IsTerminal};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::time::Instant;

use crate::cache::Cache;
use crate::contest::ContestError;
use crate::exam::{Event, Exam, Verdict};
use crate::profile::{PROFILE_ENV, Profile};
use crate::rows::Split;
use crate::summary::{FIT_FILE, FitRecord, Summary};

/// Trains into `out`, scores on the val rows, prints the summary.
pub(crate) fn run(
    profile: Profile,
    steps: Option<u64>,
    out: &Path,
    begun: Instant,
) -> Result<(), ContestError> {
    // opened first: a missing val row is better said before the training than after it
    let cache = Cache::open(profile)?;
    let this = std::env::current_exe().map_err(|e| ContestError::file(Path::new("this program"), e))?;
    let child = || {
        let mut command = Command::new(&this);
        command.env(PROFILE_ENV, profile.name());
        command
    };
    let start_error = |e| ContestError::file(&this, e);

    let mut fit = child();
    fit.arg("fit").arg("--out").arg(out).stdin(Stdio::null());
    if let Some(steps) = steps {
        fit.arg("--steps").arg(steps.to_string());
    }
    succeeded("fit", fit.status().map_err(start_error)?)?;

    let exam = Exam::new(profile, cache.exam_rows(Split::Val)?, cache.token_bytes()?)
        .map_err(|e| ContestError::Exam(e.to_string()))?;
    let mut score = child();
    score.arg("score").arg("--model").arg(out).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut score = score.spawn().map_err(start_error)?;
    let (Some(stdin), Some(stdout)) = (score.stdin.take(), score.stdout.take()) else {
        return Err(ContestError::Exam("the scorer has no pipes".into()));
    };
    let verdict = exam.hold(stdin, BufReader::new(stdout), show());
    let status = score.wait().map_err(start_error)?;
    let scored = match verdict {
        Ok(Verdict::Scored(scored)) => scored,
        Ok(Verdict::Rejected(rejected)) => return Err(rejected.into()),
        Err(e) => {
            succeeded("score", status)?;
            return Err(ContestError::Exam(e.to_string()));
        }
    };
    let bpb = exam.bpb(&scored).map_err(|e| ContestError::Exam(e.to_string()))?;
    let path = out.join(FIT_FILE);
    let text = fs::read(&path).map_err(|e| ContestError::file(&path, e))?;
    let fit: FitRecord = serde_json::from_slice(&text).map_err(|e| ContestError::file(&path, e.into()))?;
    print!("{}", Summary { bpb, fit: &fit, total_seconds: begun.elapsed().as_secs_f64() });
    Ok(())
}

/// Shows progress where a person looks on; what is not the referee's goes to standard error as it is.
fn show() -> impl FnMut(Event<'_>) {
    let terminal = io::stderr().is_terminal();
    move |event| match event {
        Event::Progress { done, rows } if terminal => {
            let end = if done == rows { "\n" } else { "" };
            eprint!("\rscored {done} of {rows} rows\x1b[K{end}");
        }
        Event::Progress { .. } => {}
        Event::Stray(line) => eprintln!("{line}"),
    }
}

fn succeeded(what: &'static str, status: ExitStatus) -> Result<(), ContestError> {
    match status.code() {
        Some(0) => Ok(()),
        Some(code) => Err(ContestError::Child(what, u8::try_from(code).unwrap_or(1))),
        None => Err(ContestError::Exam(format!("`{what}` was killed: {status}"))),
    }
}
