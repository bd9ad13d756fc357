//! The morning: what a person reads after a night, gathered from the journal and the records beside it.
//!
//! [`View::night`] gathers, the crate `report` draws, [`write()`] puts the files into a folder, and a [`Writer`] does so
//! after every trial of a run. Reads only, and takes no lock. What an audit says stands here and nowhere else that a
//! proposer or a judge could read.

mod briefs;
mod gates;
mod reading;
mod trials;
mod writer;

use std::collections::HashSet;

use report::night::{Calibration, Headline, Kind, Mechanism, Night};

pub use self::writer::{Writer, Written, write};
use self::{briefs::briefs, gates::gates, reading::to_read, trials::Gathered};
use crate::{
    calibration::calibrations_of,
    config::Goal,
    error::Result,
    journal::{self, Event, TrialRecord},
    novelty::{Novelty, Tally},
    proposer::llm::lessons_told,
    review,
    run::now,
    search::{Standing, listing::Entry},
    secrets::secrets,
    show::View,
    status::StatusReport,
};

/// Standard errors on each side of a 95 % interval.
const WITHIN: f64 = 1.96;
/// Bytes of one text; a longer one ends with `…`.
const LONGEST: usize = 20 << 10;

/// Recorded text as it may leave: without the user's secrets, and bounded. What draws it makes it harmless.
fn told(text: &str) -> String {
    let text = secrets().redact(text);
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.into_owned(),
    }
}

impl View {
    /// Everything that a report shows.
    pub fn night(&self) -> Result<Night> {
        let status = self.status()?;
        let goal = self.task.metric.goal;
        let mut night = Night {
            task: self.task.name().to_owned(),
            tag: status.tag.clone().unwrap_or_default(),
            metric: status.metric.clone(),
            lower_is_better: goal == Goal::Minimize,
            profile: status.profile.clone(),
            device: self.history.init().map(|init| told(&init.device)),
            made: now(),
            ..Night::default()
        };
        let Some(tag) = &self.tag else { return Ok(night) };
        let dir = self.state.tag(tag);
        let events = journal::events(&dir.journal())?;
        let trials = self.history.trials();
        night.ended = self.history.last_stop().map(told);
        night.running = status.running && night.ended.is_none();
        night.to_read = to_read(trials, goal);
        let whole: HashSet<u64> = night.to_read.iter().map(|chosen| chosen.trial).collect();
        // reviews that cannot be read are none: `status` says what ails them
        let reviews = review::decisions(&self.state, tag).unwrap_or_default();
        night.trials = Gathered { view: self, dir: &dir, chosen: whole, reviews }.all();
        night.headline = self.headline(&status, &events);
        night.briefs = briefs(&self.state, trials, goal)?;
        night.lessons = lessons_told(dir.path(), trials.len() as u64);
        night.mechanisms = self.mechanisms_told()?;
        let novelty = Novelty::of(trials);
        night.categories = novelty.categories.iter().map(|(name, tally)| kind(name, *tally)).collect();
        night.classes = novelty.classes.iter().map(|(class, tally)| kind(class.as_str(), *tally)).collect();
        night.gates = gates(&self.task, &self.history, &events);
        night.calibration = calibrations_of(trials)
            .into_iter()
            .map(|(proposer, calibration)| Calibration {
                proposer: told(proposer),
                predictions: calibration.predictions.into(),
                right: calibration.right.into(),
                error: calibration.error,
                too_hopeful: goal.gain(0.0, -calibration.bias),
            })
            .collect();
        Ok(night)
    }

    fn headline(&self, status: &StatusReport, events: &[Event]) -> Headline {
        let goal = self.task.metric.goal;
        let (baseline, champion) = (self.history.baseline(), self.history.champion());
        let pair = baseline.zip(champion);
        let runs = |record: &TrialRecord| record.values.len().max(1) as f64;
        let over = pair.filter(|(baseline, champion)| baseline.trial != champion.trial);
        let error = |(baseline, champion): (&TrialRecord, &TrialRecord)| {
            Some(status.noise_sigma? * (1.0 / runs(baseline) + 1.0 / runs(champion)).sqrt())
        };
        let audited = |trial: u64| {
            events.iter().rev().find_map(|event| match event {
                Event::Audited { trial: audited, value, .. } if *audited == trial => Some(*value),
                _ => None,
            })
        };
        let spent = status.spent.unwrap_or_default();
        Headline {
            champion: champion.map(|record| record.trial),
            best: champion.and_then(|record| record.value),
            baseline: baseline.and_then(|record| record.value),
            gain: pair.and_then(|(old, new)| Some(goal.gain(old.value?, new.value?))),
            gain_within: over.and_then(error).map(|error| WITHIN * error),
            audited_gain: over
                .and_then(|(old, new)| Some(goal.gain(audited(old.trial)?, audited(new.trial)?))),
            sigma: status.noise_sigma,
            trials: status.trials,
            keeps: status.keeps,
            discards: status.discards,
            crashes: status.crashes,
            unreviewed: status.unreviewed.unwrap_or_else(|| review::keeps(&self.history).count()),
            duty_cycle: status.duty_cycle,
            seconds: self.history.duty().wall_s,
            tokens: spent.tokens,
            usd: spent.usd,
        }
    }

    fn mechanisms_told(&self) -> Result<Vec<Mechanism>> {
        let known = self.mechanisms()?.into_iter();
        let used = known.filter_map(|entry| Some((entry.standing?, entry)));
        let mechanism = |(standing, entry): (Standing, Entry)| Mechanism {
            what: told(&entry.what),
            standing: standing.as_str().to_owned(),
            reason: told(&entry.reason.unwrap_or_default()),
            inactive: entry.inactive,
            hooks: (entry.calls.iter())
                .map(|(hook, calls)| {
                    (hook.to_string(), *calls, entry.acted.get(hook).copied().unwrap_or_default())
                })
                .collect(),
            trials: [entry.on, entry.off],
            effect: entry.effect,
            id: told(&entry.id),
        };
        Ok(used.map(mechanism).collect())
    }
}

fn kind(name: &str, tally: Tally) -> Kind {
    Kind { name: told(name), tried: tally.tried, kept: tally.kept, crashed: tally.crashed }
}
