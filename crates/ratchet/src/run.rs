//! The overnight loop: propose, try, keep or reset, until a stop rule says so.

use std::time::Duration;

use crate::{
    config::{Fallback, ProposerKind},
    error::Result,
    journal::{Event, Status, TrialRecord},
    measure::Failure,
    noise::{ENOUGH_DEGREES, Noise, Origin},
    progress::{Observer, Progress},
    proposer::{Proposer, Repair, knobs::Knobs},
    session::Session,
    stop::{Rules, Watch},
    trial::{Done, NotReady, Open},
    verdict::Rule,
};

/// Proposals in a row that come to nothing before the fallback takes over.
const PATIENCE: u32 = 10;
/// Trials between two further runs of the champion; these tell of the noise and of a machine that drifts.
const RERUN_EVERY: u32 = 30;
/// The same while σ rests on few degrees of freedom.
const RERUN_EVERY_AT_FIRST: u32 = 10;
/// The longest wait for a proposer that is down.
const LONGEST_WAIT: Duration = Duration::from_secs(300);

/// Whether the champion is to be run again before the next trial; `since`: trials since it last was.
///
/// Never without noise. Costs a run in thirty trials, 3 % of a night.
pub fn is_rerun_due(noise: &Noise, since: u32) -> bool {
    if noise.sigma() == Some(0.0) {
        return false;
    }
    let measured = matches!(noise.origin(), Origin::Measured(ENOUGH_DEGREES..));
    since >= if measured { RERUN_EVERY } else { RERUN_EVERY_AT_FIRST }
}

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub reason: String,
    /// Trials of this run.
    pub trials: u64,
    /// Time of this run.
    pub elapsed: Duration,
    /// The tag's first keep.
    pub baseline: Option<TrialRecord>,
    /// The champion.
    pub champion: Option<TrialRecord>,
    /// Keeps, discards and crashes of the tag.
    pub counts: [usize; 3],
}

/// How one turn of the loop went.
pub(crate) enum Turn {
    Trial(Box<TrialRecord>),
    Nothing(String),
    /// The proposer itself failed: it is given time, ever more.
    Down(String),
    Exhausted(String),
    Stopped,
}

impl Session {
    /// Runs until a stop rule, a signal or the proposer's end. Always leaves its reason in the journal.
    pub fn run(
        &mut self,
        rules: Rules,
        kind: Option<ProposerKind>,
        observer: &mut dyn Observer,
    ) -> Result<Summary> {
        let mut watch = Watch::start(rules, self.task.metric.goal, self.task.stop.max_crashes_in_a_row)?;
        let kind = kind.unwrap_or(self.task.proposer.kind);
        self.check_sandbox(kind == ProposerKind::Agent, observer)?;
        let mut proposer = self.proposer(kind, watch.has_cost_cap())?;
        self.journal.append(Event::RunStarted { at: now(), rules: watch.describe() })?;
        let result = self.run_loop(&mut watch, proposer.as_mut(), observer);
        let kept = self.keep_spread();
        let reason = match &result {
            Ok(reason) => reason.clone(),
            Err(error) => error.to_string(),
        };
        // after an error of the journal itself this fails as well; the first error is the one to show
        let ended = self.journal.append(Event::RunEnded { at: now(), reason });
        let reason = result?;
        ended?;
        kept?;
        let history = self.history();
        Ok(Summary {
            reason,
            trials: watch.trials,
            elapsed: watch.elapsed(),
            baseline: history.baseline().cloned(),
            champion: history.champion().cloned(),
            counts: [Status::Keep, Status::Discard, Status::Crash].map(|status| history.count(status)),
        })
    }

