//! What a journal adds up to: trials, champion, what was tried, what is open.

use std::collections::{HashMap, HashSet};

use crate::{
    ahead::Wasted,
    duty::{Clock, Duty},
    journal::{Event, Init, Status, TrialRecord},
    noise::Replicates,
    progress::Phase,
    proposer::Nothing,
    risk::Risk,
    search::Search,
    sigma::Drift,
    source::TreeHash,
    verdict::{IMPROVED, PROMISING},
};

/// The latest run.
#[derive(Clone, Debug)]
pub struct Begun {
    /// When it began, RFC 3339.
    pub at: String,
    /// The rules that may end it, in words.
    pub rules: String,
    /// Trials that the tag had before.
    pub trials: usize,
    /// When it ended; `None` while it goes on, or after it was killed.
    pub ended: Option<String>,
}

/// What the journal adds up to.
#[derive(Clone, Debug, Default)]
pub struct History {
    init: Option<Init>,
    trials: Vec<TrialRecord>,
    champion: Option<usize>,
    lead: Option<usize>,
    drift: Option<Drift>,
    since_rerun: u32,
    tried: HashMap<TreeHash, u64>,
    open: Option<u64>,
    /// The hint that the open trial takes up, and those that finished ones took up.
    open_hint: Option<String>,
    hints: HashSet<String>,
    paused_since: Option<String>,
    paused_why: Option<String>,
    attempts: u64,
    in_vain: Vec<String>,
    vetoes: u64,
    wasted: Wasted,
    search: Search,
    clock: Clock,
    run: Option<Begun>,
    last_stop: Option<String>,
    /// The champion before the last keep, or the base before the last, while the branch may still stand there.
    behind: Option<String>,
}

impl History {
    pub(crate) fn apply(&mut self, event: Event) {
        match event {
            // a second one starts a tag without a baseline from elsewhere, and the branch has to follow
            Event::Init(init) => self.behind = self.init.replace(init).map(|old| old.base),
            Event::RunStarted { at, rules } => {
                (self.last_stop, self.paused_since) = (None, None);
                self.clock.start(&at);
                self.run = Some(Begun { at, rules, trials: self.trials.len(), ended: None });
            }
            Event::RunEnded { at, reason } => {
                self.last_stop = Some(reason);
                self.clock.end(&at);
                if let Some(run) = &mut self.run {
                    run.ended = Some(at);
                }
            }
            Event::Paused { at, why } => {
                self.clock.pause(&at);
                (self.paused_since, self.paused_why) = (Some(at), why);
            }
            Event::Resumed { at } => {
                self.clock.resume(&at);
                self.paused_since = None;
            }
            Event::NoProposal { reason, kind, uses, .. } => {
                self.attempts += 1;
                self.search.came_to_nothing(&uses);
                self.vetoes += u64::from(kind == Nothing::Vetoed);
                self.in_vain.push(reason);
            }
            Event::Wasted { usage, seconds, .. } => {
                self.wasted.proposals += 1;
                self.wasted.usage += usage;
                self.wasted.seconds += seconds;
            }
            Event::Cycle { end, .. } => self.search.cycled(*end, self.trials.len()),
            Event::Session { at, end } => self.search.researched(at, *end, self.trials.len()),
            Event::Restarted { .. } => self.search.restart(self.trials.len()),
            Event::Mechanism(change) => self.search.changed(change, self.trials.len()),
            Event::Opened { trial, hint, .. } => (self.open, self.open_hint) = (Some(trial), hint),
            Event::Abandoned { .. } => (self.open, self.open_hint) = (None, None),
            Event::Replicated {
                trial, value: Some(value), seconds, counts: true, tokens_m, fit_s, ..
            } => {
                self.since_rerun = 0;
                if self.open.is_none() {
                    self.clock.trained(fit_s); // else it is in the phases of the trial that asked for it
                }
                if let Some(record) = self.trials.iter_mut().find(|record| record.trial == trial) {
                    self.drift = Drift::of(record, value, tokens_m);
                    record.values.push(value);
                    record.seconds += seconds;
                    record.value = mean(&record.values);
                }
            }
            Event::Replicated { counts: true, .. } => self.since_rerun = 0, // it crashed; not at once again
            // what the audit says reaches nobody who proposes or judges
            Event::Replicated { .. }
            | Event::Audited { .. }
            | Event::Transferred { .. }
            | Event::Accepted { .. } => {}
            Event::Refused { .. } => {} // told to who tried, and in the report
            Event::Advanced { .. } => self.behind = None,
            Event::Closed(record) => {
                let fit = |(phase, seconds): &(Phase, f64)| (*phase == Phase::Fit).then_some(*seconds);
                if record.proposer != "try" {
                    self.clock.trained(record.phases.iter().filter_map(fit).sum());
                    self.clock.reached(&record.ended);
                }
                (self.open, self.open_hint) = (None, None);
                self.hints.extend(record.demand.hint_id.clone());
                self.in_vain.clear();
                self.search.tried(&record, &self.trials);
                self.since_rerun += 1;
                self.attempts += 1;
                if record.status == Status::Keep {
                    let before = self.champion().and_then(|champion| champion.commit.clone());
                    self.behind = before.or_else(|| self.init.as_ref().map(|init| init.base.clone()));
                    self.champion = Some(self.trials.len());
                    self.lead = None;
                    self.drift = None;
                } else if record.verdict.outcome == PROMISING {
                    self.lead = Some(self.trials.len());
                }
                if record.parent.is_some() || record.status != Status::Crash {
                    // a baseline that crashed may be tried again
                    self.tried.entry(record.source.clone()).or_insert(record.trial);
                }
                self.trials.push(*record);
            }
        }
    }

