//! The drawing of a night: trial numbers against the metric.
//!
//! What was not kept lies on the worse side of the running best, so the labels of keeps lie on the better side,
//! where there is nothing else.

mod labels;
mod marks;

use std::fmt::Write as _;

use crate::figures::{Figures, measured};
use crate::night::Trial;
use crate::scale::Scale;
use crate::{Night, palette, range, text};

/// Numbers beside the values' axis, about.
const TICKS: usize = 6;
/// Room below the values for the numbers of trials.
const BELOW: f64 = 40.0;

/// Where and how it is drawn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Canvas {
    pub(crate) width: f64,
    pub(crate) height: f64,
    /// A file of its own: with a title and its own style, and without links into the page.
    pub(crate) alone: bool,
    /// Longest label, characters.
    pub(crate) label: usize,
    /// Class on the root, for the page.
    pub(crate) class: &'static str,
}

impl Canvas {
    /// `progress.svg` and `progress.png`.
    pub(crate) const FILE: Self = Self { width: 1000.0, height: 520.0, alone: true, label: 40, class: "" };
    /// The page on a desktop.
    pub(crate) const WIDE: Self =
        Self { width: 1000.0, height: 440.0, alone: false, label: 40, class: " wide" };
    /// The page on a phone.
    pub(crate) const NARROW: Self =
        Self { width: 380.0, height: 380.0, alone: false, label: 22, class: " narrow" };
}

/// The drawing on one canvas.
pub(crate) struct Drawing<'a> {
    night: &'a Night,
    canvas: Canvas,
    figures: Figures,
    x: Scale,
    y: Scale,
    /// Where crashes are marked, beside the worse edge.
    strip: f64,
    /// Whether there are values to draw.
    has_values: bool,
}

