//! What the trials so far say about each knob: recomputed from the records at every call, so that a
//! resumed night goes on as it would have.

use std::collections::{HashMap, HashSet};

use super::marker::Knob;
use crate::{
    config::Goal,
    journal::{Status, TrialRecord},
    source::TreeHash,
};

/// First step, as a share of a knob's range.
const FIRST_STEP: f64 = 0.15;
/// Steps never grow beyond this share, nor shrink below.
const LARGEST_STEP: f64 = 0.5;
/// The finest step; a fiftieth of a factor of ten on a usual log range.
pub(super) const FINEST_STEP: f64 = 0.004;
/// Growth of a step after a keep, and of one that looked good but within noise.
pub(super) const GROW: f64 = 1.6;
const SHRINK: f64 = 0.5;

/// What one knob's trials have shown.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The step to try next, as a share of the range.
    pub(super) step: f64,
    /// Failures in a row downwards and upwards.
    pub(super) failures: [u32; 2],
    /// The direction of the last keep that moved this knob.
    pub(super) lean: Option<bool>,
    /// Failures since the step last changed, by direction.
    worn: [bool; 2],
    /// Whether every loss since then was too small to tell from noise.
    flat: bool,
    /// Trials that moved this knob, alone or with others.
    pub(super) trials: u32,
    /// What their keeps gained in all.
    gained: f64,
}

/// One scored or crashed trial as a point on the scales.
#[derive(Clone, Debug)]
pub(super) struct Probe {
    /// Its trial number.
    pub(super) trial: u64,
    /// Position on each knob's scale.
    pub(super) at: Vec<f64>,
    /// Its value, so that lower is better; `None` for a crash.
    pub(super) loss: Option<f64>,
    /// The knobs it moved, with their displacement.
    pub(super) moved: Vec<(usize, f64)>,
}

/// All that is known, in the order of the knobs.
#[derive(Debug)]
pub(super) struct History {
    /// The champion's position on each scale.
    pub(super) champion: Vec<f64>,
    /// Its value, so that lower is better.
    pub(super) loss: Option<f64>,
    /// Standard error of the latest comparison: a smaller gain would not be seen.
    pub(super) error: f64,
    /// What is known of each knob.
    pub(super) axes: Vec<Axis>,
    /// Trials whose place on the scales is known.
    pub(super) probes: Vec<Probe>,
    /// Displacements of the keeps, oldest first.
    pub(super) keeps: Vec<Vec<(usize, f64)>>,
    /// The last trial's displacement, if it was worth going on in its direction.
    pub(super) promising: Option<(u64, Vec<(usize, f64)>)>,
    /// Trials since the last keep.
    pub(super) since_keep: usize,
    /// Every tree tried so far.
    pub(super) tried: HashSet<TreeHash>,
}

impl History {
    /// Reads the records of a tag whose champion holds these knobs.
    pub(super) fn read(
        knobs: &[Knob],
        trials: &[TrialRecord],
        best: Option<&TrialRecord>,
        goal: Goal,
    ) -> Self {
        let loss = |record: &TrialRecord| record.value.map(|v| if goal == Goal::Minimize { v } else { -v });
        let champion: Vec<f64> =
            knobs.iter().map(|knob| knob.scale.position(&knob.text).unwrap_or(0.5)).collect();
        let mut history = Self {
            champion,
            loss: best.and_then(loss),
            error: trials.iter().rev().find_map(|record| record.verdict.standard_error).unwrap_or(0.0),
            axes: knobs.iter().map(Axis::new).collect(),
            probes: Vec::new(),
            keeps: Vec::new(),
            promising: None,
            since_keep: 0,
            tried: trials.iter().map(|record| record.source.clone()).collect(),
        };
        let index: HashMap<&str, usize> =
            knobs.iter().enumerate().map(|(i, k)| (k.name.as_str(), i)).collect();
        let moves = |record: &TrialRecord| -> Vec<(usize, f64)> {
            let changes = record.proposal.changes.iter();
            changes
                .filter_map(|change| {
                    let axis = *index.get(change.name.as_str())?;
                    let scale = &knobs[axis].scale;
                    Some((axis, scale.position(&change.to)? - scale.position(&change.from)?))
                })
                .collect()
        };
        let places = history.places(trials, best, &moves);
        for record in trials {
            let moved = moves(record);
            if record.parent.is_some() {
                history.learn(record, loss(record), &moved, goal);
            }
            if let Some(at) = places.get(&record.trial) {
                let loss = loss(record).filter(|_| record.status != Status::Crash);
                history.probes.push(Probe { trial: record.trial, at: at.clone(), loss, moved });
            }
        }
        history
    }