    /// What the tag is held to.
    pub fn init(&self) -> Option<&Init> {
        self.init.as_ref()
    }

    /// Every finished trial, oldest first.
    pub fn trials(&self) -> &[TrialRecord] {
        &self.trials
    }

    /// The last keep: the best by the rules, which is not always the lowest number.
    pub fn champion(&self) -> Option<&TrialRecord> {
        self.champion.map(|i| &self.trials[i])
    }

    /// The promising trial that later ones build on.
    pub fn lead(&self) -> Option<&TrialRecord> {
        self.lead.map(|i| &self.trials[i])
    }

    /// How the champion's latest run differs from those before; `None` while it was not run again.
    pub fn drift(&self) -> Option<Drift> {
        self.drift
    }

    /// Why the proposals since the last trial came to nothing, oldest first.
    pub fn in_vain(&self) -> &[String] {
        &self.in_vain
    }

    /// Mean seconds of a trial that was scored; 0 before there is one.
    pub fn seconds_a_trial(&self) -> f64 {
        let scored = self.trials.iter().filter(|record| record.value.is_some()).map(|record| record.seconds);
        mean(&scored.collect::<Vec<_>>()).unwrap_or(0.0)
    }

    /// How much of its runs was spent training.
    pub fn duty(&self) -> Duty {
        self.clock.duty()
    }

    /// Proposals that were made ahead and not used.
    pub fn wasted(&self) -> Wasted {
        self.wasted
    }

    /// Proposals that a reviewer refused before any time was spent on them.
    pub fn vetoes(&self) -> u64 {
        self.vetoes
    }

    /// Settings, sessions and mechanisms.
    pub fn search(&self) -> &Search {
        &self.search
    }

    /// Trials since a champion was last run again.
    pub fn since_rerun(&self) -> u32 {
        self.since_rerun
    }

    /// The promising trials that a trial carries, the latest first.
    pub fn carried(&self, latest: Option<u64>) -> impl Iterator<Item = &TrialRecord> {
        let record = |trial: Option<u64>| trial.and_then(|trial| self.trial(trial));
        std::iter::successors(record(latest), move |carried| record(carried.carries))
    }

