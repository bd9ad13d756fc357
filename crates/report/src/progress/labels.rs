//! Labels of keeps, slantwise, each where it covers nothing.

use std::f64::consts::FRAC_PI_6;
use std::fmt::Write as _;

use super::{Drawing, escaped};
use crate::night::{Status, Trial};
use crate::text;

/// Half the height of a line of text, pixels.
const HALF: f64 = 6.0;
/// Width of a character at 11 px, on average.
const CHARACTER: f64 = 5.9;
/// Labels of one drawing; more cannot be read.
const MOST: usize = 40;

/// Writes as many labels as there is room for, those of the largest gains first.
pub(super) fn draw(drawing: &Drawing<'_>, out: &mut String) {
    let night = drawing.night;
    let keeps: Vec<(&Trial, (f64, f64))> = (night.trials.iter())
        .filter(|t| t.status == Status::Keep)
        .filter_map(|t| Some((t, drawing.place(t)?)))
        .collect();
    let mut taken: Vec<(f64, f64)> = keeps.iter().map(|k| k.1).collect();
    for corners in drawing.steps(0.0).windows(2) {
        let ((x, y), (to_x, to_y)) = (corners[0], corners[1]);
        let n = ((to_x - x).hypot(to_y - y) / HALF).ceil().max(1.0);
        taken.extend((0..n as usize).map(|i| (x + (to_x - x) * i as f64 / n, y + (to_y - y) * i as f64 / n)));
    }
    let mut order = keeps;
    let gain = |t: &Trial| -t.delta.unwrap_or(0.0).abs();
    let first = |t: &Trial| Some(t.trial) == night.headline.champion || t.outcome == "baseline";
    order.sort_by(|a, b| {
        (!first(a.0), gain(a.0)).partial_cmp(&(!first(b.0), gain(b.0))).unwrap_or(std::cmp::Ordering::Equal)
    });
    let mut written = 0;
    for (trial, place) in order {
        if written == MOST {
            break;
        }
        let words = match trial.outcome.as_str() {
            "baseline" => "baseline".to_owned(),
            _ => text::line(&trial.description, drawing.canvas.label),
        };
        let length = words.chars().count() as f64 * CHARACTER;
        // on the better side and back towards earlier trials nothing is drawn
        let back = if night.lower_is_better { -1.0 } else { 1.0 };
        let tries = [(back, true), (back, false), (-back, true), (-back, false)];
        for (turn, before) in tries {
            let angle = turn * FRAC_PI_6;
            let sign = if before { -1.0 } else { 1.0 };
            let at =
                |along: f64| (place.0 + sign * along * angle.cos(), place.1 + sign * along * angle.sin());
            let line: Vec<_> = (0..=(length / HALF) as usize).map(|i| at(12.0 + i as f64 * HALF)).collect();
            // the line that ends at its own mark is no obstacle
            let near = |a: f64, b: f64| (a - place.0).hypot(b - place.1) < 10.0;
            let fits = line.iter().all(|&(x, y)| {
                let inside = x > drawing.x.start + 2.0
                    && x < drawing.x.end - 2.0
                    && y > drawing.y.end
                    && y < drawing.y.start - HALF;
                inside
                    && taken
                        .iter()
                        .all(|&(a, b)| (a == place.0 && b == place.1) || (x - a).hypot(y - b) > 2.0 * HALF)
            });
            if !fits {
                continue;
            }
            let (x, y) = at(12.0);
            let anchor = if before { r#" text-anchor="end""# } else { "" };
            let _ = write!(
                out,
                r#"<text class="label" transform="translate({x:.1} {y:.1}) rotate({:.0})" y="4"{anchor}>{}</text>"#,
                angle.to_degrees(),
                escaped(&words)
            );
            taken.extend(line);
            written += 1;
            break;
        }
    }
}