impl<'a> Drawing<'a> {
    /// The whole drawing as SVG.
    pub(crate) fn svg(night: &'a Night, canvas: Canvas) -> String {
        let mut out = String::with_capacity(4096 + night.trials.len() * 160);
        let Canvas { width, height, class, .. } = canvas;
        let role = if canvas.alone { "img" } else { "group" }; // what is in an image is no link to a screen reader
        let name = escaped(&text::line(&format!("Progress of {} {}", night.task, night.tag), 120));
        let _ = write!(
            out,
            r#"<svg xmlns="http://www.w3.org/2000/svg" class="drawing{class}" viewBox="0 0 {width} {height}" role="{role}" aria-label="{name}""#
        );
        if canvas.alone {
            let _ = write!(
                out,
                r#" width="{width}" height="{height}"><style>{}</style>"#,
                palette::drawing_alone()
            );
        } else {
            out.push('>');
        }
        let _ = write!(out, r#"<rect class="paper" width="{width}" height="{height}" rx="8"/>"#);
        if canvas.alone {
            head(night, &mut out);
        }
        if night.trials.is_empty() {
            note(&mut out, width / 2.0, height / 2.0, "no trial has ended yet");
        } else {
            // labels need room on the better side
            let (below, above) = if night.lower_is_better { (0.36, 0.0) } else { (0.0, 0.36) };
            let values = range::of_values(night, below, above);
            Self::laid_out(night, canvas, values).all(&mut out);
        }
        out.push_str("</svg>");
        out
    }

    fn laid_out(night: &'a Night, canvas: Canvas, values: Option<(f64, f64)>) -> Self {
        let (from, to) = values.unwrap_or((0.0, 1.0));
        let (upper, lower) = (if canvas.alone { 84.0 } else { 44.0 }, canvas.height - BELOW);
        let (start, end, strip) = match night.lower_is_better {
            true => (lower, upper + 18.0, upper + 7.0),
            false => (lower - 18.0, upper, lower - 7.0),
        };
        let y = Scale { from, to, start, end };
        let longest = y.ticks(TICKS).iter().map(|t| t.1.chars().count()).max().unwrap_or(0);
        let last = night.trials.len() as f64;
        let (start, end) = (34.0 + 6.6 * longest as f64, canvas.width - 16.0);
        let x = Scale { from: 0.0, to: last * 1.015 + 0.5, start, end };
        Self { night, canvas, figures: Figures::of(night), x, y, strip, has_values: values.is_some() }
    }

    fn all(&self, out: &mut String) {
        self.legend(out);
        self.axes(out);
        self.briefs(out);
        if self.has_values {
            self.best(out);
            self.discards(out);
        }
        self.crashes(out);
        if self.has_values {
            self.keeps(out);
            labels::draw(self, out);
        } else {
            let (x, y) = ((self.x.start + self.x.end) / 2.0, (self.y.start + self.y.end) / 2.0);
            note(out, x, y, "no trial has a value to be drawn");
        }
    }

    fn place(&self, trial: &Trial) -> Option<(f64, f64)> {
        let value = measured(trial).filter(|_| self.has_values)?;
        Some((self.x.at(trial.trial as f64), self.y.at(value)))
    }

    fn is_off(&self, value: f64) -> bool {
        value < self.y.from || value > self.y.to
    }

    fn legend(&self, out: &mut String) {
        let y = if self.canvas.alone { 62.0 } else { 22.0 };
        let wide = self.canvas.width > 600.0;
        let mut x = if wide { 64.0 } else { 16.0 };
        let mut item = |mark: &str, word: &str| {
            let _ = write!(
                out,
                r#"<g transform="translate({x:.0} {y})">{mark}<text x="10" y="4">{word}</text></g>"#
            );
            x += if wide { 34.0 } else { 23.0 } + word.chars().count() as f64 * if wide { 6.0 } else { 5.6 };
        };
        item(r#"<rect class="base" x="-4" y="-4" width="8" height="8"/>"#, "baseline");
        item(r#"<circle class="keep" r="5"/>"#, "kept");
        item(r#"<circle class="discard" r="3"/>"#, "discarded");
        item(r#"<path class="crash" d="M-3-3 3 3M-3 3 3-3"/>"#, "crashed");
        item(r#"<path class="best" d="M-8 0H6"/>"#, if wide { "running best" } else { "best" });
        if self.night.headline.sigma.is_some() {
            item(r#"<rect class="band" x="-8" y="-5" width="14" height="10"/>"#, "± 2σ");
        }
        if wide {
            item("", if self.night.lower_is_better { "lower is better" } else { "higher is better" });
        }
    }

    fn axes(&self, out: &mut String) {
        let Canvas { width, height, .. } = self.canvas;
        let (left, right) = (self.x.start, self.x.end);
        let bottom = height - BELOW;
        if self.has_values {
            for (v, word) in self.y.ticks(TICKS) {
                let y = self.y.at(v);
                let _ = write!(out, r#"<path class="grid" d="M{left:.1} {y:.1}H{right:.1}"/>"#);
                let _ = write!(
                    out,
                    r#"<text x="{:.1}" y="{:.1}" text-anchor="end">{word}</text>"#,
                    left - 8.0,
                    y + 4.0
                );
            }
        }
        let _ = write!(out, r#"<path class="grid" d="M{left:.1} {bottom:.1}H{right:.1}"/>"#);
        for (v, word) in self.x.ticks(if width > 600.0 { 10 } else { 5 }) {
            if v.fract() == 0.0 && v <= self.night.trials.len() as f64 {
                let (x, y) = (self.x.at(v), bottom + 16.0);
                let _ = write!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{word}</text>"#);
            }
        }
        let metric = escaped(&text::line(&self.night.metric, 30));
        let middle = (left + right) / 2.0;
        let _ =
            write!(out, r#"<text x="{middle:.1}" y="{:.1}" text-anchor="middle">trial</text>"#, height - 8.0);
        let y = (self.y.start + self.y.end) / 2.0;
        let _ = write!(
            out,
            r#"<text transform="translate(13 {y:.1}) rotate(-90)" text-anchor="middle">{metric}</text>"#
        );
    }

    fn briefs(&self, out: &mut String) {
        let mut free = f64::NEG_INFINITY;
        for (i, brief) in self.night.briefs.iter().enumerate().skip(1) {
            let x = self.x.at(brief.from as f64 - 0.5);
            let (top, bottom) = (self.y.end.min(self.strip - 7.0), self.canvas.height - BELOW);
            let words = if self.night.lower_is_better { self.y.start - 6.0 } else { self.y.end + 10.0 };
            let _ = write!(out, r#"<path class="brief" d="M{x:.1} {top:.1}V{bottom:.1}"/>"#);
            if x > free {
                let _ = write!(
                    out,
                    r#"<text class="brieftext" x="{:.1}" y="{:.1}">brief {}</text>"#,
                    x + 4.0,
                    words,
                    i + 1
                );
                free = x + 50.0;
            }
        }
    }
}

fn note(out: &mut String, x: f64, y: f64, words: &str) {
    let _ = write!(out, r#"<text x="{x:.1}" y="{y:.1}" text-anchor="middle">{words}</text>"#);
}

fn head(night: &Night, out: &mut String) {
    let figures = Figures::of(night);
    let head = &night.headline;
    let title = text::line(&format!("{} · {}", night.task, night.tag), 90);
    let _ = write!(out, r#"<text class="title" x="20" y="30">{}</text>"#, escaped(&title));
    let gain = head.gain.map_or(String::new(), |g| format!(" · gain {}", figures.delta(Some(g))));
    let within = head.gain_within.map_or(String::new(), |w| format!(" ± {}", figures.value(Some(w))));
    let below = format!(
        "{} {}{gain}{within} · {} of {}",
        text::line(&night.metric, 30),
        figures.value(head.best),
        crate::figures::of(head.keeps, "keep"),
        crate::figures::of(head.trials, "trial"),
    );
    let _ = write!(out, r#"<text x="20" y="48">{}</text>"#, escaped(&below));
}

/// The `d` of a line through points.
pub(crate) fn path(points: impl IntoIterator<Item = (f64, f64)>) -> String {
    let mut d = String::new();
    for (x, y) in points {
        let _ = write!(d, "{}{x:.1} {y:.1}", if d.is_empty() { 'M' } else { 'L' });
    }
    d
}

/// Text as XML and HTML take it.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let _ = maud::Escaper::new(&mut out).write_str(text);
    out
}
