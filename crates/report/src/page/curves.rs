//! Loss curves of chosen trials: the baseline, the champion and those to be read; the script shows others.

use maud::{Markup, PreEscaped, html};
use std::fmt::Write as _;

use super::{Page, name};
use crate::figures::of;
use crate::night::{Status, Trial};
use crate::progress::path;
use crate::scale::Scale;

/// Curves that a page holds.
const HELD: usize = 40;
/// Curves that are shown at once; there are as many colours.
const SHOWN: usize = 8;
/// Least distance of two labels, units of the drawing.
const APART: f64 = 15.0;

impl Page<'_> {
    pub(super) fn curves(&self) -> Markup {
        let (held, first) = self.chosen();
        let left = self.night.trials.iter().filter(|t| is_drawable(t)).count() - held.len();
        html! {
            section #curves {
                h2 { "Loss curves" }
                @if held.is_empty() { p.quiet { "No trial has left one." } } @else {
                    (PreEscaped(losses(&held, first, "wide", 1000.0, 400.0)))
                    (PreEscaped(losses(&held, first, "narrow", 380.0, 320.0)))
                    fieldset.pick {
                        legend { "curves of trials, " (SHOWN) " at most" }
                        @for (i, t) in held.iter().enumerate() {
                            label class=[(i < first).then(|| format!("c{i}"))] {
                                input type="checkbox" value=(t.trial) checked[i < first] disabled;
                                svg.swatch viewBox="0 0 22 8" aria-hidden="true" { path d="M0 4H22" {} }
                                span { (t.trial) " " (name(&t.description, 60)) }
                            }
                        }
                    }
                    @if left > 0 { p.left { "This page holds " (held.len()) " curves: those above, then keeps, then the latest trials. " (of(left, "other trial")) " with a curve left out." } }
                }
            }
        }
    }

    /// Trials whose curves the page holds, and how many of them are shown at first.
    fn chosen(&self) -> (Vec<&Trial>, usize) {
        let night = self.night;
        let baseline = night.trials.iter().find(|t| t.outcome == "baseline").map(|t| t.trial);
        let read = night.to_read.iter().map(|r| r.trial);
        let keeps = night.trials.iter().rev().filter(|t| t.status == Status::Keep).map(|t| t.trial);
        let rest = night.trials.iter().rev().map(|t| t.trial);
        let mut held: Vec<&Trial> = Vec::new();
        let mut add = |trials: &mut dyn Iterator<Item = u64>| {
            for t in trials.filter_map(|n| self.trial(n)).filter(|t| is_drawable(t)) {
                if held.len() < HELD && held.iter().all(|h| h.trial != t.trial) {
                    held.push(t);
                }
            }
            held.len()
        };
        let first = add(&mut baseline.into_iter().chain(night.headline.champion).chain(read)).min(SHOWN);
        add(&mut keeps.chain(rest));
        (held, first)
    }
}

