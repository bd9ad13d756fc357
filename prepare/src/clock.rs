//! The budget clock and the watchdog that ends a process past it.

use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Exit code of a process that the watchdog ended (the one `timeout(1)` uses).
pub const OVERRUN_EXIT_CODE: i32 = 124;

/// What a contestant may spend.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Budget {
    /// Wall-clock time.
    Time(Duration),
    /// A fixed number of steps; for tests and exact repeats, never for a result that counts.
    Steps(u64),
}

impl Budget {
    /// When the watchdog bites: the budget and the larger of 2 s and 5 % of it. A step budget has no time.
    pub fn deadline(self) -> Option<Duration> {
        match self {
            Budget::Time(budget) => Some(budget + (budget / 20).max(Duration::from_secs(2))),
            Budget::Steps(_) => None,
        }
    }
}

/// Runs from its construction, before the first line of contestant code, and never pauses.
pub struct Clock {
    budget: Budget,
    elapsed: Box<dyn Fn() -> Duration + Send>,
    asked_at: Option<Duration>,
    longest_step: Duration,
    begun: u64,
    finished: bool,
}

impl Clock {
    /// Starts now, on the monotonic clock.
    pub fn start(budget: Budget) -> Clock {
        let start = Instant::now();
        Clock::with_time(budget, move || start.elapsed())
    }

    /// A clock that reads `elapsed`, the time since its start; it must never go backwards.
    pub fn with_time(budget: Budget, elapsed: impl Fn() -> Duration + Send + 'static) -> Clock {
        Clock {
            budget,
            elapsed: Box::new(elapsed),
            asked_at: None,
            longest_step: Duration::ZERO,
            begun: 0,
            finished: false,
        }
    }

    /// What this clock was started with.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        (self.elapsed)()
    }

    /// Whether to stop; asked once a step, before the step. The time between two questions is a step.
    ///
    /// A time budget is done once what remains is shorter than the longest step so far, since such a step
    /// would end past the budget. The first step has no forerunner: if it is longer than the budget and its
    /// grace, the watchdog ends it. A step budget is done after N questions answered with `false`.
    pub fn done(&mut self) -> bool {
        match self.budget {
            Budget::Time(budget) => {
                let now = self.elapsed();
                if let Some(before) = self.asked_at.replace(now) {
                    self.longest_step = self.longest_step.max(now.saturating_sub(before));
                }
                let remaining = budget.saturating_sub(now);
                self.finished = remaining.is_zero() || remaining < self.longest_step;
            }
            Budget::Steps(steps) => {
                self.finished = self.begun >= steps;
            }
        }
        if !self.finished {
            self.begun += 1;
        }
        self.finished
    }

    /// The share of the budget that is spent, 0..=1: elapsed time over budget, or whole steps over N.
    pub fn progress(&self) -> f64 {
        match self.budget {
            Budget::Time(budget) if budget.is_zero() => 1.0,
            Budget::Time(budget) => (self.elapsed().as_secs_f64() / budget.as_secs_f64()).min(1.0),
            Budget::Steps(_) if self.finished => 1.0,
            Budget::Steps(steps) => self.begun.saturating_sub(1) as f64 / steps as f64,
        }
    }
}

/// A thread that ends the process with [`OVERRUN_EXIT_CODE`] unless it is dropped in time.
pub struct Watchdog {
    disarmed: Arc<(Mutex<bool>, Condvar)>,
}

impl Watchdog {
    /// Arms it: the process ends when `limit` has passed.
    pub fn arm(limit: Duration) -> io::Result<Watchdog> {
        let disarmed = Arc::new((Mutex::new(false), Condvar::new()));
        let watched = Arc::clone(&disarmed);
        std::thread::Builder::new().name("watchdog".into()).spawn(move || {
            let (flag, changed) = &*watched;
            let guard = flag.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = changed.wait_timeout_while(guard, limit, |disarmed| !*disarmed);
            if waited.unwrap_or_else(PoisonError::into_inner).1.timed_out() {
                end(limit);
            }
        })?;
        Ok(Watchdog { disarmed })
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let (flag, changed) = &*self.disarmed;
        *flag.lock().unwrap_or_else(PoisonError::into_inner) = true;
        changed.notify_all();
    }
}

/// Says why and exits. Written past `std::io::stderr`, whose lock contestant code may hold for ever.
fn end(limit: Duration) -> ! {
    let message = format!(
        "\nfit ran past its budget: ended {:.1} s after the start; make steps shorter or ask trial.done() before each\n",
        limit.as_secs_f64()
    );
    // A lost message changes nothing: the exit code says it too.
    let _ = rustix::io::write(rustix::stdio::stderr(), message.as_bytes());
    std::process::exit(OVERRUN_EXIT_CODE)
}
