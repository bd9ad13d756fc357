//! `ratchet rerun N`: repeats a trial as it was, same commit, same seed, and compares.

use std::time::Instant;

use crate::{
    error::{Error, Result},
    journal::Event,
    measure::Failure,
    progress::Observer,
    session::Session,
    trial::no_such_trial,
};

/// Both values.
#[derive(Clone, Debug, PartialEq)]
pub struct Rerun {
    /// The trial.
    pub trial: u64,
    /// What its first run gave; `None` for a crash.
    pub then: Option<f64>,
    /// What it gives now; the reason for a crash.
    pub now: Result<f64, String>,
    /// How long this run took.
    pub seconds: f64,
}

impl Session {
    /// Repeats trial `n`; its row and the champion stay as they are. `None` when a stop was asked for.
    pub fn rerun(&mut self, n: u64, observer: &mut dyn Observer) -> Result<Option<Rerun>> {
        let record = self.history().trial(n).cloned().ok_or_else(|| no_such_trial(n, &self.tag))?;
        if record.commit.is_none() {
            return Err(Error::usage(format!("trial {n} has no commit to repeat")));
        }
        self.ensure_data(observer)?;
        let folder = self.dir.trial(n).join("reruns");
        let count = std::fs::read_dir(&folder).map_or(0, |entries| entries.count());
        let began = Instant::now();
        let ran = self.run_again(&record, folder.join(format!("{:03}", count + 1)), 0, observer)?;
        let seconds = began.elapsed().as_secs_f64();
        self.restore()?;
        let now = match ran {
            Ok(measured) => Ok(measured.value.get()),
            Err(Failure::Crash(crash)) => Err(crash.reason),
            Err(Failure::Stopped) => return Ok(None),
        };
        self.journal.append(Event::Replicated {
            trial: n,
            run: 0,
            value: now.as_ref().ok().copied(),
            seconds,
            counts: false,
            tokens_m: None,
            fit_s: 0.0, // of no night
        })?;
        Ok(Some(Rerun { trial: n, then: record.values.first().copied(), now, seconds }))
    }
}