/// The drawing of all curves, the first ones shown.
fn losses(held: &[&Trial], first: usize, class: &str, width: f64, height: f64) -> String {
    // a point every six units
    let curves: Vec<_> = held.iter().map(|t| thinned(&t.curve, (width / 6.0) as usize)).collect();
    let (x, y) = scales(&curves, width, height);
    let mut out = format!(
        r#"<svg class="drawing losses {class}" viewBox="0 0 {width} {height}" data-top="{1}" data-bottom="{3}" role="img" aria-label="loss curves"><clipPath id="{class}"><path d="M{0} {1}H{2}V{3}H{0}z"/></clipPath>"#,
        x.start, y.end, x.end, y.start
    );
    axes(&mut out, &x, &y);
    let ends: Vec<f64> = curves.iter().map(|c| c.last().map_or(0.0, |p| y.at(p.1))).collect();
    let places = spread(&ends[..first], y.end, y.start);
    for (i, (t, curve)) in held.iter().zip(&curves).enumerate() {
        let shown = match i < first {
            true => format!(r#"class="curve c{i}""#),
            false => r#"class="curve" hidden="""#.to_owned(),
        };
        let path = path(curve.iter().map(|&(tokens, nats)| {
            // not `Scale::at`: what lies above is cut off, not pressed onto the edge
            let share = (nats - y.from) / (y.to - y.from);
            (x.at(tokens), (y.start + share * (y.end - y.start)).clamp(-9999.0, 9999.0))
        }));
        let (right, end) = (curve.last().map_or(x.end, |p| x.at(p.0)) + 6.0, ends[i]);
        let at = places.get(i).unwrap_or(&end) + 4.0;
        let n = t.trial;
        let _ = write!(
            out,
            r#"<g {shown} data-t="{n}" data-y="{end:.1}"><path clip-path="url(#{class})" d="{path}"/><text x="{right:.1}" y="{at:.1}">{n}</text></g>"#
        );
    }
    out.push_str("</svg>");
    out
}

/// Tokens, and nats a token as they are after the beginning: it falls from far above, and would flatten the rest.
fn scales(curves: &[Vec<(f64, f64)>], width: f64, height: f64) -> (Scale, Scale) {
    let most = curves.iter().flatten().map(|p| p.0).fold(0.0, f64::max);
    let late = curves.iter().flatten().filter(|p| p.0 > most * 0.06);
    let mut nats: Vec<f64> = late.map(|p| p.1).collect();
    nats.sort_by(f64::total_cmp);
    let (low, high) = (nats[0], nats[(nats.len() - 1) * 98 / 100]); // the one with most tokens is among them
    let span = if high > low { high - low } else { low.abs().max(1.0) * 0.01 };
    let x = Scale { from: 0.0, to: most, start: 46.0, end: width - 44.0 };
    let y = Scale { from: low - span * 0.05, to: high + span * 0.05, start: height - 44.0, end: 12.0 };
    (x, y)
}

fn axes(out: &mut String, x: &Scale, y: &Scale) {
    let (left, right, bottom) = (x.start, x.end, y.start);
    for (v, word) in y.ticks(6) {
        let at = y.at(v);
        let _ = write!(out, r#"<path class="grid" d="M{left} {at:.1}H{right}"/>"#);
        let _ =
            write!(out, r#"<text x="{}" y="{:.1}" text-anchor="end">{word}</text>"#, left - 8.0, at + 4.0);
    }
    let (unit, name) = match x.to {
        1e9.. => (1e9, "G"),
        1e6.. => (1e6, "M"),
        _ => (1.0, ""),
    };
    let units = Scale { to: x.to / unit, ..*x };
    for (v, word) in units.ticks(((right - left) / 75.0) as usize) {
        let (at, below) = (units.at(v), bottom + 18.0);
        let _ = write!(out, r#"<text x="{at:.1}" y="{below}" text-anchor="middle">{word}</text>"#);
    }
    let (middle, below) = ((left + right) / 2.0, bottom + 38.0);
    let _ = write!(out, r#"<text x="{middle}" y="{below}" text-anchor="middle">{name} tokens</text>"#);
    let turned = format!("translate(13 {}) rotate(-90)", (y.start + y.end) / 2.0);
    let _ = write!(out, r#"<text transform="{turned}" text-anchor="middle">nats a token</text>"#);
}

fn is_drawable(trial: &Trial) -> bool {
    trial.curve.iter().filter(|p| is_point(p)).count() > 1
}

/// Whether it can be drawn: a run that diverged ends in numbers beyond all bounds.
fn is_point(p: &(f64, f64)) -> bool {
    p.0 > 0.0 && p.0 < 1e30 && p.1.abs() < 1e6
}

/// At most `most` points of a curve, the last one among them.
fn thinned(curve: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    let points: Vec<_> = curve.iter().copied().filter(is_point).collect();
    let last = points.len().saturating_sub(1);
    let n = points.len().min(most);
    (0..n).map(|i| points[i * last / (n - 1).max(1)]).collect()
}

/// Heights near `wanted` and at least [`APART`] from one another.
fn spread(wanted: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut out = wanted.to_vec();
    let mut free = top;
    for &i in &order {
        out[i] = out[i].max(free);
        free = out[i] + APART;
    }
    let mut limit = bottom;
    for &i in order.iter().rev() {
        out[i] = out[i].min(limit);
        limit = out[i] - APART;
    }
    out
}
