//! From a proposer's answer to a candidate, in the driver or in the process that works ahead of it.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::{
    account::Payer,
    ahead::Running,
    candidate::{
        Candidate, FREE_IN_WORKTREE, Refusal, admissible, class_of, message, source_of, without_secrets,
        write_edits,
    },
    commands::{Place, binaries},
    config::Task,
    error::{Doing, Result},
    exec::StopFlag,
    git::{Files, Oid, Repo, Worktree, open_up},
    hire::clear_scratch,
    history::History,
    material,
    night::Playback,
    proposer::{
        Brief, Budget, Demand, KnobChange, Nothing, Proposal, ProposeError, Proposer, Repair, SourceFile,
        Start, knobs,
    },
    scan::{Sources, scan},
    search::{Levels, Use, staff::Staff},
    secrets::secrets,
    setting::Setting,
    sigma::KnownNoise,
    state::{State, Tag, TagDir, write_atomic},
};

/// Where proposals are made and checked.
pub(crate) struct Desk<'a> {
    pub(crate) task: &'a Task,
    pub(crate) repo: &'a Repo,
    pub(crate) state: &'a State,
    pub(crate) tag: &'a Tag,
    pub(crate) dir: &'a TagDir,
    pub(crate) history: &'a History,
    pub(crate) setting: &'a Setting,
    pub(crate) worktree: &'a Worktree,
    /// The champion's commit; the base before the baseline.
    pub(crate) champion: Oid,
    /// Where a proposer leaves its prompts and answers until the trial has a number.
    pub(crate) scratch: PathBuf,
    /// The run that pays for it.
    pub(crate) payer: &'a Payer,
    /// The night that is played back.
    pub(crate) night: Option<&'a Playback>,
    /// How much of the search may change.
    pub(crate) levels: Levels,
    /// Where a mechanism wants an excursion to start.
    pub(crate) chosen: Option<u64>,
    pub(crate) stop: &'a StopFlag,
}

/// What a proposal is asked for with.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ask {
    pub(crate) budget: Budget,
    pub(crate) repair: Option<Repair>,
    /// What the attempt was asked for that is to be repaired.
    pub(crate) demand: Demand,
    /// The trial that runs meanwhile.
    pub(crate) running: Option<Running>,
    /// What mechanisms have done for this proposal already.
    pub(crate) uses: Vec<Use>,
}

/// What came of asking.
pub(crate) struct Proposed {
    pub(crate) outcome: std::result::Result<Candidate, NoCandidate>,
    /// What mechanisms did; a candidate holds the same.
    pub(crate) uses: Vec<Use>,
}

/// Whose wish a candidate is, and under what it was made.
pub(crate) struct Wish {
    pub(crate) proposer: String,
    pub(crate) may_carry: bool,
    pub(crate) program: Option<String>,
    pub(crate) demand: Demand,
}

/// Why there is no candidate.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum NoCandidate {
    /// It counts as a proposal that came to nothing.
    Nothing(Nothing, String),
    /// The proposer has no more to give.
    Exhausted(String),
    /// It cannot work as it is configured.
    Unusable(String),
    /// The caps leave too little.
    Capped(String),
    Stopped,
}

impl From<ProposeError> for NoCandidate {
    fn from(error: ProposeError) -> Self {
        let reason = error.to_string();
        match error {
            ProposeError::Stopped => Self::Stopped,
            ProposeError::Exhausted(_) => Self::Exhausted(reason),
            ProposeError::Unusable(_) => Self::Unusable(reason),
            ProposeError::Capped(_) => Self::Capped(reason),
            ProposeError::Failed(_) => Self::Nothing(Nothing::Down, reason),
            ProposeError::Vetoed { .. } => Self::Nothing(Nothing::Vetoed, reason),
            ProposeError::TimedOut(_) => Self::Nothing(Nothing::TimedOut, reason),
            ProposeError::Empty | ProposeError::Declined(_) | ProposeError::CannotRepair => {
                Self::Nothing(Nothing::Empty, reason)
            }
        }
    }
}

