//! What stays of a trial: its records always, and a keep's model and binary.

use std::fs;

use crate::{
    error::{Doing, Result},
    git::remove,
    journal::Status,
    session::Session,
};

impl Session {
    /// A keep's `out` and `bin` go to `models/`, any other's are removed; records stay.
    pub(crate) fn put_away(&self, trial: u64, status: Status) -> Result<()> {
        let (dir, model) = (self.dir.trial(trial), self.dir.model(trial));
        for name in ["out", "bin", "tmp"] {
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