    /// The first keep.
    pub fn baseline(&self) -> Option<&TrialRecord> {
        self.trials.iter().find(|record| record.status == Status::Keep)
    }

    /// The trial that had these files first.
    pub fn tried(&self, source: &TreeHash) -> Option<u64> {
        self.tried.get(source).copied()
    }

    /// Where the branch may still stand when the driver was killed before it could follow the last keep or
    /// the last base.
    pub fn behind(&self) -> Option<&str> {
        self.behind.as_deref()
    }

    /// A trial that was under way when the journal ends.
    pub fn open(&self) -> Option<u64> {
        self.open
    }

    /// Whether a finished trial or the open one took up this hint.
    pub fn hint_taken(&self, id: &str) -> bool {
        self.hints.contains(id) || self.open_hint.as_deref() == Some(id)
    }

    /// The latest run.
    pub fn run(&self) -> Option<&Begun> {
        self.run.as_ref()
    }

    /// When the pause began that the latest run was in at its last record, RFC 3339.
    pub fn paused_since(&self) -> Option<&str> {
        self.paused_since.as_deref()
    }

    /// What that pause waits for; `None` where a person asked for it.
    pub fn paused_why(&self) -> Option<&str> {
        self.paused_why.as_deref()
    }

    /// The number that the next trial gets; an abandoned one's is used again.
    pub fn next_trial(&self) -> u64 {
        self.trials.last().map_or(1, |record| record.trial + 1)
    }

    /// Proposals so far that came to an end, a trial or not. An abandoned one is made again.
    pub fn attempts(&self) -> u64 {
        self.attempts
    }

    /// Why the last run ended; `None` while one is running or after one was killed.
    pub fn last_stop(&self) -> Option<&str> {
        self.last_stop.as_deref()
    }

    /// How many trials ended so.
    pub fn count(&self, status: Status) -> usize {
        self.trials.iter().filter(|record| record.status == status).count()
    }

    /// What the tests of this tag have used up.
    pub fn risk(&self) -> Risk {
        let tests = self.trials.iter().filter(|record| record.verdict.level > 0.0);
        tests.fold(Risk::default(), |risk, record| {
            risk.after(record.verdict.level, record.verdict.outcome == IMPROVED)
        })
    }

    /// All runs of this tag that tell of its noise.
    pub fn replicates(&self) -> Vec<Replicates> {
        let mut all = Vec::new();
        for record in &self.trials {
            match record.parent.and_then(|parent| self.trial(parent)) {
                Some(parent) => all.extend(replicates(&record.values, parent.values.iter().copied())),
                None => all.push(Replicates::Alone(record.values.clone())),
            }
        }
        all
    }

    /// The same before the champion's latest run, which may be what a machine that drifts has made of it.
    pub(crate) fn before_latest_run(&self) -> Self {
        let mut before = self.clone();
        if let Some(champion) = before.champion
            && before.trials[champion].values.len() > 1
        {
            before.trials[champion].values.pop();
        }
        before
    }

    /// Trial `n`.
    pub fn trial(&self, n: u64) -> Option<&TrialRecord> {
        // numbers are given without gaps, from 1
        self.trials.get(usize::try_from(n.checked_sub(1)?).ok()?).filter(|record| record.trial == n)
    }
}

/// What a candidate's runs tell of the noise. Its first one is left out: had it been worse, there were no others.
pub fn replicates(candidate: &[f64], champion: impl Iterator<Item = f64>) -> Vec<Replicates> {
    let later = candidate.get(1..).unwrap_or_default().to_vec();
    let pairs = candidate.iter().zip(champion).skip(1).map(|(mine, theirs)| mine - theirs).collect();
    vec![Replicates::Alone(later), Replicates::Pair(pairs)]
}

/// The mean; `None` of nothing.
pub fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}
