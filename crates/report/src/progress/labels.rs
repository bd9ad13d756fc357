//! Labels of keeps, slantwise, each where it covers nothing.

use std::f64::consts::FRAC_PI_6;
use std::fmt::Write as _;

use super::{Drawing, escaped};
use crate::figures::measured;
use crate::night::{Status, Trial};
use crate::text;

/// Half the height of a line of text, units of the drawing.
const HALF: f64 = 6.0;
/// Width of a character, on average.
const CHARACTER: f64 = 5.9;
/// From the middle of a mark to its label.
const GAP: f64 = 12.0;
/// Around its own mark a label may come near to other things.
const OWN: f64 = 26.0;
/// Labels of one drawing; more cannot be read.
const MOST: usize = 40;
/// What is tried for a label: its longest text in characters, and whether it ends at its mark. That is the better
/// side; a shorter text there is preferred to one among the points, and a stump to none.
const TRIES: [(usize, bool); 8] =
    [(40, true), (28, true), (20, true), (40, false), (28, false), (20, false), (13, true), (13, false)];

type Place = (f64, f64);

/// A label at an angle, before its mark (it ends there) or behind it.
#[derive(Clone, Copy)]
struct Slant {
    mark: Place,
    angle: f64,
    before: bool,
}

impl Slant {
    /// The place `along` units from the mark.
    fn at(&self, along: f64) -> Place {
        let along = if self.before { -along } else { along };
        (self.mark.0 + along * self.angle.cos(), self.mark.1 + along * self.angle.sin())
    }

    /// Places along the middle of a text of so many characters.
    fn line(&self, characters: usize) -> Vec<Place> {
        let n = (characters as f64 * CHARACTER / HALF) as usize;
        (0..=n).map(|i| self.at(GAP + i as f64 * HALF)).collect()
    }
}

/// Writes as many labels as there is room for: baseline and champion first, then those of the largest gains.
pub(super) fn draw(drawing: &Drawing<'_>, out: &mut String) {
    let night = drawing.night;
    let keeps = night.trials.iter().filter(|t| t.status == Status::Keep);
    let mut keeps: Vec<(&Trial, Place)> = keeps.filter_map(|t| Some((t, drawing.place(t)?))).collect();
    let mut taken: Vec<Place> = keeps.iter().map(|k| k.1).collect();
    taken.extend(running_best(drawing));
    taken.extend(better_than_best(drawing));
    let is_first = |t: &Trial| Some(t.trial) == night.headline.champion || t.outcome == "baseline";
    let gain = |t: &Trial| t.delta.map_or(0.0, f64::abs);
    keeps.sort_by(|a, b| is_first(b.0).cmp(&is_first(a.0)).then(gain(b.0).total_cmp(&gain(a.0))));
    // on the better side and back towards earlier trials little else is drawn
    let angle = if night.lower_is_better { -FRAC_PI_6 } else { FRAC_PI_6 };
    let mut written = 0;
    for (trial, mark) in keeps {
        let tries = TRIES.into_iter().filter(|t| t.0 <= drawing.canvas.label);
        let found = tries.into_iter().find_map(|(length, before)| {
            let words = match trial.outcome.as_str() {
                "baseline" => "baseline".to_owned(),
                _ => text::line(&trial.description, length),
            };
            let slant = Slant { mark, angle, before };
            let line = slant.line(words.chars().count());
            fits(drawing, mark, &line, &taken).then_some((words, slant, line))
        });
        if let Some((words, slant, line)) = found {
            let (x, y) = slant.at(GAP);
            let anchor = if slant.before { r#" text-anchor="end""# } else { "" };
            let angle = slant.angle.to_degrees();
            let _ = write!(
                out,
                r#"<text class="label" transform="translate({x:.1} {y:.1}) rotate({angle:.0})" y="4"{anchor}>{}</text>"#,
                escaped(&words)
            );
            taken.extend(line);
            written += 1;
        }
        if written == MOST {
            break;
        }
    }
}

fn fits(drawing: &Drawing<'_>, mark: Place, line: &[Place], taken: &[Place]) -> bool {
    let (left, right) = (drawing.x.start + 2.0, drawing.x.end - 2.0);
    // the words of briefs stand along the better edge
    let (above, below) = if drawing.night.lower_is_better { (2.0, -18.0) } else { (18.0, -2.0) };
    let (top, bottom) = (drawing.y.end + above, drawing.y.start + below);
    let far = |a: Place, b: Place| (a.0 - b.0).hypot(a.1 - b.1);
    let others = || taken.iter().filter(|&&t| far(t, mark) > OWN);
    line.iter().all(|&at| {
        let inside = at.0 > left && at.0 < right && at.1 > top && at.1 < bottom;
        inside && others().all(|&t| far(t, at) > 1.7 * HALF)
    })
}

/// Places along the line of the running best.
fn running_best(drawing: &Drawing<'_>) -> Vec<Place> {
    let mut places = Vec::new();
    for corners in drawing.steps(0.0).windows(2) {
        let ((x, y), (to_x, to_y)) = (corners[0], corners[1]);
        let n = ((to_x - x).hypot(to_y - y) / HALF).ceil().max(1.0);
        places
            .extend((0..n as usize).map(|i| (x + (to_x - x) * i as f64 / n, y + (to_y - y) * i as f64 / n)));
    }
    places
}

/// Places of what was better than the best of its time, and yet not kept.
fn better_than_best(drawing: &Drawing<'_>) -> Vec<Place> {
    let mut best = f64::INFINITY;
    let sign = if drawing.night.lower_is_better { 1.0 } else { -1.0 };
    let mut places = Vec::new();
    for trial in &drawing.night.trials {
        let Some(value) = measured(trial) else { continue };
        if trial.status == Status::Keep {
            best = sign * value;
        } else if sign * value < best {
            places.extend(drawing.place(trial));
        }
    }
    places
}
