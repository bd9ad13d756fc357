//! Disk and memory: what a night will need, against what there is.

use std::{fs, os::unix::fs::MetadataExt, path::Path};

use super::{Check, pass, warn};
use crate::{
    config::{Step, Task},
    history::History,
    processes::machine_memory_bytes,
    state::{State, TagDir},
};

/// A night, seconds.
const NIGHT_S: f64 = 8.0 * 3600.0;
/// Models that are kept: the baseline's and the last 32 keeps'.
const MODELS: u64 = 33;
/// What stays of one trial of the bundled task on a CPU, bytes and files: measured.
const TRIAL: (u64, u64) = (56 << 10, 12);
/// Its model with the binary; measured, and on a GPU its parameters four times over.
const MODEL: u64 = 24 << 20;
const MODEL_GPU: u64 = 256 << 20;
/// A first build with what it shares with other tags: measured, and for a GPU four times that.
const BUILD: u64 = 1 << 30;
const BUILD_GPU: u64 = 4 << 30;
/// Seconds of a trial before one was made.
const TRIAL_S: f64 = 70.0;
/// Left over, so that the driver and the rest of the machine go on.
const SPARE: u64 = 1 << 30;
/// Memory that a trial takes before one was made: three times what the bundled task was measured to.
const TRIAL_MEMORY_GB: f64 = 0.5;

/// What a night will write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Need {
    /// For models, trials and builds together.
    bytes: u64,
    files: u64,
    /// Whether that rests on this tag's own trials.
    measured: bool,
}

/// What a file system has left; `None` for inodes where it does not count them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Free {
    bytes: u64,
    files: Option<u64>,
}

/// What trials of this task were seen to take, else what is known of the bundled task.
pub(super) fn need(task: Option<&Task>, gpu: bool, dir: Option<&TagDir>, history: &History) -> Need {
    let trials = history.trials();
    let models = dir.map(|dir| measure(&dir.path().join("models"))).unwrap_or_default();
    let there = models.folders;
    let model = match there {
        0 if gpu => MODEL_GPU,
        0 => MODEL,
        _ => models.bytes / there,
    };
    let folder = dir.map(|dir| measure(&dir.path().join("trials"))).unwrap_or_default();
    let (trial, files) = match folder.folders {
        0 => TRIAL,
        n => (folder.bytes / n, folder.files / n),
    };
    let builds = task.is_some_and(|task| task.build.as_ref().is_some_and(Step::is_cargo));
    let built = dir.is_some_and(|dir| dir.target().exists());
    let build = match (builds && !built, gpu) {
        (false, _) => 0,
        (true, false) => BUILD,
        (true, true) => BUILD_GPU,
    };
    let seconds = if trials.is_empty() { TRIAL_S } else { history.seconds_a_trial().max(1.0) };
    let count = (NIGHT_S / seconds) as u64;
    Need {
        bytes: model * MODELS.saturating_sub(there) + trial * count + build,
        files: files * count,
        measured: !trials.is_empty(),
    }
}

pub(super) fn disk(free: Result<Free, String>, need: Need) -> Check {
    let Need { bytes, files, measured } = need;
    let whence = if measured { "by this tag's trials" } else { "by those of the bundled task" };
    let needed = format!("a night needs about {:.1} GB, {whence}", gb(bytes));
    match free {
        Err(error) => warn("disk", format!("free space is unknown: {error}; {needed}"), "look with df"),
        Ok(free) if free.bytes < bytes + SPARE => warn(
            "disk",
            format!("{:.1} GB free; {needed}", gb(free.bytes)),
            "free some, or make .ratchet a link to a larger disk; what a full disk ends is not lost",
        ),
        Ok(Free { files: Some(left), .. }) if left < 2 * files => warn(
            "disk",
            format!("{left} more files fit; a night writes about {files}"),
            "remove some, or make .ratchet a link to another disk",
        ),
        Ok(free) => pass("disk", format!("{:.0} GB free; {needed}", gb(free.bytes))),
    }
}

pub(super) fn free(root: &Path) -> Result<Free, String> {
    let stat = rustix::fs::statvfs(root).map_err(|error| error.to_string())?;
    let files = (stat.f_files > 0).then_some(stat.f_favail); // some file systems make inodes as they need them
    Ok(Free { bytes: stat.f_bavail.saturating_mul(stat.f_frsize), files })
}