impl From<Refusal> for NoCandidate {
    fn from(refusal: Refusal) -> Self {
        let kind = match refusal {
            Refusal::Empty => Nothing::Empty,
            Refusal::Duplicate(_) => Nothing::Duplicate,
            Refusal::Frozen(_) => Nothing::Steered,
            _ => Nothing::Refused,
        };
        Self::Nothing(kind, format!("refused: {refusal}"))
    }
}

impl Desk<'_> {
    /// Asks mechanisms and a proposer, and makes a candidate of what stands in the worktree afterwards. The worktree
    /// stands at what [`Desk::start`] says, or, for a repair, at the failed attempt.
    pub(crate) fn propose(&self, proposer: &mut dyn Proposer, ask: &Ask) -> Result<Proposed> {
        let program = self.program()?;
        let wish = Wish {
            proposer: proposer.name().to_owned(),
            may_carry: true,
            program: self.keep_program(&program)?,
            demand: self.demand(proposer.name(), &program, ask)?,
        };
        if ask.repair.is_some() {
            // its idea was let pass already
            let mut nobody = Staff::nobody(self.task.metric.goal);
            let outcome = self.ask(proposer, ask, &program, wish, &mut nobody)?;
            return Ok(Proposed { outcome, uses: Vec::new() });
        }
        clear_scratch(&self.scratch)?;
        let mut staff = self.staff(proposer.name(), ask.running.as_ref())?;
        staff.add(&ask.uses);
        let mut outcome = match self.suggested(&wish, &mut staff, ask)? {
            Some(candidate) => Ok(candidate),
            None => self.ask(proposer, ask, &program, wish, &mut staff)?,
        };
        let uses = staff.uses();
        if let Ok(candidate) = &mut outcome {
            candidate.uses.clone_from(&uses);
        }
        Ok(Proposed { outcome, uses })
    }

    /// Asks the proposer.
    fn ask(
        &self,
        proposer: &mut dyn Proposer,
        ask: &Ask,
        program: &str,
        mut wish: Wish,
        staff: &mut Staff,
    ) -> Result<std::result::Result<Candidate, NoCandidate>> {
        let start = self.start(proposer.name());
        let files = self.source_files(self.start_commit(proposer.name())?)?;
        let pages = material::pages(self.repo, self.task, self.champion)?;
        if proposer.name() != knobs::NAME {
            wish.demand.guidance.extend(staff.guide());
        }
        staff.rest();
        let brief = Brief {
            program,
            files: &files,
            pages: &pages,
            profile: self.setting.profile.map(|profile| profile.name()),
            metric: &self.task.metric,
            trials: self.history.trials(),
            before_restart: self.history.search().restarted(),
            best: self.history.champion(),
            start,
            demand: &wish.demand,
            running: ask.running.as_ref().map(|running| &running.proposal),
            in_vain: self.history.in_vain(),
            records: self.dir.path(),
            budget: ask.budget,
            seed: self.seed(ask.running.is_some()),
            repair: ask.repair.as_ref(),
            worktree: self.worktree.path(),
        };
        let proposal = match proposer.propose(&brief) {
            Ok(proposal) => proposal,
            Err(error) => return Ok(Err(error.into())),
        };
        if self.repo.reclaim_branch(self.tag, self.champion)? {
            let reason = format!("refused: it checked out {}", self.tag.branch());
            return Ok(Err(NoCandidate::Nothing(Nothing::Refused, reason)));
        }
        let candidate = match self.candidate(proposal, wish)? {
            Ok(candidate) => candidate,
            Err(why) => return Ok(Err(why)),
        };
        Ok(match self.steered(&candidate, staff) {
            Some(why) => Err(why),
            None => Ok(candidate),
        })
    }

    /// A candidate of what stands in the worktree, with the proposal's edits.
    pub(crate) fn candidate(&self, proposal: Proposal, wish: Wish) -> Result<Result<Candidate, NoCandidate>> {
        let start = self.start(&wish.proposer);
        if let Err(refusal) = write_edits(self.worktree.path(), &proposal.edits, self.task.editable())? {
            return Ok(Err(refusal.into()));
        }
        open_up(self.worktree.path())?;
        if let Err(refusal) = without_secrets(self.worktree.path(), self.task) {
            return Ok(Err(refusal.into()));
        }
        let found = self.worktree.changes(self.champion)?;
        let changes = match admissible(found, self.task.editable(), FREE_IN_WORKTREE) {
            Ok(changes) => changes,
            Err(Refusal::Empty) => return Ok(Err(unedited(proposal))),
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        let commit = self.worktree.commit_changes(self.repo, self.champion, &changes, &message(&proposal))?;
        if self.repo.same_files(commit, self.start_commit(&wish.proposer)?)? {
            return Ok(Err(unedited(proposal)));
        }
        let (source, lines) = source_of(self.repo, commit, self.task.editable())?;
        let paths: Vec<PathBuf> = changes.into_iter().map(|change| change.path).collect();
        let mut proposal = describe(proposal, &paths);
        if proposal.changes.is_empty() {
            let before = self.source_files(self.start_commit(&wish.proposer)?)?;
            let after = self.source_files(commit)?;
            proposal.changes =
                knobs::moved(&before, &after, self.setting.profile.map(|profile| profile.name()));
        }
        if let Some(from) = start.trial() {
            // against the champion, as the candidate's commit is
            proposal.changes = carried_over(&from.proposal.changes, proposal.changes.split_off(0));
        }
        let class = class_of(self.repo, self.start_commit(&wish.proposer)?, commit, self.task.editable())?;
        let (carries, excursion) = self.builds_on(&wish.proposer);
        let candidate = Candidate {
            commit,
            paths,
            source,
            lines,
            parent: self.history.champion().map(|record| record.trial),
            proposer: wish.proposer,
            proposal,
            may_carry: wish.may_carry,
            carries,
            excursion,
            class,
            ahead: false,
            program: wish.program,
            demand: wish.demand,
            uses: Vec::new(),
        };
        Ok(self.checked(candidate)?.map_err(NoCandidate::from))
    }

    /// Refuses a candidate that changes nothing, was tried before, or could reach the referee it runs beside.
    pub(crate) fn checked(&self, candidate: Candidate) -> Result<Result<Candidate, Refusal>> {
        if self.repo.same_files(candidate.commit, self.champion)? {
            return Ok(Err(Refusal::Empty));
        }
        if let Some(trial) = self.history.tried(&candidate.source) {
            return Ok(Err(Refusal::Duplicate(trial)));
        }
        let files = self.repo.editable_files(candidate.commit, self.task.editable())?;
        for (path, bytes) in &files {
            if let Some(name) = secrets().found_in(bytes) {
                return Ok(Err(Refusal::Secret(path.clone(), name.to_owned())));
            }
        }
        let found = if self.task.score.exam { scan(&files) } else { None };
        Ok(found.map_or(Ok(candidate), |finding| Err(Refusal::Forbidden(finding))))
    }

    /// Source that went into the program without having been looked at.
    pub(crate) fn unseen_source(&self, files: &Files, commit: Oid, place: &Place) -> Result<Option<String>> {
        if !self.task.score.exam {
            return Ok(None);
        }
        let tracked = |path: &Path| files.contains_key(path);
        let sources = Sources { worktree: &place.worktree, target: &place.target, tracked: &tracked };
        let unread = Sources::unread(&self.repo.editable_files(commit, self.task.editable())?);
        Ok(unread.or_else(|| {
            binaries(self.task).iter().find_map(|inner| sources.of_build(&place.target.join(inner)))
        }))
    }

    /// Whose files this proposer's next proposal starts from.
    pub(crate) fn start(&self, proposer: &str) -> Start<'_> {
        material::start(proposer, self.history, || self.known_noise().noise(None), self.task, self.chosen)
    }

    pub(crate) fn known_noise(&self) -> KnownNoise<'_> {
        KnownNoise {
            task: self.task,
            state: self.state,
            tag: self.tag.as_str(),
            history: self.history,
            night: self.night,
            profile: self.setting.profile,
            device: &self.setting.device,
        }
    }

    /// What a proposer is asked for beyond the brief. A repair is asked for what its attempt was.
    fn demand(&self, proposer: &str, program: &str, ask: &Ask) -> Result<Demand> {
        if ask.repair.is_some() {
            return Ok(ask.demand.clone());
        }
        let mut demand = match proposer == knobs::NAME {
            true => Demand::default(),
            false => {
                material::demand(self.history, program, self.task, Some(self.dir), ask.running.is_some())?
            }
        };
        if self.levels.settings && !self.is_left_alone() {
            let names: Vec<String> = self.tunables(proposer)?.names().map(str::to_owned).collect();
            self.history.search().settings().ask(&mut demand, &names);
        }
        Ok(demand)
    }

    /// The promising trial that this proposer's next proposal carries, or the trial that an excursion starts it
    /// from.
    pub(crate) fn builds_on(&self, proposer: &str) -> (Option<u64>, Option<u64>) {
        match self.start(proposer) {
            Start::Champion => (None, None),
            Start::Lead(lead) => (Some(lead.trial), None),
            Start::Excursion(from) => (None, Some(from.trial)),
        }
    }

    /// The commit of those files.
    pub(crate) fn start_commit(&self, proposer: &str) -> Result<Oid> {
        match self.start(proposer).trial().and_then(|trial| trial.commit.as_deref()) {
            Some(commit) => self.repo.parse(commit),
            None => Ok(self.champion),
        }
    }

    /// The editable files of a commit that are text.
    pub(crate) fn source_files(&self, commit: Oid) -> Result<Vec<SourceFile>> {
        material::sources(self.repo, self.task, commit)
    }

    /// The human's brief; empty where there is none.
    pub(crate) fn program(&self) -> Result<String> {
        material::program(self.state.root())
    }

    /// Keeps each version of the human's brief that a proposal was made under; its name there.
    fn keep_program(&self, program: &str) -> Result<Option<String>> {
        if program.is_empty() {
            return Ok(None);
        }
        let folder = self.state.briefs();
        let version = program_version(program);
        let path = folder.join(format!("{version}.md"));
        if !path.exists() {
            fs::create_dir_all(&folder).doing("create", &folder)?;
            write_atomic(&path, program.as_bytes())?;
        }
        Ok(Some(version))
    }
}

