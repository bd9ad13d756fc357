//! Calibration: what proposers predicted against what was measured.

use maud::{Markup, PreEscaped, html};
use std::fmt::Write as _;

use super::{Page, name};
use crate::figures::{NONE, count, percent};
use crate::night::{Status, Trial};
use crate::scale::Scale;

/// The latest predictions that are drawn.
const MOST: usize = 400;

impl Page<'_> {
    pub(super) fn calibration(&self) -> Markup {
        let f = &self.figures;
        html! {
            section #calibration {
                h2 { "Predicted against measured" }
                @if self.night.calibration.is_empty() { p.quiet { "No proposer has made a prediction that was measured." } } @else {
                    div.columns {
                        div.scroll tabindex="0" role="region" aria-label="calibration" {
                            table {
                                thead { tr { th { "proposer" } th.n { "predictions" } th.n { "right sign" } th.n { "mean error" } th.n { "too hopeful by" } } }
                                tbody {
                                    @for c in self.night.calibration.iter().take(30) {
                                        tr {
                                            td { (name(&c.proposer, 40)) }
                                            td.n { (count(c.predictions)) }
                                            td.n { (if c.predictions > 0 { percent(c.right as f64 / c.predictions as f64) } else { NONE.to_owned() }) }
                                            td.n { (f.value(Some(c.error))) }
                                            td.n { (f.delta(Some(c.too_hopeful))) }
                                        }
                                    }
                                }
                            }
                        }
                        (PreEscaped(self.scatter()))
                    }
                }
            }
        }
    }

    fn scatter(&self) -> String {
        let both = |t: &Trial| {
            Some((t.expected_delta.filter(|e| e.is_finite())?, t.delta.filter(|d| d.is_finite())?))
        };
        let mut points: Vec<(&Trial, f64, f64)> = self
            .night
            .trials
            .iter()
            .rev()
            .filter_map(|t| both(t).map(|(e, d)| (t, e, d)))
            .take(MOST)
            .collect();
        points.reverse();
        // as far as most reach in either direction: one that diverged must not flatten the others
        let mut sizes: Vec<f64> = points.iter().map(|p| p.1.abs().max(p.2.abs())).collect();
        sizes.sort_by(f64::total_cmp);
        let Some(&reach) = sizes.get(sizes.len().saturating_sub(1) * 19 / 20) else { return String::new() };
        let reach = if reach > 0.0 && reach < f64::MAX / 4.0 { reach * 1.1 } else { 1.0 };
        let x = Scale { from: -reach, to: reach, start: 62.0, end: 350.0 };
        let y = Scale { from: -reach, to: reach, start: 270.0, end: 14.0 };
        let mut out = String::from(
            r#"<svg class="drawing scatter" viewBox="0 0 360 310" role="group" aria-label="predicted against measured">"#,
        );
        let (left, right, low, high) = (x.start, x.end, y.start, y.end);
        for (v, word) in x.ticks(4) {
            let (at, up) = (x.at(v), y.at(v));
            let _ = write!(out, r#"<path class="grid" d="M{at:.1} {low}V{high}M{left} {up:.1}H{right}"/>"#);
            let _ = write!(out, r#"<text x="{at:.1}" y="{}" text-anchor="middle">{word}</text>"#, low + 16.0);
            let _ = write!(
                out,
                r#"<text x="{}" y="{:.1}" text-anchor="end">{word}</text>"#,
                left - 6.0,
                up + 4.0
            );
        }
        let _ = write!(out, r#"<path class="even" d="M{left} {low}L{right} {high}"/>"#);
        let _ = write!(
            out,
            r#"<text x="{}" y="304" text-anchor="middle">predicted Δ</text>"#,
            (left + right) / 2.0
        );
        let _ = write!(
            out,
            r#"<text transform="translate(12 {}) rotate(-90)" text-anchor="middle">measured Δ</text>"#,
            (low + high) / 2.0
        );
        for (t, expected, came) in points {
            let (class, r) = if t.status == Status::Keep { ("keep", 5.0) } else { ("discard", 3.0) };
            let off = if expected.abs() > reach || came.abs() > reach { ", off the scale" } else { "" };
            let _ = write!(
                out,
                r##"<a href="#t{n}" tabindex="-1"><circle class="{class}" cx="{:.1}" cy="{:.1}" r="{r}"><title>{n}: {} predicted, {} measured{off}</title></circle></a>"##,
                x.at(expected),
                y.at(came),
                self.figures.delta(Some(expected)),
                self.figures.delta(Some(came)),
                n = t.trial,
            );
        }
        out.push_str("</svg>");
        out
    }
}
