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
    let said = last_words(&lines);
    if is_lack_of_memory(&said) {
        crash.outcome = "out_of_memory".to_owned();
    }
    if !said.is_empty() {
        crash.reason = format!("{}: {}", crash.reason, plain(&said, 160));
    }
    Failure::Crash(crash)
}

/// What a program says of its end: its last error with what belongs to it, else its last line.
fn last_words(lines: &[String]) -> String {
    let lines: Vec<&str> = lines.iter().map(String::as_str).filter(|line| !line.is_empty()).collect();
    let Some(at) = lines.iter().rposition(|line| is_error(line)) else {
        return lines.last().copied().unwrap_or_default().to_owned();
    };
    let (error, after) = (lines[at], &lines[at + 1..]);
    let more = match after.first() {
        // a panic's message is on the line behind
        Some(message) if error.contains("panicked at") => std::slice::from_ref(message),
        // anyhow's, to the backtrace if there is one
        Some(&"Caused by:") => after.split(|line| *line == "Stack backtrace:").next().unwrap_or_default(),
        _ => &[],
    };
    [&[error], more].concat().join(" ")
}

/// Whether a line says more than those behind it, a backtrace for example: Rust's and C's errors, an exception of
/// Python, an allocator's end.
fn is_error(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default();
    let exception = !name.contains(' ') && ["Error", "Exception"].iter().any(|end| name.ends_with(end));
    line.contains("panicked at")
        || ["error", "Error", "memory allocation of"].iter().any(|start| line.starts_with(start))
        || exception
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Outcome and reason of a score that left this log.
    fn explained(log: &str) -> (String, String) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run.log");
        std::fs::write(&path, log).unwrap();
        match explain(Failure::crash("score_failed", "score exited with 1"), &path) {
            Failure::Crash(crash) => (crash.outcome, crash.reason),
            _ => panic!("a crash stays one"),
        }
    }

    #[test]
    fn only_what_ended_a_program_decides_how_it_ended() {
        let handled = "CUDA out of memory at 128 rows, trying 64\nstep 1\n";
        for (log, outcome, reason) in [
            (
                "Traceback (most recent call last):\nValueError: 3 heads\n",
                "score_failed",
                "ValueError: 3 heads",
            ),
            ("Error: no data\n", "score_failed", "Error: no data"),
            (
                "thread 'main' panicked at src/main.rs:3:5:\nindex 7\nnote: run with\n",
                "score_failed",
                "index 7",
            ),
            ("last words\n", "score_failed", "last words"),
            (
                "torch.OutOfMemoryError: CUDA out of memory. Tried 2 GiB\nGPU 0\n",
                "out_of_memory",
                "Tried 2 GiB",
            ),
            ("error: a warm-up\nMemoryError: out of memory\n", "out_of_memory", "MemoryError"),
            ("memory allocation of 64 bytes failed\nAborted\n", "out_of_memory", "64 bytes"),
            (
                "thread 'main' panicked at src/main.rs:3:5:\ncalled `Result::unwrap()`: CUDA_ERROR_OUT_OF_MEMORY\n",
                "out_of_memory",
                "CUDA_ERROR_OUT_OF_MEMORY",
            ),
            (
                "Error: step 3\n\nCaused by:\n    0: forward\n    1: out of memory\n\nStack backtrace:\n   0: x\n",
                "out_of_memory",
                "Error: step 3 Caused by: 0: forward 1: out of memory",
            ),
        ] {
            for before in ["", handled] {
                let found = explained(&format!("{before}{log}"));
                assert_eq!(found.0, outcome, "{log}");
                assert!(found.1.contains(reason), "{log}: {}", found.1);
            }
        }
    }
}