    /// Where each trial stood: backwards from the champion to the baseline, then outwards from these.
    fn places(
        &self,
        trials: &[TrialRecord],
        best: Option<&TrialRecord>,
        moves: &dyn Fn(&TrialRecord) -> Vec<(usize, f64)>,
    ) -> HashMap<u64, Vec<f64>> {
        let by_number: HashMap<u64, &TrialRecord> =
            trials.iter().map(|record| (record.trial, record)).collect();
        let mut places = HashMap::new();
        let mut at = self.champion.clone();
        let mut next = best;
        while let Some(record) = next {
            places.insert(record.trial, at.clone());
            moves(record).iter().for_each(|(axis, by)| at[*axis] -= by);
            let parent = record.parent.filter(|parent| *parent < record.trial);
            next = parent.and_then(|parent| by_number.get(&parent).copied());
        }
        for record in trials {
            if let Some(mut at) = record.parent.and_then(|parent| places.get(&parent).cloned()) {
                moves(record).iter().for_each(|(axis, by)| at[*axis] += by);
                places.entry(record.trial).or_insert(at);
            }
        }
        places
    }

    /// Takes one trial's outcome into the knobs it moved.
    fn learn(&mut self, record: &TrialRecord, loss: Option<f64>, moved: &[(usize, f64)], goal: Goal) {
        self.promising = None;
        self.since_keep += 1;
        let gain = record.delta.map_or(0.0, |delta| if goal == Goal::Minimize { -delta } else { delta });
        let kept = record.status == Status::Keep;
        for (axis, _) in moved {
            let axis = &mut self.axes[*axis];
            axis.trials += 1;
            axis.gained += if kept { gain.max(0.0) } else { 0.0 };
        }
        if kept {
            self.since_keep = 0;
            self.keeps.push(moved.to_vec());
            self.promising = Some((record.trial, moved.to_vec()));
            if moved.is_empty() {
                // The code changed: what failed against the old one may work against the new.
                self.axes.iter_mut().for_each(|axis| (axis.failures, axis.worn) = ([0; 2], [false; 2]));
            }
            moved.iter().for_each(|(axis, by)| self.axes[*axis].keep(*by));
            return;
        }
        let [(axis, by)] = moved else { return };
        let error = record.verdict.standard_error.unwrap_or(0.0);
        let lost = loss.filter(|_| record.status == Status::Discard).map(|_| -gain);
        if lost.is_some_and(|lost| lost < 0.0) && self.axes[*axis].failures[usize::from(*by > 0.0)] == 0 {
            // Better, but by too little to tell: a longer step the same way can be told.
            self.promising = Some((record.trial, moved.to_vec()));
        }
        self.axes[*axis].fail(*by, lost.is_some_and(|lost| lost.abs() <= 2.0 * error));
    }
}

impl Axis {
    fn new(knob: &Knob) -> Self {
        let texts = knob.scale.texts(&knob.text).map_or(usize::MAX, |texts| texts.len());
        Self {
            // At least one place further on a scale of few.
            step: FIRST_STEP.max(1.0 / (texts.max(2) - 1) as f64).min(1.0),
            failures: [0; 2],
            lean: None,
            worn: [false; 2],
            flat: true,
            trials: 0,
            gained: 0.0,
        }
    }

    fn keep(&mut self, by: f64) {
        let up = by > 0.0;
        self.step = (by.abs() * GROW).clamp(FINEST_STEP, LARGEST_STEP);
        self.failures[usize::from(up)] = 0;
        self.lean = Some(up);
        self.worn = [false; 2];
        self.worn[usize::from(!up)] = true; // that way lies the old champion
        self.flat = true;
    }

    fn fail(&mut self, by: f64, within_noise: bool) {
        let way = usize::from(by > 0.0);
        self.failures[way] += 1;
        self.worn[way] = true;
        self.flat &= within_noise;
        if self.worn == [true; 2] {
            // Both ways failed. Clear losses: the optimum is nearer. No visible effect: look further.
            let factor = if self.flat { GROW } else { SHRINK };
            self.step = (self.step * factor).clamp(FINEST_STEP, LARGEST_STEP);
            self.worn = [false; 2];
            self.flat = true;
        }
    }

    /// What a trial of this knob has gained on average, by its record; `None` before its first trial.
    pub(super) fn expected_gain(&self) -> Option<f64> {
        (self.trials > 0).then(|| self.gained / f64::from(self.trials))
    }
}
