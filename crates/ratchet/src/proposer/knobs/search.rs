//! Where to go next: a pattern search around the champion.
//!
//! In this order: on in a direction that has just paid; to the bottom of a parabola through three points
//! of one knob; along the sum of the last keeps; and else one knob up or down by its own step, the ones
//! that failed least in a row first. Some trials move several knobs at once, more of them the longer
//! nothing was kept, and by then some leap anywhere in the range.

use rand::{RngExt, rngs::StdRng, seq::SliceRandom};

use super::{
    history::{FINEST_STEP, GROW, History},
    marker::Knob,
    scale::Scale,
    surface,
};
use crate::search::Strategy;

/// New texts of knobs, by index.
pub(super) type Targets = [(usize, String)];

/// A candidate: new texts of some knobs, and why.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Move {
    /// Knob index → its new text.
    pub(super) to: Vec<(usize, String)>,
    /// The reason, for people.
    pub(super) why: String,
}

/// Points tried at random before every place left is listed.
const RANDOM_TRIES: usize = 64;
/// The most places listed.
const MANY_PLACES: usize = 4_096;
/// A crash warns of everything beyond it whose other knobs are within this share of their range.
const CRASH_REACH: f64 = 0.4;

/// One choice of a candidate.
pub(super) struct Search<'a> {
    /// The champion's knobs.
    pub(super) knobs: &'a [Knob],
    /// What is known of them.
    pub(super) history: &'a History,
    /// How far to look, where the settings of the search say so.
    pub(super) strategy: Option<Strategy>,
    /// Whether a candidate's tree is new, and it leaves alone what is frozen.
    pub(super) fresh: &'a dyn Fn(&Targets) -> bool,
}

