//! What is done about the search between two trials: what a person wishes, what mechanisms remember, who stays, and
//! whether it is time to look at settings or to hold a session.

use mechanism::{BUILTIN, Hook, Limits, PAGE, validate};

use super::{
    Change, Levels, Research, Standing,
    cycle::{CycleEnd, cycle},
    evidence::{Ground, Known},
    library::Library,
    memory::Memory,
    research::{Outcome, Workshop, session},
    staff::child,
    trace::trial,
    voice::Voice,
};
use crate::{
    error::Result,
    excursion::PLATEAU,
    journal::{Event, Status},
    progress::{Observer, Progress},
    run::now,
    session::Session,
};

/// Mechanisms in use at once that a person can switch on.
pub(crate) const MOST_LIVE: usize = 16;

impl Session {
    /// Does what is due. `proposer`: who makes the proposals.
    pub(crate) fn tend_search(
        &mut self,
        levels: Levels,
        proposer: &str,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        if levels.research.has_mechanisms() {
            self.follow_wishes(observer)?;
            self.have_recorded(proposer, observer)?;
            self.judge_mechanisms(observer)?;
        }
        if levels.settings && self.is_cycle_due() {
            self.hold_cycle(proposer, observer)?;
        }
        if self.is_restart_due(levels.research) {
            match levels.research {
                Research::No | Research::Mechanisms => {}
                Research::Restarts => self.journal.append(Event::Restarted { at: now() })?,
                Research::Sessions { hints } => self.hold_session(proposer, hints, observer)?,
            }
        }
        Ok(())
    }

    /// Switches on and off what a person wishes to be.
    fn follow_wishes(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let library = Library::of(&self.state);
        let wishes = match library.wishes() {
            Ok(wishes) => wishes,
            Err(error) => {
                let note = format!("nothing is switched on or off by hand: {error}");
                if self.noted.as_deref() != Some(&note) {
                    observer.tell(Progress::Note(&note));
                    self.noted = Some(note);
                }
                return Ok(());
            }
        };
        for (id, wish) in wishes {
            let known = self.history().search().mechanisms().get(&id);
            // an older wish was followed, or decided about since
            let is_new = known.is_none_or(|known| wish.at > known.at);
            let live = known.is_some_and(|known| known.standing.is_live());
            let full = self.history().search().mechanisms().live().count() >= MOST_LIVE;
            if !is_new || live == wish.on || !wish.on && known.is_none() || wish.on && full {
                continue;
            }
            let (to, reason) = match wish.on {
                true => (Standing::Canary, "switched on by hand".to_owned()),
                false => (Standing::Disabled, "switched off by hand".to_owned()),
            };
            if wish.on {
                Memory::of(&self.dir).forget(&id)?;
            }
            self.change_mechanism(&id, to, reason, observer)?;
        }
        Ok(())
    }

    /// Has every live mechanism record what it has not seen yet.
    fn have_recorded(&mut self, proposer: &str, observer: &mut dyn Observer) -> Result<()> {
        let live = self.live_ids();
        if live.is_empty() {
            return Ok(());
        }
        let tunables = self.desk().tunables(proposer)?;
        let goal = self.task.metric.goal;
        let trials: Vec<_> = self
            .history()
            .trials()
            .iter()
            .map(|record| trial(self.history(), record, &tunables, goal))
            .collect();
        let (library, memory) = (Library::of(&self.state), Memory::of(&self.dir));
        for id in live {
            let Ok(script) = library.script(&id) else { continue }; // its first call says so
            if memory.is_of_another(&id, &script) {
                let why = format!(
                    "its script was changed while it was in use; `ratchet mechanisms enable {id}` puts it on trial anew"
                );
                self.change_mechanism(&id, Standing::Faulted, why, observer)?;
                continue;
            }
            let updated = match memory.update(&id, &script, &trials) {
                Ok(updated) => updated,
                Err(error) => {
                    // what it remembers only saves work
                    observer.tell(Progress::Note(&format!("what {id} remembers is not kept: {error}")));
                    continue;
                }
            };
            match updated {
                Ok(true) => observer.tell(Progress::Note(&format!(
                    "what the mechanism {id} remembers could not be used and was made again"
                ))),
                Ok(false) => {}
                Err(fault) => {
                    self.change_mechanism(&id, Standing::Faulted, fault.to_string(), observer)?;
                }
            }
        }
        Ok(())
    }

    /// Decides who stays, from what was measured.
    fn judge_mechanisms(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let ids = self.live_ids();
        for id in ids {
            // a canary that has passed is on trial, and may be judged at once
            while let Some((to, why)) = self.decided(&id) {
                self.change_mechanism(&id, to, why, observer)?;
            }
        }
        Ok(())
    }

    fn live_ids(&self) -> Vec<String> {
        self.history().search().mechanisms().live().map(|known| known.id.clone()).collect()
    }

    fn decided(&self, id: &str) -> Option<(Standing, String)> {
        let history = self.history();
        let known = history.search().mechanisms().get(id).filter(|known| known.standing.is_live())?;
        let before = &history.trials()[..known.since.min(history.trials().len())];
        let crashes = before.iter().filter(|record| record.status == Status::Crash).count();
        known.decided(crashes, before.len())
    }