/// The name of a version of the brief: the first sixteen digits of its SHA-256.
pub(crate) fn program_version(program: &str) -> String {
    prepare::manifest::hex(&Sha256::digest(program))[..16].to_owned()
}

/// A candidate's knob changes against the champion: those it carries, then its own.
fn carried_over(carried: &[KnobChange], own: Vec<KnobChange>) -> Vec<KnobChange> {
    let mut all = carried.to_vec();
    for change in own {
        match all.iter_mut().find(|known| known.name == change.name) {
            Some(known) => known.to = change.to,
            None => all.push(change),
        }
    }
    all.retain(|change| change.from != change.to); // one may have been taken back
    all
}

/// A proposal that left everything as it was.
fn unedited(proposal: Proposal) -> NoCandidate {
    proposal.unless_edited.map_or_else(|| Refusal::Empty.into(), NoCandidate::from)
}

/// Fills in a missing description from the paths changed.
fn describe(mut proposal: Proposal, paths: &[PathBuf]) -> Proposal {
    if proposal.description.trim().is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        proposal.description = format!("edit of {}", names.join(", "));
    }
    proposal
}

/// The proposer's seed: from the tag and the attempt, so that a resumed night goes on as it would have.
pub(crate) fn proposal_seed(tag: &str, attempt: u64) -> u64 {
    let hash = Sha256::digest(format!("ratchet proposal {tag} {attempt}"));
    u64::from_le_bytes(hash[..8].try_into().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_carried_change_that_is_taken_back_is_none() {
        let change = |name: &str, from: &str, to: &str| KnobChange {
            name: name.into(),
            from: from.into(),
            to: to.into(),
        };
        let carried = [change("A", "1", "2"), change("B", "1", "2")];
        let all =
            carried_over(&carried, vec![change("B", "2", "1"), change("A", "2", "3"), change("C", "5", "6")]);
        assert_eq!(all, [change("A", "1", "3"), change("C", "5", "6")]);
    }
}