impl Search<'_> {
    /// The next candidate; `None` when every place was tried.
    pub(super) fn next(&self, rng: &mut StdRng) -> Option<Move> {
        let since = self.history.since_keep;
        let explores = self.strategy == Some(Strategy::Explore);
        let near = matches!(self.strategy, Some(Strategy::Exploit | Strategy::Focused));
        let stalled = !near && (explores || since >= 6 + 3 * self.knobs.len().min(8));
        let several = !near && self.knobs.len() > 1 && since % 4 == 3;
        None.or_else(|| self.acceptable(self.onward()))
            .or_else(|| self.acceptable(self.parabola()))
            .or_else(|| self.acceptable(self.pattern()))
            .or_else(|| self.acceptable((since % 3 == 1).then(|| self.valley()).flatten()))
            .or_else(|| {
                self.acceptable((stalled && since.is_multiple_of(4)).then(|| self.leap(rng)).flatten())
            })
            .or_else(|| self.acceptable(several.then(|| self.combination(rng)).flatten()))
            .or_else(|| self.polls(rng).into_iter().find_map(|poll| self.acceptable(Some(poll))))
            .or_else(|| (0..RANDOM_TRIES / 4).find_map(|_| self.acceptable(self.combination(rng))))
            .or_else(|| (0..RANDOM_TRIES).find_map(|_| self.acceptable(self.leap(rng))))
            .or_else(|| self.anything_left(rng))
    }

    fn acceptable(&self, candidate: Option<Move>) -> Option<Move> {
        candidate.filter(|c| !c.to.is_empty() && !self.beyond_a_crash(&c.to) && (self.fresh)(&c.to))
    }

    fn ordered(&self, axis: usize) -> bool {
        !matches!(self.knobs[axis].scale, Scale::Choice(_))
    }

    fn shifted(&self, axis: usize, by: f64) -> Option<(usize, String)> {
        let knob = &self.knobs[axis];
        Some((axis, knob.scale.moved(&knob.text, by)?))
    }

    fn placed(&self, axis: usize, at: f64) -> Option<(usize, String)> {
        let knob = &self.knobs[axis];
        let text = knob.scale.text(at, &knob.text)?;
        (text != knob.text).then_some((axis, text))
    }

    /// Further the way that the last trial found promising.
    fn onward(&self) -> Option<Move> {
        let (trial, moved) = self.history.promising.as_ref()?;
        let to = moved
            .iter()
            .filter(|(axis, _)| self.ordered(*axis))
            .filter_map(|(axis, by)| self.shifted(*axis, by * GROW))
            .collect();
        Some(Move {
            to,
            why: format!("trial {trial} gained that way; a longer step the same way may gain more"),
        })
    }

    /// The lowest point of a parabola through the champion and its nearest neighbours along one knob.
    fn parabola(&self) -> Option<Move> {
        let here = self.history.loss?;
        let bottoms = (0..self.knobs.len()).filter(|axis| self.ordered(*axis)).filter_map(|axis| {
            let (below, above) = (self.neighbour(axis, false)?, self.neighbour(axis, true)?);
            let at = self.history.champion[axis];
            let (left, right) = (below.0 - at, above.0 - at);
            let (fall, rise) = ((below.1 - here) / left, (above.1 - here) / right);
            let curvature = (rise - fall) / (right - left);
            let slope = rise - curvature * right;
            let to = -slope / (2.0 * curvature);
            // Off the three points by enough to be a new one, and not so close to the champion that the
            // trial could show nothing.
            let width = right - left;
            let worth = curvature > 0.0 && to.abs() > 0.08 * width && to > left * 0.95 && to < right * 0.95;
            let gain = slope * slope / (4.0 * curvature);
            (worth && gain >= self.history.error && width > 4.0 * FINEST_STEP).then_some((
                gain,
                axis,
                at + to,
                below.2,
                above.2,
            ))
        });
        let (_, axis, to, below, above) = bottoms.max_by(|a, b| a.0.total_cmp(&b.0))?;
        let why =
            format!("a parabola through the champion and trials {below} and {above} has its bottom here");
        Some(Move { to: vec![self.placed(axis, to)?], why })
    }

    /// Position, loss and trial of the nearest probe that differs from the champion in this knob alone.
    fn neighbour(&self, axis: usize, up: bool) -> Option<(f64, f64, u64)> {
        let champion = &self.history.champion;
        let same = |at: &[f64]| {
            at.iter().zip(champion).enumerate().all(|(i, (a, b))| i == axis || (a - b).abs() < 1e-9)
        };
        let probes = self.history.probes.iter().filter(|probe| same(&probe.at));
        probes
            .filter(|probe| (probe.at[axis] - champion[axis]) * if up { 1.0 } else { -1.0 } > 1e-9)
            .filter_map(|probe| Some((probe.at[axis], probe.loss?, probe.trial)))
            .min_by(|a, b| (a.0 - champion[axis]).abs().total_cmp(&(b.0 - champion[axis]).abs()))
    }

    /// Along the sum of the last keeps, right after the newest one's own direction was followed.
    fn pattern(&self) -> Option<Move> {
        let recent = &self.history.keeps[self.history.keeps.len().saturating_sub(self.knobs.len().min(4))..];
        let mut sum = vec![0.0; self.knobs.len()];
        recent.iter().flatten().for_each(|(axis, by)| sum[*axis] += by);
        let moved: Vec<usize> =
            (0..sum.len()).filter(|axis| sum[*axis].abs() > 1e-9 && self.ordered(*axis)).collect();
        if self.history.since_keep > 2 || moved.len() < 2 {
            return None;
        }
        let to = moved.iter().filter_map(|axis| self.shifted(*axis, sum[*axis])).collect();
        Some(Move { to, why: "the last keeps together point this way".to_owned() })
    }

    /// The lowest point within reach of a surface through the trials of the knobs moved most.
    fn valley(&self) -> Option<Move> {
        let (champion, axes) = (&self.history.champion, &self.history.axes);
        let mut moved: Vec<usize> =
            (0..axes.len()).filter(|axis| self.ordered(*axis) && axes[*axis].trials > 0).collect();
        moved.sort_by_key(|axis| std::cmp::Reverse(axes[*axis].trials));
        while moved.len() > 1 {
            let alike =
                |at: &[f64]| (0..at.len()).all(|k| moved.contains(&k) || (at[k] - champion[k]).abs() < 1e-9);
            let part = |at: &[f64]| moved.iter().map(|axis| at[*axis]).collect::<Vec<f64>>();
            let scored = self.history.probes.iter().filter_map(|probe| Some((&probe.at, probe.loss?)));
            let points: Vec<_> =
                scored.filter(|(at, _)| alike(at)).map(|(at, loss)| (part(at), loss)).collect();
            if points.len() > surface::terms(moved.len()) {
                let reach: Vec<f64> = moved.iter().map(|axis| (2.0 * axes[*axis].step).max(0.1)).collect();
                let (found, gain) = surface::lowest(&points, &part(champion), &reach)?;
                if gain < self.history.error {
                    return None;
                }
                let to = moved.iter().zip(found).filter_map(|(axis, at)| self.placed(*axis, at)).collect();
                let why = format!(
                    "the lowest point near the champion of a surface through {} trials",
                    points.len()
                );
                return Some(Move { to, why });
            }
            moved.pop();
        }
        None
    }

    /// One knob up or down by its own step, the least often failed first.
    fn polls(&self, rng: &mut StdRng) -> Vec<Move> {
        let mut arms: Vec<(u32, bool, usize, bool)> = (0..self.knobs.len())
            .flat_map(|axis| [false, true].map(|up| (axis, up)))
            .map(|(axis, up)| {
                let known = &self.history.axes[axis];
                (known.failures[usize::from(up)], known.lean == Some(!up), axis, up)
            })
            .collect();
        arms.shuffle(rng); // no knob first for standing first in the file
        arms.sort_by_key(|(failures, against_lean, ..)| (*failures, *against_lean));
        arms.iter()
            .filter_map(|(failures, _, axis, up)| {
                let to = if self.ordered(*axis) {
                    let step = self.history.axes[*axis].step;
                    self.shifted(*axis, if *up { step } else { -step })?
                } else {
                    self.placed(*axis, rng.random())?
                };
                let name = &self.knobs[*axis].name;
                let way = if *up { "up" } else { "down" };
                let why = match (self.ordered(*axis), failures) {
                    (false, _) => format!("another {name}"),
                    (true, 0) => format!("{name} has not failed {way}wards yet"),
                    (true, _) => format!("{name} {way} by another step than the ones that failed"),
                };
                Some(Move { to: vec![to], why })
            })
            .collect()
    }

    /// Two or three knobs at once, all by about the same share of their ranges.
    fn combination(&self, rng: &mut StdRng) -> Option<Move> {
        let mut axes: Vec<usize> = (0..self.knobs.len()).collect();
        axes.shuffle(rng);
        axes.truncate(if rng.random_bool(0.75) { 2 } else { 3 });
        let longest = axes.iter().map(|axis| self.history.axes[*axis].step).fold(0.0, f64::max);
        let to = axes
            .into_iter()
            .filter_map(|axis| {
                let step = longest * rng.random_range(0.7..1.4);
                if self.ordered(axis) {
                    self.shifted(axis, if rng.random() { step } else { -step })
                } else {
                    self.placed(axis, rng.random())
                }
            })
            .collect();
        Some(Move { to, why: "several knobs at once, for what no single one can show".to_owned() })
    }

    /// One to three knobs anywhere in their ranges.
    fn leap(&self, rng: &mut StdRng) -> Option<Move> {
        let mut axes: Vec<usize> = (0..self.knobs.len()).collect();
        axes.shuffle(rng);
        axes.truncate(rng.random_range(1..=3));
        let to = axes.into_iter().filter_map(|axis| self.placed(axis, rng.random())).collect();
        let why =
            format!("nothing kept in {} trials: a leap away from the champion", self.history.since_keep);
        Some(Move { to, why })
    }

    /// Any place never tried, crash or no crash, if the scales are few enough to list.
    fn anything_left(&self, rng: &mut StdRng) -> Option<Move> {
        let mut places: Vec<Vec<(usize, String)>> = vec![Vec::new()];
        for (axis, knob) in self.knobs.iter().enumerate() {
            let texts = knob.scale.texts(&knob.text)?;
            if places.len() * texts.len() > MANY_PLACES {
                return None;
            }
            places = places
                .iter()
                .flat_map(|place| {
                    texts.iter().map(move |text| {
                        let moved = (*text != knob.text).then(|| (axis, text.clone()));
                        place.iter().cloned().chain(moved).collect()
                    })
                })
                .collect();
        }
        places.shuffle(rng);
        let left = places.into_iter().find(|place| !place.is_empty() && (self.fresh)(place))?;
        Some(Move { to: left, why: "one of the last places never tried".to_owned() })
    }

    /// Whether a candidate lies at or beyond a crash, as seen from where that trial started.
    fn beyond_a_crash(&self, to: &Targets) -> bool {
        let mut at = self.history.champion.clone();
        for (axis, text) in to {
            at[*axis] = self.knobs[*axis].scale.position(text).unwrap_or(at[*axis]);
        }
        let crashes =
            self.history.probes.iter().filter(|probe| probe.loss.is_none() && !probe.moved.is_empty());
        crashes.into_iter().any(|crash| {
            (0..at.len()).all(|axis| {
                let past = at[axis] - crash.at[axis];
                match crash.moved.iter().find(|(moved, _)| *moved == axis) {
                    Some((_, by)) if self.ordered(axis) => past * by.signum() >= -1e-9,
                    Some(_) => past.abs() < 1e-9,
                    None => past.abs() <= CRASH_REACH,
                }
            })
        })
    }
}
