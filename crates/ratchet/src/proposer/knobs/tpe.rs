//! A classical optimiser over the same knobs: the tree-structured Parzen estimator (Bergstra et al. 2011), as the
//! baseline from outside that other searches are held against.
//!
//! Each knob has an estimator of its own, told every trial's place and value; a crash is worse than any value. After
//! some random places it moves all knobs at once. It keeps nothing: what it knows it reads from the trials.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{History, Move, edited, knobs, marker::Knob, proposal, scale::Scale};
use crate::{
    proposer::{Brief, Proposal, ProposeError, Proposer},
    source::TreeHash,
};

/// Random trials before the estimators are asked, the baseline included; as Optuna's default.
const RANDOM: usize = 10;
/// Places that are drawn until one is new.
const DRAWS: usize = 100;

/// The proposer `tpe`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tpe;

impl Proposer for Tpe {
    fn name(&self) -> &str {
        "tpe"
    }

    /// Places every knob. The same brief always gives the same proposal.
    fn propose(&mut self, brief: &Brief<'_>) -> Result<Proposal, ProposeError> {
        if brief.repair.is_some() {
            return Err(ProposeError::CannotRepair);
        }
        let knobs = knobs(brief.files, brief.profile)?;
        let start = brief.start.trial().or(brief.best);
        let history = History::read(&knobs, brief.trials, start, brief.metric.goal);
        let mut dice = StdRng::seed_from_u64(brief.seed);
        for _ in 0..DRAWS {
            let to = placed(&knobs, &history, &mut dice);
            let files: BTreeMap<&str, String> =
                brief.files.iter().map(|file| (file.path.as_str(), edited(file, &knobs, &to))).collect();
            if !to.is_empty() && !history.tried.contains(&TreeHash::of(&files)) {
                let why = "where good trials are denser than bad ones".to_owned();
                return Ok(proposal(brief, &knobs, &history, Move { to, why }));
            }
        }
        Err(ProposeError::Exhausted(format!("{DRAWS} places in a row were tried before")))
    }
}

/// A new place of every knob, as texts; those that stay where they are are left out.
fn placed(knobs: &[Knob], history: &History, dice: &mut StdRng) -> Vec<(usize, String)> {
    let to = (0..knobs.len()).filter_map(|axis| {
        let knob = &knobs[axis];
        let position = match history.probes.len() < RANDOM {
            true => dice.random(),
            false => asked(&knob.scale, history, axis, dice)?,
        };
        knob.scale.text(position, &knob.text).filter(|text| *text != knob.text).map(|text| (axis, text))
    });
    to.collect()
}

/// Where one knob's estimator sends it. `None` only for a scale of one place.
fn asked(scale: &Scale, history: &History, axis: usize, dice: &mut StdRng) -> Option<f64> {
    // choices have no order: each is a bin of its own
    let bins = if let Scale::Choice(choices) = scale { Some(choices.len()) } else { None };
    let (estimator, range) = match bins {
        Some(bins) => (::tpe::histogram_estimator(), ::tpe::categorical_range(bins)),
        None => (::tpe::parzen_estimator(), ::tpe::range(0.0, 1f64.next_up())), // its end is exclusive
    };
    let most = bins.map_or(1.0, |bins| (bins - 1) as f64);
    let mut optimizer = ::tpe::TpeOptimizer::new(estimator, range.ok()?);
    for probe in &history.probes {
        let at = probe.at[axis].clamp(0.0, 1.0) * most;
        let at = if bins.is_some() { at.round() } else { at };
        optimizer.tell(at, probe.loss.unwrap_or(f64::INFINITY)).ok()?;
    }
    let Ok(place) = optimizer.ask(dice);
    Some(if bins.is_some() { place.floor() / most } else { place })
}