/// `total`, `available`: of the machine, bytes; `peak_gb`: the most that a trial of the tag took.
pub(super) fn memory(total: Option<u64>, available: Option<u64>, peak_gb: Option<f64>) -> Check {
    let Some(total) = total else {
        return pass("memory", "how much there is the system does not say");
    };
    let available = available.unwrap_or(total).min(total);
    let needed = peak_gb.unwrap_or(TRIAL_MEMORY_GB);
    let detail = format!(
        "{:.1} of {:.1} GB available; a trial {} {needed:.1} GB",
        gb(available),
        gb(total),
        if peak_gb.is_some() { "took up to" } else { "takes about" },
    );
    match gb(available) < needed * 1.2 {
        true => warn("memory", detail, "end what else is running, or use a smaller profile"),
        false => pass("memory", detail),
    }
}

pub(super) fn see_memory(history: &History) -> Check {
    let info = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let peak = history.trials().iter().map(|record| record.memory_gb).fold(0.0, f64::max);
    memory(machine_memory_bytes(), available(&info), (peak > 0.0).then_some(peak))
}

fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

fn gb(bytes: u64) -> f64 {
    bytes as f64 / 1e9
}

/// What lies below a folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Measured {
    /// Right below it.
    folders: u64,
    files: u64,
    bytes: u64,
}

/// At most so many entries are looked at: an estimate needs no more.
const MOST_ENTRIES: u64 = 20_000;

fn measure(folder: &Path) -> Measured {
    let mut measured = Measured::default();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if measured.files > MOST_ENTRIES {
            break; // of whole folders only, so that their mean is right
        }
        measured.folders += 1;
        let mut queue = vec![entry.path()];
        while let Some(path) = queue.pop() {
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            measured.files += 1;
            measured.bytes += meta.blocks() * 512;
            if meta.is_dir() {
                queue.extend(fs::read_dir(&path).into_iter().flatten().flatten().map(|entry| entry.path()));
            }
        }
    }
    measured
}

/// The file system that holds `.ratchet`, where it is one that a power cut or a network can take away.
pub(super) fn fleeting(state: &State) -> Option<&'static str> {
    let dir = state.dir();
    let place = if dir.exists() { dir } else { state.root().to_path_buf() };
    // include/uapi/linux/magic.h
    #[cfg(target_os = "linux")]
    return match rustix::fs::statfs(&place).ok()?.f_type as u64 {
        0x0102_1994 | 0x8584_58f6 => Some("in memory"),
        0x6969 => Some("on a network file system"),
        _ => None,
    };
    #[cfg(not(target_os = "linux"))]
    return place.exists().then_some("").filter(|_| false);
}

#[cfg(test)]
mod tests {
    use super::super::Health;
    use super::*;

    const NEED: Need = Need { bytes: 3 << 30, files: 1000, measured: true };

    #[test]
    fn too_little_room_for_a_night_is_said_before_it() {
        let disk = |gib: u64, files| disk(Ok(Free { bytes: gib << 30, files }), NEED).state;
        assert_eq!(disk(100, Some(1_000_000)), Health::Pass);
        assert_eq!(disk(100, None), Health::Pass, "no inodes to run out of");
        assert_eq!(disk(3, Some(1_000_000)), Health::Warn);
        assert_eq!(disk(100, Some(1_500)), Health::Warn);
        assert_eq!(super::disk(Err("gone".to_owned()), NEED).state, Health::Warn);
    }

    #[test]
    fn what_a_tag_has_measured_goes_over_what_is_known_of_the_bundled_task() {
        let dir = tempfile::tempdir().unwrap();
        let tag = State::new(dir.path()).tag(&crate::state::Tag::parse("bar").unwrap());
        let unknown = need(None, false, Some(&tag), &History::default());
        assert_eq!(unknown.bytes, MODEL * MODELS + TRIAL.0 * (NIGHT_S / TRIAL_S) as u64);
        for trial in 1..=3 {
            fs::create_dir_all(tag.model(trial)).unwrap();
            fs::write(tag.model(trial).join("model"), vec![1; 1 << 20]).unwrap();
        }
        let known = need(None, false, Some(&tag), &History::default());
        assert!((30 << 20..32 << 20).contains(&(known.bytes - TRIAL.0 * 411)), "30 more of 1 MiB: {known:?}");
        assert!(
            need(None, true, None, &History::default()).bytes > unknown.bytes,
            "a GPU's models are larger"
        );
    }

    #[test]
    fn memory_that_a_trial_took_has_to_be_there() {
        let gib = |n: u64| Some(n << 30);
        assert_eq!(memory(gib(16), gib(12), Some(4.0)).state, Health::Pass);
        assert_eq!(memory(gib(16), gib(4), Some(4.0)).state, Health::Warn);
        assert_eq!(memory(gib(16), None, None).state, Health::Pass);
        assert_eq!(memory(None, None, None).state, Health::Pass);
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
    }
}
