//! The overnight loop: propose, try, keep or reset, until a stop rule says so.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use crate::{
    ahead::{Draft, Folder},
    companion::Companion,
    config::ProposerKind,
    control::{self, Control},
    demand::structural_share,
    error::{Error, Result},
    hire::take_scratch,
    journal::{Event, Status, TrialRecord},
    measure::Failure,
    noise::{ENOUGH_DEGREES, Noise, Origin},
    patience::{Next, Patience},
    progress::{Observer, Progress},
    proposer::{Nothing, Proposer, Repair, knobs::Knobs},
    proposing::{Ask, NoCandidate, Proposed},
    review::Limit,
    search::{Levels, Use},
    session::Session,
    stop::{Ending, Rules, Watch},
    trial::{Done, NotReady, Open},
    verdict::Rule,
};

/// Trials between two further runs of the champion; these tell of the noise and of a machine that drifts.
const RERUN_EVERY: u32 = 30;
/// The same while σ rests on few degrees of freedom.
const RERUN_EVERY_AT_FIRST: u32 = 10;
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

/// The reason of a run that a signal ended.
pub(crate) const SIGNALLED: &str = "stopped by a signal";

/// What a run came to.
#[derive(Clone, Debug)]
pub struct Summary {
    /// Why it ended.
    pub reason: String,
    /// The same as a kind.
    pub ending: Ending,
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
    /// What a person is to know of keeps that nobody has reviewed; `None` where there are none.
    pub review: Option<String>,
}

/// How one turn of the loop went.
enum Turn {
    Trial(Box<TrialRecord>),
    None(Vain),
    Stopped,
}

/// A proposal that gave no candidate.
struct Vain {
    /// Who was asked.
    proposer: String,
    why: NoCandidate,
    /// The folder of what was said.
    said: PathBuf,
    /// What mechanisms did.
    uses: Vec<Use>,
}

/// One invocation's loop.
struct Shift<'a> {
    watch: &'a mut Watch,
    /// The proposer that the task, or the user, names.
    named: &'a mut dyn Proposer,
    kind: ProposerKind,
    patience: Patience,
    /// What a person wishes meanwhile.
    control: Control,
    /// When it waits for a person to review.
    limit: Limit,
    /// What was last found wrong in `program.md`.
    noted: Option<String>,
    /// Whether proposals may be made while trials train.
    lookahead: bool,
    /// What makes the next one.
    ahead: Option<Companion>,
    /// Whether it ends because nobody is left who proposes.
    given_up: bool,
}

impl Shift<'_> {
    /// Whether the trial that begins will be followed by one for which a proposal can be made already.
    fn wants_another(&self) -> bool {
        self.lookahead
            && self.ahead.is_none()
            && self.watch.budget().trials.is_none_or(|left| left > 1)
            && self.patience.next(Instant::now()) == Next::Named
    }
}

/// Who works on a run; what is not said is as `ratchet.toml` has it.
#[derive(Default)]
pub struct Crew {
    /// Who proposes.
    pub kind: Option<ProposerKind>,
    /// How much of the search may change.
    pub levels: Option<Levels>,
    /// A proposer that no configuration names, in the place of `kind`'s.
    pub proposer: Option<Box<dyn Proposer>>,
}

