//! What stands for trials: the line of the running best, and a mark for each of them.

use std::fmt::Write as _;

use super::{Drawing, escaped, path};
use crate::figures::measured;
use crate::night::{Status, Trial};
use crate::text;

/// Characters of a description in what appears beside the pointer.
const WORDS: usize = 70;
/// Trials beyond which marks are small.
const MANY: usize = 500;

impl Drawing<'_> {
    /// Corners of the running best, `offset` added to its value.
    pub(super) fn steps(&self, offset: f64) -> Vec<(f64, f64)> {
        let keeps = self.night.trials.iter().filter(|t| t.status == Status::Keep);
        let values = keeps.filter_map(|t| Some((self.x.at(t.trial as f64), measured(t)?)));
        let mut corners: Vec<(f64, f64)> = Vec::new();
        for (x, v) in values {
            let before = corners.last().map(|c| (x, c.1));
            corners.extend(before);
            corners.push((x, self.y.at(v + offset)));
        }
        let last = corners.last().map(|c| (self.x.at(self.night.trials.len() as f64), c.1));
        corners.extend(last);
        corners
    }

    /// The running best as steps, and what noise alone makes of it.
    pub(super) fn best(&self, out: &mut String) {
        if let Some(sigma) = self.night.headline.sigma.filter(|s| s.is_finite() && *s > 0.0) {
            let back = self.steps(-2.0 * sigma).into_iter().rev();
            let outline = self.steps(2.0 * sigma).into_iter().chain(back);
            let _ = write!(out, r#"<path class="band" d="{}Z"/>"#, path(outline));
        }
        let _ = write!(out, r#"<path class="best" d="{}"/>"#, path(self.steps(0.0)));
    }

    pub(super) fn discards(&self, out: &mut String) {
        let r = self.size();
        for trial in self.night.trials.iter().filter(|t| t.status == Status::Discard) {
            let Some((x, y)) = self.place(trial) else { continue };
            if measured(trial).is_some_and(|v| self.is_off(v)) {
                let points_up = y < (self.y.start + self.y.end) / 2.0;
                let tip = if points_up { "l4 7h-8z" } else { "l4-7h-8z" };
                self.mark(out, trial, "path", &format!(r#"class="off" d="M{x:.1} {y:.1}{tip}""#));
            } else {
                self.mark(
                    out,
                    trial,
                    "circle",
                    &format!(r#"class="discard" cx="{x:.1}" cy="{y:.1}" r="{r}""#),
                );
            }
        }
    }

    /// Whatever has no place among the values.
    pub(super) fn crashes(&self, out: &mut String) {
        let r = self.size();
        for trial in self.night.trials.iter().filter(|t| self.place(t).is_none()) {
            let (x, y, w) = (self.x.at(trial.trial as f64) - r, self.strip - r, 2.0 * r);
            let cross = format!(r#"class="crash" d="M{x:.1} {y:.1}l{w} {w}m-{w} 0l{w}-{w}""#);
            self.mark(out, trial, "path", &cross);
        }
    }

    pub(super) fn keeps(&self, out: &mut String) {
        for trial in self.night.trials.iter().filter(|t| t.status == Status::Keep) {
            let Some((x, y)) = self.place(trial) else { continue };
            if trial.outcome == "baseline" {
                let (x, y) = (x - 4.5, y - 4.5);
                self.mark(
                    out,
                    trial,
                    "rect",
                    &format!(r#"class="base" x="{x:.1}" y="{y:.1}" width="9" height="9""#),
                );
            } else {
                self.mark(out, trial, "circle", &format!(r#"class="keep" cx="{x:.1}" cy="{y:.1}" r="5.5""#));
            }
        }
    }

    /// Half the width of a small mark.
    fn size(&self) -> f64 {
        if self.night.trials.len() > MANY { 2.0 } else { 3.0 }
    }

    /// One mark; on a page it leads to its trial's part.
    fn mark(&self, out: &mut String, trial: &Trial, element: &str, attributes: &str) {
        let n = trial.trial;
        let value = measured(trial).map_or(String::new(), |v| {
            let off = if self.is_off(v) { ", off the scale" } else { "" };
            format!(", {}{off}", self.figures.value(Some(v)))
        });
        let what = text::line(&trial.description, WORDS);
        let title = escaped(&format!("{n}: {}{value}\n{what}", trial.status.word()));
        let mark = format!("<{element} {attributes}><title>{title}</title></{element}>");
        if self.canvas.alone {
            out.push_str(&mark);
            return;
        }
        // two thousand points are no stops on the way through a page; the table leads to all trials
        let stop = if trial.status == Status::Keep { "" } else { r#" tabindex="-1""# };
        let _ = write!(out, r##"<a href="#t{n}"{stop}>{mark}</a>"##);
    }
}
