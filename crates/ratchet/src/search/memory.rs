//! What mechanisms remember: the state that `record` has made of the trials, a file for each.
//!
//! It follows from the trials and the script, so the file only saves work. One that is damaged, or that another script
//! has left, is made again from the first trial on.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, Instant},
};

use mechanism::{Fault, Hook, Host, Limits, Trial};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::staff::child;
use crate::{
    error::{Doing, Result},
    git::remove,
    plain_file,
    state::{TagDir, write_atomic},
};

/// Time for one mechanism to record what it has not seen, before a trial.
const CATCHING_UP: Duration = Duration::from_secs(5);

/// The folder of a tag's states.
#[derive(Clone, Debug)]
pub(crate) struct Memory(PathBuf);

/// One mechanism's file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Kept {
    /// The script that made it, by its SHA-256.
    script: String,
    /// The last trial that it knows of.
    through: u64,
    state: Value,
    /// Calls of `record` that it took.
    calls: u64,
}

impl Memory {
    /// That of a tag; creates nothing.
    pub(crate) fn of(dir: &TagDir) -> Self {
        Self(dir.path().join("mechanisms"))
    }

    /// What a mechanism remembers; an empty object where it has nothing.
    pub(crate) fn state(&self, id: &str) -> Value {
        self.kept(id).ok().flatten().map_or_else(|| json!({}), |kept| kept.state)
    }

    /// Whether another script than this one has made what a mechanism remembers.
    pub(crate) fn is_of_another(&self, id: &str, script: &str) -> bool {
        self.kept(id).ok().flatten().is_some_and(|kept| kept.script != hash(script))
    }

    /// Has a mechanism begin anew.
    pub(crate) fn forget(&self, id: &str) -> Result<()> {
        match self.path(id).exists() {
            true => remove(&self.path(id)),
            false => Ok(()),
        }
    }

    /// Calls of `record` that its state took.
    pub(crate) fn calls(&self, id: &str) -> u64 {
        self.kept(id).ok().flatten().map_or(0, |kept| kept.calls)
    }

    /// Has a mechanism record the trials that it does not know yet, oldest first. Whether what was there could not be
    /// used; the outer error is one of this machine, the inner one the mechanism's.
    pub(crate) fn update(
        &self,
        id: &str,
        script: &str,
        trials: &[Trial],
    ) -> Result<std::result::Result<bool, Fault>> {
        let hash = hash(script);
        let found = self.kept(id);
        let lost = found.is_err();
        let earlier = found.ok().flatten().filter(|kept| kept.script == hash);
        let mut kept = earlier.unwrap_or(Kept { script: hash, through: 0, state: json!({}), calls: 0 });
        let new = &trials[trials.partition_point(|trial| trial.trial <= kept.through)..];
        if new.is_empty() {
            return Ok(Ok(lost));
        }
        let until = Instant::now() + CATCHING_UP;
        let recorded = Host::start(&child(), script, &Limits::default()).and_then(|mut host| {
            let records = host.hooks().contains(&Hook::Record);
            for trial in new {
                if records {
                    kept.state = host.record(&kept.state, trial)?;
                    kept.calls += 1;
                }
                kept.through = trial.trial;
                if Instant::now() >= until {
                    break; // the rest before the next trial
                }
            }
            Ok(())
        });
        if let Err(fault) = recorded {
            return Ok(Err(fault));
        }
        fs::create_dir_all(&self.0).doing("create", &self.0)?;
        let json = serde_json::to_vec(&kept).unwrap_or_default(); // it came out of JSON
        write_atomic(&self.path(id), &json)?;
        Ok(Ok(lost))
    }

    /// The file, if there is one; an error for one that cannot be used.
    fn kept(&self, id: &str) -> std::result::Result<Option<Kept>, String> {
        match plain_file::read(&self.path(id)) {
            Ok(bytes) => {
                let kept: Kept = serde_json::from_slice(&bytes).map_err(|error| error.to_string())?;
                if kept.state.is_object() { Ok(Some(kept)) } else { Err("its state is no object".to_owned()) }
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.0.join(format!("{id}.json"))
    }
}

fn hash(script: &str) -> String {
    prepare::manifest::hex(&Sha256::digest(script))
}