impl Session {
    /// Runs until a stop rule, a signal or the proposer's end. Always leaves its reason in the journal.
    pub fn run(&mut self, rules: Rules, crew: Crew, observer: &mut dyn Observer) -> Result<Summary> {
        (self.payer.max_tokens, self.payer.max_usd) = (rules.max_tokens, rules.max_usd);
        let mut watch = Watch::start(rules, self.task.metric.goal, self.task.stop.max_crashes_in_a_row)?;
        let kind = crew.kind.unwrap_or(self.task.proposer.kind);
        self.levels = match self.night.is_some() {
            true => Levels::default(), // what it led to is in the recording
            false => crew.levels.unwrap_or_else(|| self.task.search.levels.into()),
        };
        self.check_sandbox(matches!(kind, ProposerKind::Llm | ProposerKind::Agent), observer)?;
        let mut named = crew.proposer.map_or_else(|| self.desk().hire(kind), Ok)?;
        let patience = Patience::new(named.name(), self.task.proposer.fallback);
        let control = Control::listen(&self.state)?;
        let limit = self.review_limit();
        self.journal.append(Event::RunStarted { at: now(), rules: watch.describe() })?;
        let lookahead =
            self.task.proposer.lookahead && matches!(kind, ProposerKind::Llm | ProposerKind::Agent);
        let mut shift = Shift {
            watch: &mut watch,
            named: named.as_mut(),
            kind,
            patience,
            control,
            limit,
            noted: None,
            lookahead,
            ahead: None,
            given_up: false,
        };
        let mut result = self.run_loop(&mut shift, observer);
        shift.ahead = None; // it ends before its run does
        if result.as_ref().is_ok_and(|reason| reason == SIGNALLED) && shift.control.wish().ends() {
            result = Ok(control::STOPPED.to_owned()); // `--now` comes as a signal
        }
        let given_up = shift.given_up;
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
        let review = self.review_limit().at_the_end(history);
        Ok(Summary {
            ending: watch.ending(&reason, given_up),
            reason,
            trials: watch.trials,
            elapsed: watch.elapsed(),
            baseline: history.baseline().cloned(),
            champion: history.champion().cloned(),
            counts: [Status::Keep, Status::Discard, Status::Crash].map(|status| history.count(status)),
            review: review.unwrap_or_else(|error| Some(error.to_string())),
        })
    }

    fn review_limit(&self) -> Limit {
        let mut limit = Limit::of(&self.task.review, &self.state, &self.tag);
        if self.night.is_some() {
            limit.lift(); // who plays a night back waits for nobody
        }
        limit
    }

    fn run_loop(&mut self, shift: &mut Shift<'_>, observer: &mut dyn Observer) -> Result<String> {
        if let Ok(Some(warning)) = shift.limit.warning(self.history()) {
            observer.tell(Progress::Note(&warning)); // decisions that cannot be read are told of below
        }
        self.ensure_data(observer)?;
        if let Some(reason) = self.end_of(shift.watch) {
            return Ok(reason);
        }
        if self.history().champion().is_none() {
            if shift.wants_another() {
                let budget = shift.watch.budget();
                shift.ahead = self.look_ahead(shift.kind, budget, None, observer);
            }
            if self.ensure_baseline(observer)?.is_none() {
                return Ok(SIGNALLED.to_owned());
            }
            shift.watch.count_trial(true, false);
        }
        loop {
            let spent = self.state.spent_in(&self.payer.run)?;
            shift.watch.set_spent(spent.tokens, spent.usd);
            if let Some(reason) = self.heed(&shift.control, &mut shift.limit, shift.watch, observer)? {
                return Ok(reason);
            }
            self.note_program(&mut shift.noted, observer)?;
            self.tend_search(self.levels, shift.named.name(), observer)?;
            let noise = self.noise(None);
            if self.task.accept.rule == Rule::Noise && is_rerun_due(&noise, self.history().since_rerun()) {
                match self.rerun_champion(observer)? {
                    Ok(()) => continue,
                    Err(Failure::Stopped) => return Ok(SIGNALLED.to_owned()),
                    // what ails the machine shows in the trials as well, and those have a stop rule
                    Err(Failure::Crash(crash)) => {
                        let reason = format!("the champion crashed when it was run again: {}", crash.reason);
                        observer.tell(Progress::Note(&reason));
                        continue;
                    }
                }
            }
            if shift.kind == ProposerKind::Llm && self.task.proposer.has_analyst() {
                self.note_weak_rows(observer)?;
            }
            let stands_in = match shift.patience.next(Instant::now()) {
                Next::Named => false,
                Next::StandIn => true,
                Next::Wait(wait) => {
                    self.sleep(wait.min(Duration::from_secs(1))); // the clock may end the run meanwhile
                    continue;
                }
            };
            let turn = match self.night.is_some() {
                true => self.recorded_turn(observer)?,
                false => self.turn(shift, stands_in, observer)?,
            };
            let vain = match turn {
                Turn::Stopped => return Ok(SIGNALLED.to_owned()),
                Turn::Trial(record) => {
                    tell_faults(&record.uses, observer);
                    shift.watch.count_trial(record.status == Status::Keep, record.status == Status::Crash);
                    if !stands_in {
                        shift.patience.trial();
                    }
                    continue;
                }
                Turn::None(vain) => vain,
            };
            if let Some(reason) = self.without_candidate(shift, stands_in, vain, observer)? {
                return Ok(reason);
            }
        }
    }

