//! What moves at the foot of the terminal while the driver works: the phase under way, and the night.
//!
//! Both go by the clock, so that nobody has to push them.

use std::{fmt::Write, time::Duration};

use ::watch::span;
use indicatif::{MultiProgress, ProgressBar, ProgressState, ProgressStyle};

/// Characters of a gauge.
const WIDTH: usize = 24;
/// How often they are drawn.
const TICK: Duration = Duration::from_millis(200);

/// The moving lines.
pub(crate) struct Bars {
    all: MultiProgress,
    phase: ProgressBar,
    night: Option<ProgressBar>,
}

impl Bars {
    pub(crate) fn new() -> Self {
        let all = MultiProgress::new();
        let phase = all.add(ProgressBar::new_spinner());
        Self { all, phase, night: None }
    }

    /// Something begins; `about` is how long it takes, where that is known.
    pub(crate) fn begin(&self, what: String, about: Option<Duration>) {
        let gauge = move |state: &ProgressState, out: &mut dyn Write| {
            let Some(about) = about else { return };
            let share = state.elapsed().as_secs_f64() / about.as_secs_f64().max(1e-3);
            let _ = write!(out, "{} of {}", gauge(share), span(about.as_secs_f64())); // into a string: cannot fail
        };
        self.phase
            .set_style(style("{spinner} {prefix} {elapsed} {gauge} {wide_msg}").with_key("gauge", gauge));
        self.phase.reset(); // also after it was cleared, and its clock with it
        self.phase.set_prefix(what);
        self.phase.set_message("");
        self.phase.enable_steady_tick(TICK);
    }

    /// The latest of what it prints.
    pub(crate) fn say(&self, text: &str) {
        self.phase.set_message(text.to_owned());
    }

    /// It is over.
    pub(crate) fn end(&self) {
        self.phase.finish_and_clear();
    }

    /// A night begins that ends after so many trials, or after so long.
    pub(crate) fn plan(&mut self, trials: Option<u64>, time: Option<Duration>) {
        let progress = move |state: &ProgressState, out: &mut dyn Write| {
            let (done, elapsed) = (state.pos(), state.elapsed());
            let by_trials = trials.map(|all| done as f64 / all.max(1) as f64);
            let by_clock = time.map(|all| elapsed.as_secs_f64() / all.as_secs_f64().max(1e-3));
            let share = by_trials.into_iter().chain(by_clock).reduce(f64::max);
            // what trials have taken so far tells how long the rest takes
            let rest = trials
                .filter(|_| done > 0)
                .map(|all| elapsed.mul_f64(all.saturating_sub(done) as f64 / done as f64));
            let left = time.map(|all| all.saturating_sub(elapsed)).into_iter().chain(rest).min();
            let of = trials.map_or(String::new(), |all| format!(" of {all}"));
            let gauge = share.map_or(String::new(), |share| gauge(share) + "  ");
            let left =
                left.map_or(String::new(), |left| format!(", about {} left", span(left.as_secs_f64())));
            let _ = write!(out, "{gauge}{done}{of} trials, {} so far{left}", span(elapsed.as_secs_f64()));
        };
        let night = self.all.add(ProgressBar::no_length());
        night.set_style(style("  night {progress}").with_key("progress", progress));
        night.enable_steady_tick(TICK);
        self.night = Some(night);
    }

    /// A trial of the night is over.
    pub(crate) fn count(&self) {
        self.night.iter().for_each(|night| night.inc(1));
    }

    /// Takes both away.
    pub(crate) fn clear(&mut self) {
        self.phase.finish_and_clear();
        self.night.take().iter().for_each(ProgressBar::finish_and_clear);
    }

    /// Prints above them.
    pub(crate) fn print(&self, text: &str) {
        self.all.suspend(|| eprintln!("{text}"));
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_spinner())
}

fn gauge(share: f64) -> String {
    let full = (share.clamp(0.0, 1.0) * WIDTH as f64).round() as usize;
    format!("{}{}", "█".repeat(full), "░".repeat(WIDTH - full))
}
