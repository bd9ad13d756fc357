//! Where each mechanism stands, and what it has done: what the journal says of them.

use std::{collections::BTreeMap, fmt};

use mechanism::Hook;
use serde::{Deserialize, Serialize};

use super::adoption::{BLOCK, Canary, Judgment, LOOKS, Trialled, canary, judge};
use crate::{
    journal::{Status, TrialRecord},
    verdict::{IMPROVED, PROMISING},
};

/// What a mechanism may do now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// New: on for a few trials, which must not crash more than others.
    Canary,
    /// On for some trials and off for others, so that its gain can be measured.
    Trial,
    /// Its gain was measured to be above zero.
    Adopted,
    /// It was not.
    Retired,
    /// It was never allowed to act: validation or canary refused it.
    Rejected,
    /// It failed while it was at work.
    Faulted,
    /// A person switched it off.
    Disabled,
}

impl Standing {
    /// Whether its hooks are called.
    pub fn is_live(self) -> bool {
        matches!(self, Self::Canary | Self::Trial | Self::Adopted)
    }

    /// As it is written for people.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Canary => "canary",
            Self::Trial => "trial",
            Self::Adopted => "adopted",
            Self::Retired => "retired",
            Self::Rejected => "rejected",
            Self::Faulted => "faulted",
            Self::Disabled => "disabled",
        }
    }
}

/// What one mechanism did for one proposal; stands in the journal with what came of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Use {
    /// The mechanism.
    pub id: String,
    /// Whether its hooks could be called: off is its control.
    pub on: bool,
    /// Calls of each hook.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub calls: BTreeMap<Hook, u64>,
    /// Those whose answer was used: a candidate refused, chosen, ordered otherwise; text given to a proposer.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub acted: BTreeMap<Hook, u64>,
    /// Why it is disabled from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fault: Option<String>,
}

impl fmt::Display for Use {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {}", self.id, if self.on { "on" } else { "off" })?;
        for (hook, calls) in &self.calls {
            let used = self.acted.get(hook).copied().unwrap_or(0);
            write!(f, ", {hook} called {calls} and used {used} times")?;
        }
        self.fault.as_ref().map_or(Ok(()), |fault| write!(f, ", failed: {fault}"))
    }
}

/// A change of a mechanism's standing; stands in the journal.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Change {
    /// When, RFC 3339 in UTC.
    pub at: String,
    /// The mechanism.
    pub id: String,
    /// What it may do now.
    pub to: Standing,
    /// Why.
    pub reason: String,
}

/// One mechanism of a tag.
#[derive(Clone, Debug)]
pub struct Mechanism {
    /// Its name in the library.
    pub id: String,
    /// What its author calls it.
    pub name: String,
    /// What it may do.
    pub standing: Standing,
    /// Why, and since when.
    pub reason: String,
    /// When that was decided.
    pub at: String,
    /// Trials of the tag before it came in.
    pub since: usize,
    /// Calls of each hook.
    pub calls: BTreeMap<Hook, u64>,
    /// Calls whose answer was used.
    pub acted: BTreeMap<Hook, u64>,
    /// The trials since it came in, on and off.
    pub trialled: Vec<Trialled>,
}

impl Mechanism {
    /// Gain a minute with it on minus that with it off; `None` while there is not one trial of each, and for what did
    /// nothing, which is credited with nothing.
    pub fn effect(&self) -> Option<f64> {
        if self.is_inactive() {
            return None;
        }
        let rate = |on: bool| {
            let of = || self.trialled.iter().filter(move |trial| trial.on == on);
            let minutes: f64 = of().map(|trial| trial.minutes).sum();
            (minutes > 0.0).then(|| of().map(|trial| trial.gain).sum::<f64>() / minutes)
        };
        Some(rate(true)? - rate(false)?)
    }

    /// Trials with it on, and with it off.
    pub fn trials(&self) -> [usize; 2] {
        [true, false].map(|on| self.trialled.iter().filter(|trial| trial.on == on).count())
    }

    /// What its trials so far decide; `None` where nothing changes. `crashes`: of so many trials before it.
    pub(crate) fn decided(&self, crashes: usize, trials: usize) -> Option<(Standing, String)> {
        let adopted = self.standing == Standing::Adopted;
        if self.is_inactive() {
            // what did nothing has neither harmed nor gained, whatever the trials with it were like
            let (last, _) = LOOKS[LOOKS.len() - 1];
            let over = self.trialled.len() >= last * BLOCK;
            return over
                .then(|| (Standing::Retired, format!("inactive: nothing of it was used in {last} blocks")));
        }
        if self.standing == Standing::Canary {
            return match canary(&self.trialled, crashes, trials) {
                Canary::Waiting => None,
                Canary::Passed => Some((Standing::Trial, "crashes no more than others".to_owned())),
                Canary::Failed(crashed, of) => {
                    Some((Standing::Rejected, format!("{crashed} of its first {of} trials crashed")))
                }
            };
        }
        match judge(&self.trialled, adopted) {
            Judgment::Adopt(evidence) if !adopted => Some((Standing::Adopted, evidence.to_string())),
            Judgment::Undecided | Judgment::Adopt(_) => None,
            Judgment::Retire(why, evidence) => Some((Standing::Retired, format!("{why}: {evidence}"))),
        }
    }