    /// What becomes of a run after a proposal that gave no candidate: the reason when it is to end.
    fn without_candidate(
        &mut self,
        shift: &mut Shift<'_>,
        stands_in: bool,
        vain: Vain,
        observer: &mut dyn Observer,
    ) -> Result<Option<String>> {
        let Vain { proposer: name, why, said, uses } = vain;
        let name = name.as_str();
        let given_up = match why {
            NoCandidate::Stopped => return Ok(None), // the loop sees the flag
            NoCandidate::Capped(reason) => return Ok(Some(reason)),
            // nothing will change by waiting, and nobody is asleep yet
            NoCandidate::Unusable(reason) if !shift.patience.proven => {
                return Err(Error::environment(reason));
            }
            // the built-in search is never down: what stops it, stops it for good
            NoCandidate::Nothing(Nothing::Down, reason) if name == Knobs.name() => {
                format!("{name}: {reason}")
            }
            NoCandidate::Exhausted(reason) => format!("{name}: {reason}"),
            NoCandidate::Unusable(reason) => {
                self.no_proposal(name, Nothing::Down, &reason, &said, uses, observer)?;
                shift.patience.nothing(Nothing::Down, name, Instant::now());
                return Ok(None);
            }
            NoCandidate::Nothing(kind, reason) => {
                self.no_proposal(name, kind, &reason, &said, uses, observer)?;
                if stands_in || self.night.is_some() {
                    return Ok(None);
                }
                match shift.patience.nothing(kind, name, Instant::now()) {
                    Some(reason) => reason,
                    None => return Ok(None),
                }
            }
        };
        let goes_on = if stands_in { shift.patience.no_stand_in() } else { shift.patience.give_up() };
        if !goes_on {
            shift.given_up = true;
            return Ok(Some(given_up));
        }
        if !stands_in {
            observer.tell(Progress::Note(&format!("{given_up}; {} goes on", Knobs.name())));
        }
        Ok(None)
    }

    /// Says once what is wrong with the line of `program.md` that the driver reads.
    fn note_program(&self, noted: &mut Option<String>, observer: &mut dyn Observer) -> Result<()> {
        let wrong = structural_share(&self.desk().program()?).err();
        if wrong != *noted {
            wrong.iter().for_each(|wrong| observer.tell(Progress::Note(wrong)));
            *noted = wrong;
        }
        Ok(())
    }

    /// The stop rule that ends the run now.
    pub(crate) fn end_of(&self, watch: &Watch) -> Option<String> {
        watch.reason(self.history().champion().and_then(|record| record.value))
    }