    fn change_mechanism(
        &mut self,
        id: &str,
        to: Standing,
        reason: String,
        observer: &mut dyn Observer,
    ) -> Result<()> {
        observer.tell(Progress::Note(&format!("mechanism {id}: {}, {reason}", to.as_str())));
        self.journal.append(Event::Mechanism(Change { at: now(), id: id.to_owned(), to, reason }))
    }

    fn is_cycle_due(&self) -> bool {
        let (trials, last) = (self.history().trials().len(), self.history().search().cycles().last);
        trials >= last + self.task.search.cycle as usize
    }

    /// After so many trials without a keep since the last restart, or when so many cycles are over.
    fn is_restart_due(&self, research: Research) -> bool {
        let history = self.history();
        let (trials, last) = (history.trials().len(), history.search().restarted());
        let champion = history.champion().map_or(0, |champion| champion.trial as usize);
        let every = self.task.search.session_every as usize * self.task.search.cycle as usize;
        let plateau = trials >= last.max(champion) + PLATEAU;
        research != Research::No && (plateau || every > 0 && trials >= last + every)
    }

    fn hold_cycle(&mut self, proposer: &str, observer: &mut dyn Observer) -> Result<()> {
        observer.tell(Progress::Searching { what: "looks at the settings of the search" });
        let records = self.dir.path().join("settings");
        let end = match self.asked(proposer, |ground, voice| cycle(ground, voice, &records)) {
            Ok(end) if end.stopped => return Ok(()),
            Ok(end) => end,
            // it cannot be stored: where that is the disk, the trial will say so
            Err(error) => CycleEnd::failed(self.history().search().settings(), error.to_string()),
        };
        let said = match &end.fault {
            Some(fault) => format!("the settings stay as they are: {fault}"),
            None => format!("settings of the search: {}", end.diagnosis),
        };
        observer.tell(Progress::Note(&said));
        self.journal.append(Event::Cycle { at: now(), end: Box::new(end) })
    }

    fn hold_session(&mut self, proposer: &str, hints: bool, observer: &mut dyn Observer) -> Result<()> {
        observer.tell(Progress::Searching { what: "looks for a new mechanism of the search" });
        let library = Library::of(&self.state);
        let end = match self.asked(proposer, |ground, voice| {
            let valid = |script: &str| {
                let past = std::slice::from_ref(ground.trace);
                let found = validate(&child(), script, &Limits::default(), past);
                found.map(|found| found.hooks).map_err(|rejection| rejection.to_string())
            };
            let workshop = Workshop { page: PAGE, example: BUILTIN[0].script, validate: &valid, hints };
            session(ground, voice, &workshop, library.path())
        }) {
            Ok(end) => end,
            Err(error) => {
                // not again before each trial
                observer.tell(Progress::Note(&format!("no research session: {error}")));
                return self.journal.append(Event::Restarted { at: now() });
            }
        };
        let said = match &end.outcome {
            Outcome::Stopped => return Ok(()),
            Outcome::NoneSelected => "no new mechanism: none was worth writing".to_owned(),
            Outcome::Failed { reason } => format!("no new mechanism: {reason}"),
            Outcome::Mechanism { name, what, .. } => format!("new mechanism {}, {name}: {what}", end.id),
        };
        observer.tell(Progress::Note(&said));
        self.journal.append(Event::Session { at: now(), end: Box::new(end) })
    }

    /// Has `act` ask about the search as it stands.
    fn asked<T>(
        &self,
        proposer: &str,
        act: impl FnOnce(&Ground<'_>, &mut Voice<'_>) -> Result<T>,
    ) -> Result<T> {
        let desk = self.desk();
        let (program, known) = (desk.program()?, self.known_mechanisms());
        let trace = desk.trace(&desk.tunables(proposer)?, false);
        let ground = Ground {
            program: &program,
            metric: &self.task.metric,
            trace: &trace,
            settings: self.history().search().settings(),
            mechanisms: &known,
        };
        desk.with_voice(|voice| act(&ground, voice))?
    }

    /// What became of the mechanisms so far.
    fn known_mechanisms(&self) -> Vec<Known> {
        let library = Library::of(&self.state);
        let search = self.history().search();
        let known = search.mechanisms().iter().map(|known| {
            let script = library.script(&known.id).unwrap_or_default();
            let [on, off] = known.trials();
            // by its text: one that was never called has hooks as well
            let has = |hook: &Hook| script.contains(&format!("fn {hook}("));
            Known {
                id: known.id.clone(),
                name: known.name.clone(),
                hooks: Hook::ALL.into_iter().filter(has).collect(),
                standing: known.standing.as_str().to_owned(),
                why: known.reason.clone(),
                calls: known.calls.clone(),
                acted: known.acted.clone(),
                trials_on: on as u64,
                trials_off: off as u64,
                effect: known.effect(),
                script,
            }
        });
        known.collect()
    }
}
