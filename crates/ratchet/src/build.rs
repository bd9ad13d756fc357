//! Builds a candidate in the worktree’s own target directory.
//!
//! The directory is never shared between worktrees: cargo would take another copy's artifact for fresh.
//! Dependencies come from the registry and not from the worktree, so theirs can be copied: a new tag's target
//! directory starts from what an earlier one has compiled, and candle is compiled once a machine. What the
//! user's own builds have compiled is of no use: cargo unifies features over the packages that one command
//! builds, and another command gets other artifacts.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use prepare::{cache::Cache, manifest::hex};
use sha2::{Digest, Sha256};

use crate::{
    commands::{Place, limits, most_memory_bytes},
    config::Task,
    error::{Doing, Result},
    exec::{self, End, Limits, Spec, StopFlag, first_line_of},
    plain_file,
    progress::{Observer, last_lines},
    reach::{Reach, confinement},
    runlog::{RunLog, plain},
    setting::Setting,
    verdict::Crash,
};

/// Compiled dependencies kept on this machine; older ones are removed.
const KEPT: usize = 2;
/// Larger target directories are not copied.
const LARGEST: u64 = 6 << 30;
/// Marks a target directory whose dependencies are stored.
const SETTLED: &str = ".dependencies-stored";
/// What a message handed back to a proposer may hold.
const MESSAGE_LINES: usize = 60;
const MESSAGE_BYTES: usize = 4000;

/// Why there is no binary.
#[derive(Debug)]
pub enum BuildFailure {
    /// The candidate does not compile; the message is for its proposer.
    Crash(Crash, String),
    /// A stop was asked for.
    Stopped,
}

/// Builds what stands in the worktree; `changed` are the candidate's paths. Copies the binaries on success.
pub fn build(
    task: &Task,
    setting: &Setting,
    place: &Place,
    changed: &[PathBuf],
    log_path: &Path,
    stop: &StopFlag,
    observer: &mut dyn Observer,
) -> Result<Result<(), BuildFailure>> {
    let Some(step) = &task.build else { return Ok(Ok(())) };
    let now = SystemTime::now();
    for path in changed {
        // cargo compares times: a file restored with an old time would not be compiled again
        let full = place.worktree.join(path);
        if let Ok(file) = fs::File::options().append(true).open(&full) {
            file.set_modified(now).doing("touch", &full)?;
        }
    }
    // once a tag: what it is compiled with cannot change within one
    let settled = place.target.join(SETTLED);
    let store = if settled.exists() { None } else { warm_store(task, setting, place) };
    if let Some(store) = store.as_deref().filter(|_| !place.target.exists()) {
        warm_up(store, &place.target);
    }
    fs::create_dir_all(&place.target).doing("create the target directory", &place.target)?;
    let mut log = RunLog::create(log_path);
    let mut env = place.env(setting);
    env.insert("CARGO_TARGET_DIR".into(), place.target.clone().into());
    env.insert("CARGO_TERM_COLOR".into(), "never".into());
    let limit = Duration::from_secs(step.timeout_s);
    let command = place.expand(&step.command, setting);
    let reach = Reach { task, setting, place };
    place.clear()?;
    let confinement = confinement(task, || reach.build(step))?; // opens the folders as they are now
    if confinement.is_some() {
        if !settled.exists() && step.is_cargo() {
            fetch(place, env.clone(), limit, &mut log, observer, stop);
        }
        env.insert("CARGO_NET_OFFLINE".into(), "true".into());
    }
    // a compiler needs what it needs; what a trial may hold says nothing of it
    let limits = Limits { memory_bytes: most_memory_bytes(), ..limits(task, &place.dir) };
    let spec = Spec { confinement, limits, ..Spec::new(&command, place.worktree.clone(), env, limit) };
    let ended = exec::run(spec, &mut log, &mut last_lines(observer), stop);
    log.close();
    match ended.end {
        End::Exited(0) => {}
        End::Stopped => return Ok(Err(BuildFailure::Stopped)),
        end => {
            let message = compiler_message(&plain_file::read(log_path).unwrap_or_default());
            let first = plain(message.lines().next().unwrap_or_default(), 160);
            let outcome = match end {
                End::TimedOut => "build_timed_out",
                End::OutOfMemory => "out_of_memory",
                End::OutOfDisk => "out_of_disk",
                _ => "build_failed",
            };
            let crash = Crash { outcome: outcome.to_owned(), reason: format!("the build {end}: {first}") };
            return Ok(Err(BuildFailure::Crash(crash, message)));
        }
    }
    place.copy_binaries(task)?;
    if let Some(store) = &store {
        keep_warm(&place.target, store); // costs the next tag some minutes at most, if it cannot be written
        fs::write(&settled, "").doing("write", &settled)?;
    }
    Ok(Ok(()))
}

/// Downloads the dependencies of a lock file, for builds that have no network. The lock file is the base's: a
/// tag builds its unedited baseline first. Where it fails, the build says what is missing.
fn fetch(
    place: &Place,
    env: BTreeMap<OsString, OsString>,
    limit: Duration,
    log: &mut RunLog,
    observer: &mut dyn Observer,
    stop: &StopFlag,
) {
    // dependencies of other systems need no download
    let host = first_line_of("rustc", &["--print", "host-tuple"]);
    let target = host.into_iter().flat_map(|host| ["--target".to_owned(), host]);
    let command: Vec<String> =
        ["cargo", "fetch", "--locked"].map(str::to_owned).into_iter().chain(target).collect();
    exec::run(Spec::new(&command, place.worktree.clone(), env, limit), log, &mut last_lines(observer), stop);
}

