//! What the end of a command means.

use std::path::Path;

use super::Failure;
use crate::{
    exec::{End, Ended},
    runlog::{plain, tail_of},
};

/// What a command's end means, unless it went well.
pub(super) fn failed(phase: &str, ended: &Ended) -> Option<Failure> {
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

/// Adds the log's last words to a crash, and tells a lack of memory and of libraries from other failures.
pub(super) fn explain(failure: Failure, log_path: &Path) -> Failure {
    let Failure::Crash(mut crash) = failure else { return failure };
    if !crash.outcome.ends_with("_failed") {
        return Failure::Crash(crash);
    }
    let lines = tail_of(log_path, 40);
    if let Some(line) = lines.iter().rfind(|line| is_of_loader(line)) {
        let phase = crash.outcome.trim_end_matches("_failed");
        crash.reason =
            format!("{phase} did not start: {}; `ratchet doctor` says what helps", plain(line, 160));
        crash.outcome = "library_missing".to_owned();
        return Failure::Crash(crash);
    }
    if lines.iter().any(|line| is_lack_of_memory(line)) {
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

/// Whether the dynamic loader ended a program before its `main`; the words are glibc's and musl's.
fn is_of_loader(line: &str) -> bool {
    line.contains("error while loading shared libraries: ")
        || line.contains("symbol lookup error: ")
        || line.starts_with("Error loading shared library ")
}

/// Whether an allocator says that there is no more: Rust's, candle's on a GPU, cuBLAS's, or any other.
fn is_lack_of_memory(line: &str) -> bool {
    let line = line.to_lowercase();
    ["out of memory", "out_of_memory", "memory allocation of", "cublas_status_alloc_failed"]
        .iter()
        .any(|words| line.contains(words))
}
