//! Mechanisms at work on one proposal: whose hooks are called, what they answer, what of it is used.
//!
//! A mechanism whose turn it is not (its control) is not called. One that fails is let go for the rest of the
//! proposal, and what it did is written down with the fault; the proposal goes on as if it were not there.

use std::{collections::BTreeMap, env, ffi::OsString, path::PathBuf};

use mechanism::{Change, Child, Fault, Hook, Host, Limits, Suggestion, Trace};
use serde_json::Value;

use super::{Mechanism, Standing, Use, adoption::is_on, library::Library, memory::Memory};
use crate::{config::Goal, proposer::knobs::Tunables, runlog::plain};

/// The hidden command of the process that runs a script.
pub const COMMAND: &str = "mechanism";
/// Bytes of a fault that are written down.
const FAULT: usize = 300;

/// How this program starts a script's process.
pub(crate) fn child() -> Child {
    let running = PathBuf::from("/proc/self/exe");
    let program = if running.exists() { running } else { env::current_exe().unwrap_or(running) };
    Child { program, arguments: vec![OsString::from(COMMAND)] }
}

/// The mechanisms of a tag, for one proposal.
pub(crate) struct Staff {
    members: Vec<Member>,
    trace: Trace,
    pub(crate) tunables: Tunables,
    pub(crate) goal: Goal,
}

struct Member {
    used: Use,
    /// Whether it is called at all.
    called: bool,
    script: Result<String, String>,
    state: Value,
    host: Option<Host>,
}

impl Staff {
    /// Nobody: a proposal of level 1.
    pub(crate) fn nobody(goal: Goal) -> Self {
        Self { members: Vec::new(), trace: Trace::default(), tunables: Tunables::default(), goal }
    }

    /// Those that are live. `running`: the mechanisms of a trial that is under way, which counts as one more of theirs.
    /// `silent`: nobody is called this time, whoever's turn it is.
    pub(crate) fn of<'m>(
        live: impl Iterator<Item = &'m Mechanism>,
        tag: &str,
        running: &[String],
        silent: bool,
        library: &Library,
        memory: &Memory,
        (trace, tunables, goal): (Trace, Tunables, Goal),
    ) -> Self {
        let member = |known: &Mechanism| {
            let nth = known.trialled.len() as u64 + u64::from(running.contains(&known.id));
            let on = is_on(tag, &known.id, nth, known.standing == Standing::Adopted);
            let script = match on && !silent {
                true => library.script(&known.id).map_err(|error| error.to_string()),
                false => Ok(String::new()), // not called
            };
            Member {
                used: Use { id: known.id.clone(), on, ..Use::default() },
                called: on && !silent,
                script,
                state: memory.state(&known.id),
                host: None,
            }
        };
        Self { members: live.map(member).collect(), trace, tunables, goal }
    }

    /// Whether there is anybody to ask.
    pub(crate) fn is_empty(&self) -> bool {
        self.members.is_empty()
    }

    /// What they did, each once.
    pub(crate) fn uses(self) -> Vec<Use> {
        self.members.into_iter().map(|member| member.used).collect()
    }

    /// Ends their processes for now: when an agent is done, whatever runs below the driver is ended.
    pub(crate) fn rest(&mut self) {
        self.members.iter_mut().for_each(|member| member.host = None);
    }

    /// What they say to the next proposer.
    pub(crate) fn guide(&mut self) -> Vec<String> {
        let mut texts = Vec::new();
        for member in &mut self.members {
            if let Some(Some(text)) = member.call(Hook::Guide, |host, state| host.guide(state, &self.trace)) {
                member.acted(Hook::Guide);
                texts.push(text);
            }
        }
        texts
    }

    /// Their own proposals, with who makes each.
    pub(crate) fn suggest(&mut self) -> Vec<(String, Suggestion)> {
        let mut suggestions = Vec::new();
        for member in &mut self.members {
            let knobs = &self.trace.knobs;
            let answer = member.call(Hook::Suggest, |host, state| host.suggest(state, knobs, &self.trace));
            suggestions.extend(answer.flatten().map(|suggestion| (member.used.id.clone(), suggestion)));
        }
        suggestions
    }

    /// Notes that a suggestion became the candidate.
    pub(crate) fn suggestion_used(&mut self, id: &str) {
        self.members
            .iter_mut()
            .filter(|member| member.used.id == id)
            .for_each(|member| member.acted(Hook::Suggest));
    }

    /// The order in which candidates are taken, best first. Where several order them, each is followed in turn.
    pub(crate) fn rank(&mut self, candidates: &[Change]) -> Vec<usize> {
        let mut order: Vec<usize> = (0..candidates.len()).collect();
        if candidates.len() < 2 {
            return order;
        }
        for member in &mut self.members {
            let Some(answer) =
                member.call(Hook::Rank, |host, state| host.rank(state, candidates, &self.trace))
            else {
                continue;
            };
            if answer.first() != order.first() {
                member.acted(Hook::Rank);
            }
            order = answer;
        }
        order
    }

    /// Why a candidate is not tried, and who says so.
    pub(crate) fn veto(&mut self, change: &Change) -> Option<String> {
        for member in &mut self.members {
            let answer = member.call(Hook::Veto, |host, state| host.veto(state, change, &self.trace));
            if let Some(Some(reason)) = answer {
                member.acted(Hook::Veto);
                return Some(format!("{}: {reason}", member.used.id));
            }
        }
        None
    }

    /// Where an excursion starts, among the trials where it may.
    pub(crate) fn parent(&mut self, allowed: &[u64]) -> Option<u64> {
        for member in &mut self.members {
            let answer = member.call(Hook::Parent, |host, state| host.parent(state, allowed, &self.trace));
            if let Some(Some(trial)) = answer {
                member.acted(Hook::Parent);
                return Some(trial);
            }
        }
        None
    }

    /// Adds what was done for the same proposal before.
    pub(crate) fn add(&mut self, earlier: &[Use]) {
        for member in &mut self.members {
            if let Some(earlier) = earlier.iter().find(|earlier| earlier.id == member.used.id) {
                let mut used = earlier.clone();
                add(&mut used.calls, &member.used.calls);
                add(&mut used.acted, &member.used.acted);
                member.used = used;
            }
        }
    }
}

impl Member {
    /// Calls a hook of it, if it has that one and its turn is now. A fault is written down and ends its work.
    fn call<T>(&mut self, hook: Hook, act: impl FnOnce(&mut Host, &Value) -> Result<T, Fault>) -> Option<T> {
        if !self.called || self.used.fault.is_some() {
            return None;
        }
        let answer = self.host().and_then(|()| {
            let host = self.host.as_mut().filter(|host| host.hooks().contains(&hook));
            host.map(|host| {
                *self.used.calls.entry(hook).or_default() += 1;
                act(host, &self.state).map_err(|fault| fault.to_string())
            })
            .transpose()
        });
        answer.unwrap_or_else(|fault| {
            self.used.fault = Some(plain(&fault, FAULT));
            self.host = None;
            None
        })
    }

    fn host(&mut self) -> Result<(), String> {
        if self.host.is_none() {
            let script = self.script.clone()?;
            let host = Host::start(&child(), &script, &Limits::default());
            self.host = Some(host.map_err(|fault| fault.to_string())?);
        }
        Ok(())
    }

    fn acted(&mut self, hook: Hook) {
        *self.used.acted.entry(hook).or_default() += 1;
    }
}

fn add(to: &mut BTreeMap<Hook, u64>, more: &BTreeMap<Hook, u64>) {
    more.iter().for_each(|(hook, times)| *to.entry(*hook).or_default() += times);
}
