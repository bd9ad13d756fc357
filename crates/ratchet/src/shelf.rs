//! What stays of a trial: records always, a keep's model, and nothing large of any other.

use std::{ffi::OsStr, fs, path::Path};

use crate::{
    error::{Doing, Result},
    journal::Status,
    session::Session,
};

/// Removes what is too large to keep for every trial: checkpoints and binaries.
pub(crate) fn remove_large(dir: &Path) -> Result<()> {
    const LARGE: u64 = 1 << 20;
    for entry in fs::read_dir(dir).doing("list", dir)?.flatten() {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => remove_large(&path)?,
            Ok(kind)
                if kind.is_file()
                    && !is_record(&entry.file_name())
                    && entry.metadata().is_ok_and(|meta| meta.len() > LARGE) =>
            {
                fs::remove_file(&path).doing("remove", &path)?;
            }
            _ => {}
        }
    }
    Ok(())
}

/// Files of a trial's folder that are records and stay there.
const RECORDS: [&str; 14] = [
    "proposal.json",
    "diff.patch",
    "build.log",
    "preflight.log",
    "preflight.json",
    "run.log",
    "fit.json",
    "steps.csv",
    "score.json",
    "rows.f32",
    "verdict.json",
    "env.json",
    "runs",
    "reruns",
];

/// Whether a file of a trial's folder is a record; of a repair there are a second prompt and answer.
fn is_record(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    RECORDS.contains(&&*name) || name.starts_with("prompt") || name.starts_with("answer")
}

impl Session {
    /// A keep's model goes to `models/`, any other's large files are removed; records stay.
    pub(crate) fn put_away(&self, trial: u64, status: Status) -> Result<()> {
        let dir = self.dir.trial(trial);
        let model = self.dir.model(trial);
        for entry in fs::read_dir(&dir).doing("list", &dir)?.flatten() {
            let name = entry.file_name();
            if is_record(&name) {
                continue;
            }
            if status != Status::Keep && name == "bin" {
                fs::remove_dir_all(entry.path()).doing("remove", &entry.path())?;
            } else if status == Status::Keep {
                fs::create_dir_all(&model).doing("create", &model)?;
                let to = model.join(&name);
                if to.is_dir() {
                    fs::remove_dir_all(&to).doing("clear", &to)?;
                }
                fs::rename(entry.path(), &to).doing("move the model to", &to)?;
            }
        }
        remove_large(&dir)?;
        if status == Status::Keep {
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