    /// Whether no hook of it was ever called, or none of its answers ever used: it has earned nothing.
    pub fn is_inactive(&self) -> bool {
        self.acted.values().all(|times| *times == 0)
    }
}

/// All mechanisms of a tag, in the order in which they came.
#[derive(Clone, Debug, Default)]
pub struct Mechanisms(Vec<Mechanism>);

impl Mechanisms {
    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &Mechanism> {
        self.0.iter()
    }

    /// Those whose hooks are called.
    pub fn live(&self) -> impl Iterator<Item = &Mechanism> {
        self.0.iter().filter(|known| known.standing.is_live())
    }

    /// The one of this name.
    pub fn get(&self, id: &str) -> Option<&Mechanism> {
        self.0.iter().find(|known| known.id == id)
    }

    /// Gives one the name that its author has for it.
    pub(crate) fn named(&mut self, id: &str, name: &str) {
        self.0.iter_mut().filter(|known| known.id == id).for_each(|known| known.name = name.to_owned());
    }

    /// `trials`: those of the tag so far.
    pub(crate) fn change(&mut self, change: Change, trials: usize) {
        let Change { at, id, to, reason } = change;
        let known = match self.0.iter().position(|known| known.id == id) {
            Some(place) => &mut self.0[place],
            None => {
                self.0.push(Mechanism {
                    name: id.clone(),
                    id,
                    standing: to,
                    reason: String::new(),
                    at: String::new(),
                    since: trials,
                    calls: BTreeMap::new(),
                    acted: BTreeMap::new(),
                    trialled: Vec::new(),
                });
                let last = self.0.len() - 1;
                &mut self.0[last]
            }
        };
        if to == Standing::Canary {
            // it begins anew: what was counted before was under other circumstances
            (known.since, known.trialled) = (trials, Vec::new());
            (known.calls, known.acted) = (BTreeMap::new(), BTreeMap::new());
        }
        (known.standing, known.reason, known.at) = (to, reason, at);
    }

    /// What mechanisms did for a proposal that came to nothing.
    pub(crate) fn used(&mut self, uses: &[Use]) {
        for used in uses {
            let Some(known) = self.0.iter_mut().find(|known| known.id == used.id) else { continue };
            for (hook, times) in &used.calls {
                *known.calls.entry(*hook).or_default() += times;
            }
            for (hook, times) in &used.acted {
                *known.acted.entry(*hook).or_default() += times;
            }
            if let Some(fault) = &used.fault {
                (known.standing, known.reason) = (Standing::Faulted, fault.clone());
            }
        }
    }

    /// The same for a trial, which is also measured. `earlier`: the trials before it.
    pub(crate) fn trialled(&mut self, record: &TrialRecord, earlier: &[TrialRecord]) {
        let outcome = |used: &Use| Trialled {
            on: used.on,
            gain: own_gain(record, earlier),
            // a run that takes no time, as a simulated one, counts as a second: below that it is the machine's noise
            minutes: record.seconds.max(record.values.len().max(1) as f64) / 60.0,
            crashed: record.status == Status::Crash,
        };
        for used in &record.uses {
            if let Some(known) = self.0.iter_mut().find(|known| known.id == used.id) {
                known.trialled.push(outcome(used));
            }
        }
        self.used(&record.uses);
    }
}

/// By how much a trial was better than what it started from, where that counts as a gain at all: it was kept for it, or
/// is promising. Never below 0.
fn own_gain(record: &TrialRecord, earlier: &[TrialRecord]) -> f64 {
    let over_champion = |record: &TrialRecord| {
        let gained = [IMPROVED, PROMISING].contains(&record.verdict.outcome.as_str());
        // for these two outcomes the difference is always to the better, whichever way the metric goes
        record.delta.filter(|_| gained).map_or(0.0, f64::abs)
    };
    let carried = record.carries.and_then(|trial| earlier.iter().find(|earlier| earlier.trial == trial));
    (over_champion(record) - carried.map_or(0.0, over_champion)).max(0.0)
}
