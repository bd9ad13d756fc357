//! What stays of a trial: its records always, and a keep's model and binary.

use std::{
    fs::{self, File},
    io,
    path::Path,
};

use crate::{
    error::{Doing, Result},
    git::remove,
    journal::Status,
    session::Session,
    state::sync_folder,
};

/// What is removed after a trial, or for a keep moved to `models/`.
const WORKING: [&str; 3] = ["out", "bin", "tmp"];

/// Makes durable every plain file of a folder that `wanted` names, all below, and what each folder holds.
/// What a contestant has closed to us is left as it is.
fn sync_tree(dir: &Path, wanted: &dyn Fn(&str) -> bool) -> Result<()> {
    let closed = |error: &io::Error| error.kind() == io::ErrorKind::PermissionDenied;
    let entries = match fs::read_dir(dir) {
        Err(error) if closed(&error) => return Ok(()),
        entries => entries.doing("list", dir)?,
    };
    for entry in entries.flatten() {
        let path = entry.path();
        match entry.file_type() {
            _ if !wanted(&entry.file_name().to_string_lossy()) => {}
            Ok(kind) if kind.is_dir() => sync_tree(&path, &|_| true)?,
            Ok(kind) if kind.is_file() => match File::open(&path) {
                Err(error) if closed(&error) => {}
                file => file.and_then(|file| file.sync_all()).doing("sync", &path)?,
            },
            _ => {}
        }
    }
    sync_folder(dir)
}

impl Session {
    /// Makes a trial's records durable, and a keep's model: a row must not outlive what it rests on.
    pub(crate) fn settle(&self, trial: u64, status: Status) -> Result<()> {
        let dir = self.dir.trial(trial);
        sync_tree(&dir, &|name| status == Status::Keep && name != "tmp" || !WORKING.contains(&name))?;
        dir.ancestors().skip(1).take(2).try_for_each(sync_folder)
    }

    /// Puts away the last trial, should its driver have been ended before it could.
    pub(crate) fn finish_shelf(&self) -> Result<()> {
        self.history().trials().last().map_or(Ok(()), |last| self.put_away(last.trial, last.status))
    }

    /// A keep's `out` and `bin` go to `models/`, any other's are removed; records stay.
    pub(crate) fn put_away(&self, trial: u64, status: Status) -> Result<()> {
        let (dir, model) = (self.dir.trial(trial), self.dir.model(trial));
        for name in WORKING {
            let (from, to) = (dir.join(name), model.join(name));
            if fs::symlink_metadata(&from).is_err() {
                continue;
            }
            if status == Status::Keep && name != "tmp" {
                fs::create_dir_all(&model).doing("create", &model)?;
                if to.exists() {
                    remove(&to)?;
                }
                fs::rename(&from, &to).doing("move the model to", &to)?;
            } else {
                remove(&from)?;
            }
        }
        if status == Status::Keep && model.exists() {
            // where it went before where it came from: a power cut must not find it in neither
            model.ancestors().take(3).chain([dir.as_path()]).try_for_each(sync_folder)?;
            self.retire_models();
        }
        Ok(())
    }

    /// Removes the models of old keeps; the baseline's and the last ones stay.
    fn retire_models(&self) {
        const KEPT: usize = 32;
        let keeps = self.history().trials().iter().filter(|record| record.status == Status::Keep);
        let mut keeps: Vec<u64> = keeps.map(|record| record.trial).skip(1).collect();
        keeps.truncate(keeps.len().saturating_sub(KEPT));
        if let Some(old) = keeps.last() {
            // one more at each keep beyond the limit, so looking at the last is enough
            let _ = fs::remove_dir_all(self.dir.model(*old));
        }
    }
}
