//! How much of a tag's nights was spent training.

use jiff::Timestamp;
use serde::Serialize;

/// Training time against the time that runs took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Duty {
    /// Seconds in which a candidate or a champion was trained.
    pub training_s: f64,
    /// Seconds from the start of each run to its end; of one that goes on, or was killed, to its last trial's end.
    pub wall_s: f64,
}

impl Duty {
    /// The share, from 0 to 1; `None` before anything was trained.
    pub fn share(self) -> Option<f64> {
        (self.training_s > 0.0 && self.wall_s > 0.0).then(|| (self.training_s / self.wall_s).min(1.0))
    }
}

/// Adds up runs as the journal tells of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Clock {
    /// Runs that are over.
    past: Duty,
    /// The one that goes on.
    run: Option<(Timestamp, Duty)>,
    paused: Option<Timestamp>,
}

impl Clock {
    pub(crate) fn start(&mut self, at: &str) {
        self.settle();
        self.run = at.parse().ok().map(|at| (at, Duty::default()));
    }

    /// A trial or a further run has trained so long; outside a run (`try`, `rerun`) that counts for nothing.
    pub(crate) fn trained(&mut self, seconds: f64) {
        if let Some((_, duty)) = &mut self.run {
            duty.training_s += seconds;
        }
    }

    /// Something ended then.
    pub(crate) fn reached(&mut self, at: &str) {
        if let (Some((began, duty)), Ok(at)) = (&mut self.run, at.parse::<Timestamp>()) {
            duty.wall_s = duty.wall_s.max(at.duration_since(*began).as_secs_f64());
        }
    }

    pub(crate) fn end(&mut self, at: &str) {
        self.resume(at);
        self.reached(at);
        self.settle();
    }

    pub(crate) fn pause(&mut self, at: &str) {
        self.reached(at);
        self.paused = at.parse().ok();
    }

    /// The time of the pause is taken out by moving the run's beginning.
    pub(crate) fn resume(&mut self, at: &str) {
        if let (Some(paused), Some((began, _)), Ok(at)) =
            (self.paused.take(), &mut self.run, at.parse::<Timestamp>())
        {
            *began = began.checked_add(at.duration_since(paused)).unwrap_or(*began);
        }
    }

    fn settle(&mut self) {
        self.paused = None;
        if let Some((_, duty)) = self.run.take() {
            self.past.training_s += duty.training_s;
            self.past.wall_s += duty.wall_s;
        }
    }

    pub(crate) fn duty(&self) -> Duty {
        let run = self.run.map_or(Duty::default(), |(_, duty)| duty);
        Duty { training_s: self.past.training_s + run.training_s, wall_s: self.past.wall_s + run.wall_s }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_and_what_lies_between_runs_do_not_count() {
        let at = |minute: u32| format!("2026-01-01T00:{minute:02}:00Z");
        let mut clock = Clock::default();
        clock.trained(1000.0);
        assert_eq!(clock.duty().share(), None);
        clock.start(&at(0));
        clock.trained(240.0);
        clock.reached(&at(5)); // and then it is killed
        clock.start(&at(20));
        clock.trained(300.0);
        clock.reached(&at(26));
        clock.pause(&at(30));
        clock.resume(&at(40));
        clock.trained(120.0);
        clock.end(&at(45));
        clock.reached(&at(59));
        assert_eq!(clock.duty(), Duty { training_s: 660.0, wall_s: 300.0 + 15.0 * 60.0 });
    }
}
