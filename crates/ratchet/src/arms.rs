//! Several commits run with the same seeds, for a comparison. No run is a trial, and one that has ended is not
//! made again: the same command goes on where it was stopped.

use std::{
    collections::HashSet,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use serde::{Deserialize, Serialize};

use crate::{
    error::{Doing, Error, Result},
    git::Oid,
    measure::{Failure, Measured},
    plain_file,
    progress::{Observer, Progress},
    session::Session,
    state::write_atomic,
    verdict::Crash,
};

/// One side of a comparison.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arm<'a> {
    /// The name of its folder.
    pub(crate) name: &'a str,
    /// What is run.
    pub(crate) commit: Oid,
}

/// How one run of one side ended; `run.json` in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) value: Option<f64>,
    /// Why there is no value.
    pub(crate) reason: Option<String>,
    pub(crate) seconds: f64,
    pub(crate) tokens_m: Option<f64>,
}

impl Session {
    /// Runs every arm with each seed, seed by seed, so that what has ended is a comparison at any time. With
    /// `all_or_none` a run without a value ends it: then there is nothing to compare. `None` when a stop was
    /// asked for.
    pub(crate) fn run_arms(
        &mut self,
        arms: &[Arm<'_>],
        runs: u32,
        all_or_none: bool,
        dir: &Path,
        observer: &mut dyn Observer,
    ) -> Result<Option<()>> {
        let mut built = HashSet::new();
        for run in 0..runs {
            for arm in arms {
                let place = place_of(dir, arm.name, run);
                if read_run(&place)?.is_some() {
                    continue;
                }
                observer.tell(Progress::Note(&format!("run {} of {runs}: {}", run + 1, arm.name)));
                let bin = dir.join(arm.name).join("bin");
                // one from an earlier start may be half a copy
                if built.insert(arm.name) && bin.exists() {
                    fs::remove_dir_all(&bin).doing("clear", &bin)?;
                }
                let began = Instant::now();
                let ended = match self.run_commit(arm.commit, bin, place.clone(), run, observer)? {
                    Ok(Measured { value, tokens_m, .. }) => (Some(value.get()), None, tokens_m),
                    Err(Failure::Crash(Crash { reason, .. })) => {
                        observer.tell(Progress::Note(&format!("{} has no value: {reason}", arm.name)));
                        (None, Some(reason), None)
                    }
                    Err(Failure::Stopped) => return Ok(None),
                };
                let (value, reason, tokens_m) = ended;
                let run = Run { value, reason, seconds: began.elapsed().as_secs_f64(), tokens_m };
                let json = serde_json::to_vec(&run)
                    .map_err(|error| Error::internal("could not write a run").at(&place).because(error))?;
                write_atomic(&place.join("run.json"), &json)?;
                if value.is_none() && all_or_none {
                    return Ok(Some(()));
                }
            }
        }
        for arm in arms {
            let bin = dir.join(arm.name).join("bin");
            if bin.exists() {
                fs::remove_dir_all(&bin).doing("remove", &bin)?;
            }
        }
        Ok(Some(()))
    }
}

/// Where a run of an arm is.
pub(crate) fn place_of(dir: &Path, arm: &str, run: u32) -> PathBuf {
    dir.join(arm).join(run.to_string())
}

/// A run that has ended; `None` for one that has not.
pub(crate) fn read_run(place: &Path) -> Result<Option<Run>> {
    let path = place.join("run.json");
    match plain_file::read(&path) {
        Ok(json) => serde_json::from_slice(&json).map(Some).map_err(|error| {
            Error::internal("not what run.json should be").at(&path).because(error).hint("remove it")
        }),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).doing("read", &path),
    }
}

/// The folder of a plan below `all`: the latest one, if it was begun under the same plan and `goes_on` says that
/// there is more to do, else the next.
pub(crate) fn folder_of(all: &Path, plan: &[u8], goes_on: impl FnOnce(&Path) -> bool) -> Result<PathBuf> {
    let numbers = fs::read_dir(all).into_iter().flatten().flatten();
    let last = numbers.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok()).max();
    let folder = |number: u32| all.join(format!("{number:03}"));
    if let Some(last) = last.map(folder)
        && plain_file::read(&last.join("plan.json")).is_ok_and(|known| known == plan)
        && goes_on(&last)
    {
        return Ok(last);
    }
    let dir = folder(last.map_or(1, |last| last + 1));
    fs::create_dir_all(&dir).doing("create", &dir)?;
    write_atomic(&dir.join("plan.json"), plan)?;
    Ok(dir)
}