/// What a compiler's output says that is worth reading: from its first error on, else its end.
fn compiler_message(log: &[u8]) -> String {
    let text = String::from_utf8_lossy(log);
    let lines: Vec<&str> = text.lines().collect();
    let error = lines.iter().position(|line| line.starts_with("error") || line.contains(": error"));
    let from = error.unwrap_or(lines.len().saturating_sub(20));
    let mut message = String::new();
    let mut in_warning = false;
    for line in &lines[from..] {
        // blocks of warnings between the errors help nobody
        in_warning =
            if line.starts_with("warning") { true } else { in_warning && !line.starts_with("error") };
        if in_warning {
            continue;
        }
        if message.len() + line.len() > MESSAGE_BYTES || message.lines().count() >= MESSAGE_LINES {
            message.push_str("…\n");
            break;
        }
        message.push_str(line);
        message.push('\n');
    }
    message
}

/// Where compiled dependencies for this lock file, toolchain and feature set are kept. Cargo builds only.
fn warm_store(task: &Task, setting: &Setting, place: &Place) -> Option<PathBuf> {
    let step = task.build.as_ref().filter(|step| step.is_cargo())?;
    let mut hash = Sha256::new();
    hash.update(fs::read(place.worktree.join("Cargo.lock")).ok()?);
    hash.update(fs::read(place.worktree.join("Cargo.toml")).ok()?); // profiles, and features of dependencies
    hash.update(first_line_of("rustc", &["--version"])?);
    hash.update(place.expand(&step.command, setting).join("\0"));
    Some(Cache::root().ok()?.join("targets").join(&hex(&hash.finalize())[..24]))
}

/// Fills a fresh target directory from the store, if it is there.
fn warm_up(store: &Path, target: &Path) {
    if store.exists() && copy_tree(store, target).is_err() {
        let _ = fs::remove_dir_all(target); // half a copy is worse than none
    }
}

/// Stores a target directory for the next tag, whole or not at all; does nothing when one is there.
fn keep_warm(target: &Path, store: &Path) {
    let Some(folder) = store.parent() else { return };
    if store.exists() || size(target) > LARGEST || fs::create_dir_all(folder).is_err() {
        return;
    }
    let Ok(temporary) = tempfile::Builder::new().prefix(".new-").tempdir_in(folder) else { return };
    let part = temporary.path().join("target");
    if copy_tree(target, &part).is_err() || fs::rename(&part, store).is_err() {
        return;
    }
    let mut all: Vec<(SystemTime, PathBuf)> = fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    all.sort();
    for (_, old) in all.iter().rev().skip(KEPT) {
        let _ = fs::remove_dir_all(old);
    }
}

/// Folders of a target directory that no other can use.
const NOT_COPIED: [&str; 5] = ["incremental", "debug", "doc", "tmp", "package"];

/// Copies a target directory with its times, which cargo compares.
fn copy_tree(from: &Path, to: &Path) -> std::io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (kind, target) = (entry.file_type()?, to.join(entry.file_name()));
        if kind.is_dir() {
            if !NOT_COPIED.iter().any(|name| entry.file_name() == *name) {
                copy_tree(&entry.path(), &target)?;
            }
        } else if kind.is_file() && entry.file_name() != ".cargo-lock" {
            fs::copy(entry.path(), &target)?;
            fs::File::options().append(true).open(&target)?.set_modified(entry.metadata()?.modified()?)?;
        }
    }
    Ok(())
}

/// Bytes that [`copy_tree`] would copy.
fn size(folder: &Path) -> u64 {
    let Ok(entries) = fs::read_dir(folder) else { return 0 };
    let sizes = entries.flatten().map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && !NOT_COPIED.iter().any(|name| entry.file_name() == *name) => {
            size(&entry.path())
        }
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |meta| meta.len()),
        _ => 0,
    });
    sizes.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_compilers_message_is_its_errors_without_the_warnings() {
        let log = "   Compiling a v1\nwarning: unused\n --> a.rs\n\nerror[E0308]: mismatched types\n --> b.rs:1\n\n\
                   warning: other\n --> c.rs\n\nerror: aborting\n";
        assert_eq!(
            compiler_message(log.as_bytes()),
            "error[E0308]: mismatched types\n --> b.rs:1\n\nerror: aborting\n"
        );
        let make = "cc x.c\nx.c:3: error: expected ';'\nmake: *** failed\n";
        assert!(compiler_message(make.as_bytes()).starts_with("x.c:3"));
        let long = "error: x\n".repeat(10_000);
        assert!(compiler_message(long.as_bytes()).len() < 5000);
    }

    #[test]
    fn a_copied_target_keeps_its_times() {
        let dir = tempfile::tempdir().unwrap();
        let from = dir.path().join("from");
        fs::create_dir_all(from.join("release/incremental")).unwrap();
        fs::write(from.join("release/lib.rlib"), "x").unwrap();
        let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        fs::File::options()
            .append(true)
            .open(from.join("release/lib.rlib"))
            .unwrap()
            .set_modified(old)
            .unwrap();
        let to = dir.path().join("to");
        copy_tree(&from, &to).unwrap();
        assert_eq!(fs::metadata(to.join("release/lib.rlib")).unwrap().modified().unwrap(), old);
        assert!(!to.join("release/incremental").exists());
        assert_eq!(size(&from), 1);
    }
}