    /// One proposal, and the trial that it leads to.
    fn turn(&mut self, shift: &mut Shift<'_>, stands_in: bool, observer: &mut dyn Observer) -> Result<Turn> {
        let proposer: &mut dyn Proposer = if stands_in { &mut Knobs } else { shift.named };
        observer.tell(Progress::Proposing { proposer: proposer.name() });
        let ahead = Folder::of(&self.dir);
        let made = match shift.lookahead && !stands_in {
            false => None,
            true => self.take_ahead(shift.ahead.take(), observer)?,
        };
        let (draft, scratch) = match made {
            Some(Ok(draft)) => (draft, ahead.scratch()),
            Some(Err((why, uses))) => {
                let proposer = proposer.name().to_owned();
                return Ok(Turn::None(Vain { proposer, why, said: ahead.scratch(), uses }));
            }
            None => {
                let uses;
                self.chosen = None;
                (self.chosen, uses) = self.desk().choose_start(proposer.name(), None)?;
                let base = self.desk().start_commit(proposer.name())?;
                if base != self.champion() {
                    self.worktree.restore(base, &self.repo.files(base)?)?;
                }
                let ask = Ask { budget: shift.watch.budget(), uses, ..Ask::default() };
                let Proposed { outcome, uses } = self.desk().propose(proposer, &ask)?;
                match outcome {
                    Ok(candidate) => (Draft { candidate, built: false, round: 0 }, self.desk().scratch),
                    Err(why) => {
                        self.restore()?;
                        let proposer = proposer.name().to_owned();
                        return Ok(Turn::None(Vain { proposer, why, said: self.desk().scratch, uses }));
                    }
                }
            }
        };
        if shift.control.wish().ends() {
            self.restore()?; // asked for while there was no trial
            return Ok(Turn::Stopped);
        }
        let Draft { candidate, mut built, mut round } = draft;
        let mut open = self.begin(candidate, observer)?;
        take_scratch(&scratch, &self.dir.trial(open.trial))?;
        loop {
            let ready = match std::mem::take(&mut built) {
                true => self.make_ready_from(&ahead.run(), &mut open, observer)?,
                false => self.make_ready(&mut open, observer)?,
            };
            let (crash, message) = match ready {
                Ok(()) => {
                    if shift.wants_another() {
                        shift.ahead = self.look_ahead(
                            shift.kind,
                            shift.watch.budget(),
                            Some(&open.candidate),
                            observer,
                        );
                    }
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
                match self.repair(shift.watch, proposer, &mut open, round, message, observer)? {
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

    /// The same from a recorded night.
    fn recorded_turn(&mut self, observer: &mut dyn Observer) -> Result<Turn> {
        let (name, candidate) = self.play()?;
        let candidate = match candidate {
            Ok(candidate) => candidate,
            Err(why) => {
                let said = self.desk().scratch;
                return Ok(Turn::None(Vain { proposer: name, why, said, uses: Vec::new() }));
            }
        };
        Ok(match self.run_trial(candidate, observer)? {
            Done::Closed(record) => Turn::Trial(record),
            Done::Stopped => Turn::Stopped,
        })
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
        let repair = Some(Repair { failed: open.candidate.proposal.clone(), round, message });
        let demand = open.candidate.demand.clone();
        let ask = Ask { budget: watch.budget(), repair, demand, ..Ask::default() };
        match self.desk().propose(proposer, &ask)?.outcome {
            Ok(candidate) if candidate.source == open.candidate.source => Ok(Repaired::No),
            Ok(mut candidate) => {
                candidate.stand_for(&open.candidate);
                take_scratch(&self.desk().scratch, &self.dir.trial(open.trial))?;
                self.mend(open, candidate)?;
                Ok(Repaired::Yes)
            }
            Err(NoCandidate::Stopped) => Ok(Repaired::Stopped),
            Err(_) => Ok(Repaired::No),
        }
    }

    fn no_proposal(
        &mut self,
        proposer: &str,
        kind: Nothing,
        reason: &str,
        said: &Path,
        uses: Vec<Use>,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        take_scratch(said, &self.dir.attempt(self.history().attempts()))?;
        tell_faults(&uses, observer);
        observer.tell(Progress::NoProposal { reason });
        let (proposer, reason) = (proposer.to_owned(), reason.to_owned());
        self.journal.append(Event::NoProposal { proposer, reason, kind, uses })
    }

    /// Waits, but not when a stop is asked for.
    pub(crate) fn sleep(&self, wait: Duration) {
        let until = Instant::now() + wait;
        while Instant::now() < until && !self.stop.is_set() {
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

enum Repaired {
    Yes,
    No,
    Stopped,
}

/// Says which mechanisms have failed.
fn tell_faults(uses: &[Use], observer: &mut dyn Observer) {
    for used in uses {
        if let Some(fault) = &used.fault {
            observer.tell(Progress::Note(&format!("mechanism {} failed and is off: {fault}", used.id)));
        }
    }
}

/// This moment, as the journal has it.
pub(crate) fn now() -> String {
    jiff::Timestamp::now().round(jiff::Unit::Millisecond).unwrap_or_default().to_string()
}