    fn run_loop(
        &mut self,
        watch: &mut Watch,
        first: &mut dyn Proposer,
        observer: &mut dyn Observer,
    ) -> Result<String> {
        const STOPPED: &str = "stopped by a signal";
        self.ensure_data(observer)?;
        if let Some(reason) = watch.reason(self.history().champion().and_then(|record| record.value)) {
            return Ok(reason);
        }
        if self.history().champion().is_none() {
            if self.ensure_baseline(observer)?.is_none() {
                return Ok(STOPPED.to_owned());
            }
            watch.count_trial(true, false);
        }
        let mut fallback: Option<Box<dyn Proposer>> = None;
        let mut in_vain = 0;
        let mut wait = Duration::from_secs(1);
        loop {
            if self.stop.is_set() {
                return Ok(STOPPED.to_owned());
            }
            if let Some(reason) = watch.reason(self.history().champion().and_then(|record| record.value)) {
                return Ok(reason);
            }
            let noise = self.noise(None);
            if self.task.accept.rule == Rule::Noise && is_rerun_due(&noise, self.history().since_rerun()) {
                match self.rerun_champion(observer)? {
                    Ok(()) => continue,
                    Err(Failure::Stopped) => return Ok(STOPPED.to_owned()),
                    // what ails the machine shows in the trials as well, and those have a stop rule
                    Err(Failure::Crash(crash)) => {
                        let reason = format!("the champion crashed when it was run again: {}", crash.reason);
                        observer.tell(Progress::Note(&reason));
                        continue;
                    }
                }
            }
            let proposer = match &mut fallback {
                Some(proposer) => proposer.as_mut(),
                None => &mut *first,
            };
            let turn = self.turn(watch, proposer, observer)?;
            let given_up = match turn {
                Turn::Stopped => return Ok(STOPPED.to_owned()),
                Turn::Trial(record) => {
                    watch.count_trial(record.status == Status::Keep, record.status == Status::Crash);
                    in_vain = 0;
                    wait = Duration::from_secs(1);
                    continue;
                }
                // the built-in search is never down: what stops it, stops it for good
                Turn::Down(reason) if proposer.name() == Knobs.name() => Some(reason),
                Turn::Down(reason) => {
                    self.no_proposal(proposer.name(), &reason, observer)?;
                    self.sleep(wait);
                    wait = (wait * 2).min(LONGEST_WAIT);
                    in_vain += 1;
                    None
                }
                Turn::Nothing(reason) => {
                    self.no_proposal(proposer.name(), &reason, observer)?;
                    in_vain += 1;
                    None
                }
                Turn::Exhausted(reason) => Some(format!("{}: {reason}", proposer.name())),
            };
            let given_up = given_up.or_else(|| {
                (in_vain >= PATIENCE)
                    .then(|| format!("{in_vain} proposals of {} in a row came to nothing", proposer.name()))
            });
            if let Some(reason) = given_up {
                let other = proposer.name() != Knobs.name();
                if fallback.is_some() || !other || self.task.proposer.fallback == Fallback::None {
                    return Ok(reason);
                }
                observer.tell(Progress::Note(&format!("{reason}; {} goes on", Knobs.name())));
                fallback = Some(Box::new(Knobs));
                in_vain = 0;
            }
        }
    }

    /// One proposal, and the trial that it leads to.
    fn turn(
        &mut self,
        watch: &mut Watch,
        proposer: &mut dyn Proposer,
        observer: &mut dyn Observer,
    ) -> Result<Turn> {
        observer.tell(Progress::Proposing { proposer: proposer.name() });
        let base = self.proposal_base()?;
        if base != self.champion() {
            self.worktree.restore(base, &self.repo.files(base)?)?;
        }
        let candidate = match self.propose(watch, proposer, None)? {
            Ok(candidate) => candidate,
            Err(turn) => {
                self.restore()?;
                return Ok(turn);
            }
        };
        let mut open = self.begin(candidate, observer)?;
        self.take_scratch(open.trial)?;
        let mut round = 0;
        loop {
            let (crash, message) = match self.make_ready(&mut open, observer)? {
                Ok(()) => {
                    return Ok(match self.finish(open, observer)? {
                        Done::Closed(record) => Turn::Trial(record),
                        Done::Stopped => Turn::Stopped,
                    });
                }
                Err(NotReady::Stopped) => {
                    self.abandon(open)?;
                    return Ok(Turn::Stopped);
                }
                Err(NotReady::Crash(crash, message)) => (crash, message),
            };
            round += 1;
            if round <= self.task.proposer.repairs {
                match self.repair(watch, proposer, &mut open, round, message, observer)? {
                    Repaired::Yes => continue,
                    Repaired::No => {}
                    Repaired::Stopped => {
                        self.abandon(open)?;
                        return Ok(Turn::Stopped);
                    }
                }
            }
            return Ok(match self.close_crashed(open, crash, observer)? {
                Done::Closed(record) => Turn::Trial(record),
                Done::Stopped => Turn::Stopped,
            });
        }
    }

    /// Hands a failed candidate back to its proposer.
    fn repair(
        &mut self,
        watch: &mut Watch,
        proposer: &mut dyn Proposer,
        open: &mut Open,
        round: u32,
        message: String,
        observer: &mut dyn Observer,
    ) -> Result<Repaired> {
        observer.tell(Progress::Proposing { proposer: proposer.name() });
        let failed = open.candidate.proposal.clone();
        match self.propose(watch, proposer, Some(Repair { failed, round, message }))? {
            Ok(candidate) if candidate.source == open.candidate.source => Ok(Repaired::No),
            Ok(mut candidate) => {
                if candidate.proposal.description.is_empty() {
                    candidate.proposal.description = open.candidate.proposal.description.clone();
                }
                self.take_scratch(open.trial)?;
                self.mend(open, candidate)?;
                Ok(Repaired::Yes)
            }
            Err(Turn::Stopped) => Ok(Repaired::Stopped),
            Err(_) => Ok(Repaired::No),
        }
    }

    fn no_proposal(&mut self, proposer: &str, reason: &str, observer: &mut dyn Observer) -> Result<()> {
        observer.tell(Progress::NoProposal { reason });
        self.journal.append(Event::NoProposal { proposer: proposer.to_owned(), reason: reason.to_owned() })
    }

    /// Waits, but not when a stop is asked for.
    fn sleep(&self, wait: Duration) {
        let until = std::time::Instant::now() + wait;
        while std::time::Instant::now() < until && !self.stop.is_set() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

enum Repaired {
    Yes,
    No,
    Stopped,
}

fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Second).unwrap_or_default().to_string()
}
