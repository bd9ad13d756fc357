//! Mechanisms and settings at the desk: who is called for a proposal, what they suggest, what they refuse.

use mechanism::{Suggestion, Trace};

use super::{
    Use,
    library::Library,
    memory::Memory,
    staff::Staff,
    trace::{self, own_changes, trace},
};
use crate::{
    ahead::Running,
    candidate::{Candidate, Refusal},
    edit_class::EditClass,
    error::Result,
    excursion,
    proposer::{
        Demand, Edit, KnobChange, Nothing, Proposal,
        knobs::{self, Tunables},
    },
    proposing::{Ask, Desk, NoCandidate, Wish, proposal_seed},
};

/// What a suggestion's proposer is called: this, and the mechanism.
pub(crate) const MECHANISM: &str = "mechanism/";
/// Proposals in vain after which the next one is made as at level 1: what guides a proposer, or refuses what it makes,
/// may leave it nothing to propose.
const IN_VAIN: usize = 3;
/// Of so many trials one is never a mechanism's suggestion.
const OWN_EVERY: u64 = 4;

impl Desk<'_> {
    /// Why the search itself is against a candidate: a person's hint goes over what is frozen, and nothing is refused
    /// for ever.
    pub(crate) fn steered(&self, candidate: &Candidate, staff: &mut Staff) -> Option<NoCandidate> {
        let demand = &candidate.demand;
        let own = self.own_changes(candidate);
        let frozen = own.iter().map(|change| &change.name).find(|name| demand.frozen.contains(name));
        // the built-in search knows what is frozen, and when there is nothing else left
        let heeds = candidate.proposer == knobs::NAME || demand.hint.is_some();
        if let Some(name) = frozen.filter(|_| !heeds) {
            return Some(Refusal::Frozen(name.clone()).into());
        }
        if staff.is_empty() || demand.hint.is_some() {
            return None;
        }
        let class = candidate.class.map_or(String::new(), |class| class.to_string());
        let change = trace::change(
            &candidate.proposer,
            &candidate.proposal,
            &own,
            class,
            &candidate.files(),
            &staff.tunables,
            staff.goal,
        );
        let reason = staff.veto(&change)?;
        Some(NoCandidate::Nothing(
            Nothing::Steered,
            format!("refused by a mechanism, {reason} ({})", candidate.proposal.description),
        ))
    }

    /// What a candidate moves itself, against what it started from.
    fn own_changes(&self, candidate: &Candidate) -> Vec<KnobChange> {
        let start = candidate.carries.or(candidate.excursion).and_then(|trial| self.history.trial(trial));
        own_changes(&candidate.proposal.changes, start)
    }

    /// The mechanisms that this run may call, for a proposal that starts from a proposer's files.
    pub(crate) fn staff(&self, proposer: &str, running: Option<&Running>) -> Result<Staff> {
        let goal = self.task.metric.goal;
        let mechanisms = self.history.search().mechanisms();
        if !self.levels.research.has_mechanisms() || mechanisms.live().next().is_none() {
            return Ok(Staff::nobody(goal));
        }
        let tunables = self.tunables(proposer)?;
        let trace = self.trace(&tunables, running.is_some());
        let running = running.map_or(&[][..], |running| &running.mechanisms);
        let silent = self.is_left_alone();
        let (library, memory) = (Library::of(self.state), Memory::of(self.dir));
        let told = (trace, tunables, goal);
        Ok(Staff::of(mechanisms.live(), self.tag.as_str(), running, silent, &library, &memory, told))
    }

    /// The start of the excursion that is due, as a mechanism chooses it, and what mechanisms did for that. Is asked
    /// before anything else, because the files of the proposal follow from it.
    pub(crate) fn choose_start(
        &self,
        proposer: &str,
        running: Option<&Running>,
    ) -> Result<(Option<u64>, Vec<Use>)> {
        let allowed = match proposer == knobs::NAME {
            true => Vec::new(),
            false => excursion::allowed(
                self.history,
                &self.known_noise().noise(None),
                self.task.metric.goal,
                self.task.proposer.excursion,
            ),
        };
        if allowed.is_empty() {
            return Ok((None, Vec::new()));
        }
        let mut staff = self.staff(proposer, running)?;
        let trials: Vec<u64> = allowed.iter().map(|record| record.trial).collect();
        let chosen = staff.parent(&trials);
        Ok((chosen, staff.uses()))
    }

    /// A candidate that a mechanism suggests, if one does and it may be tried. One trial in [`OWN_EVERY`] is the
    /// proposer's own, so that mechanisms cannot take all of them; so is one that is to take up a hint.
    pub(crate) fn suggested(&self, wish: &Wish, staff: &mut Staff, ask: &Ask) -> Result<Option<Candidate>> {
        let number = self.history.next_trial() + u64::from(ask.running.is_some());
        let start = self.start_commit(&wish.proposer)?;
        let elsewhere = start != self.start_commit(MECHANISM)?; // an excursion is the proposer's own
        if staff.is_empty() || number.is_multiple_of(OWN_EVERY) || elsewhere || wish.demand.hint.is_some() {
            return Ok(None);
        }
        let suggestions = staff.suggest();
        if suggestions.is_empty() {
            return Ok(None);
        }
        let demand = Demand { frozen: wish.demand.frozen.clone(), ..Demand::default() };
        let files = self.source_files(start)?;
        let mut possible = Vec::new();
        for (id, suggestion) in suggestions {
            let proposer = format!("{MECHANISM}{id}");
            // what the host lets pass can be written, unless it comes to the same value
            if let Ok((edits, changes)) = staff.tunables.moves(&files, &suggestion.moves) {
                possible.push((id, proposer, suggested(suggestion, edits, changes)));
            }
        }
        let changes: Vec<_> = possible
            .iter()
            .map(|(_, proposer, proposal)| {
                let class = EditClass::Constant.to_string();
                let files: Vec<String> = proposal.edits.iter().map(|edit| edit.path.clone()).collect();
                trace::change(
                    proposer,
                    proposal,
                    &proposal.changes,
                    class,
                    &files,
                    &staff.tunables,
                    staff.goal,
                )
            })
            .collect();
        let order = staff.rank(&changes);
        for place in order {
            let Some((id, proposer, proposal)) = possible.get(place) else { continue };
            self.worktree.restore(start, &self.repo.files(start)?)?;
            let wish = Wish {
                proposer: proposer.clone(),
                may_carry: true,
                program: wish.program.clone(),
                demand: demand.clone(),
            };
            if let Ok(candidate) = self.candidate(proposal.clone(), wish)?
                && self.steered(&candidate, staff).is_none()
            {
                staff.suggestion_used(id);
                return Ok(Some(candidate));
            }
        }
        self.worktree.restore(start, &self.repo.files(start)?)?;
        Ok(None)
    }

    pub(crate) fn seed(&self, running: bool) -> u64 {
        proposal_seed(self.tag.as_str(), self.history.attempts() + u64::from(running))
    }

    /// Whether the next proposal is to be made as at level 1.
    pub(crate) fn is_left_alone(&self) -> bool {
        self.history.in_vain().len() >= IN_VAIN
    }

    /// The tunables of the files that a proposer starts from.
    pub(crate) fn tunables(&self, proposer: &str) -> Result<Tunables> {
        let files = self.source_files(self.start_commit(proposer)?)?;
        let profile = self.setting.profile.map(|profile| profile.name());
        // a marker that cannot be followed is the knob search's to complain about
        Ok(Tunables::read(&files, profile).unwrap_or_default())
    }

    /// What a hook may know.
    pub(crate) fn trace(&self, tunables: &Tunables, running: bool) -> Trace {
        let sigma = self.known_noise().noise(None).sigma();
        let goal = self.task.metric.goal;
        trace(self.history, tunables, goal, sigma, &self.frozen(tunables), self.seed(running))
    }

    fn frozen(&self, tunables: &Tunables) -> Vec<String> {
        let names: Vec<String> = tunables.names().map(str::to_owned).collect();
        match self.levels.settings {
            true => self.history.search().settings().frozen_among(&names).into_iter().collect(),
            false => Vec::new(),
        }
    }
}

/// A mechanism's suggestion as a proposal.
fn suggested(suggestion: Suggestion, edits: Vec<Edit>, changes: Vec<KnobChange>) -> Proposal {
    let moved: Vec<String> =
        changes.iter().map(|change| format!("{} {} → {}", change.name, change.from, change.to)).collect();
    let names: Vec<&str> = changes.iter().map(|change| change.name.as_str()).collect();
    Proposal {
        description: moved.join(", "),
        hypothesis: suggestion.why,
        category: names.join("+"),
        edits,
        changes,
        ..Proposal::default()
    }
}
