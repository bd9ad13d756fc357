//! Progress on standard error: bars on a terminal, a line for each piece of work elsewhere.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};
use prepare::progress::{Progress, Task, Unit};

/// Standard error of this process. Nothing is coloured, so `NO_COLOR` is kept by itself.
pub(crate) struct Terminal {
    /// `None` where standard error is no terminal.
    bars: Option<MultiProgress>,
}

impl Terminal {
    pub(crate) fn new() -> Terminal {
        Terminal { bars: std::io::stderr().is_terminal().then(MultiProgress::new) }
    }
}

impl Progress for Terminal {
    fn start(&self, what: &str, total: Option<u64>, unit: Unit) -> Box<dyn Task> {
        let Some(bars) = &self.bars else {
            return Box::new(Line { what: what.to_owned(), start: Instant::now() });
        };
        let amount = match unit {
            Unit::Bytes => "{bytes}/{total_bytes} {bytes_per_sec} {eta}",
            Unit::Documents => "{pos}/{len} documents",
        };
        let template = format!("{{msg:28}} [{{bar:30}}] {amount}");
        let style = ProgressStyle::with_template(&template).expect("the templates are constants");
        let bar = bars.add(ProgressBar::new(total.unwrap_or(0)).with_style(style.progress_chars("=> ")));
        bar.set_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(200));
        Box::new(Bar(bar))
    }

    fn say(&self, line: &str) {
        match &self.bars {
            Some(bars) => bars.suspend(|| eprintln!("{line}")),
            None => eprintln!("{line}"),
        }
    }
}

struct Bar(ProgressBar);

impl Task for Bar {
    fn at(&self, done: u64, total: Option<u64>) {
        if let Some(total) = total {
            self.0.set_length(total);
        }
        self.0.set_position(done);
    }

    fn advance(&self, more: u64) {
        self.0.inc(more);
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.0.finish_and_clear();
    }
}

struct Line {
    what: String,
    start: Instant,
}

impl Task for Line {
    fn at(&self, _: u64, _: Option<u64>) {}
    fn advance(&self, _: u64) {}
}

impl Drop for Line {
    fn drop(&mut self) {
        eprintln!("{}: {:.1} s", self.what, self.start.elapsed().as_secs_f64());
    }
}
