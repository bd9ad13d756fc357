//! From a proposer's answer to a candidate.

use std::{
    fs,
    path::{Path, PathBuf},
};

use sha2::{Digest, Sha256};

use crate::{
    candidate::{Candidate, FREE_IN_WORKTREE, Refusal, admissible, message, source_of, write_edits},
    commands::mark,
    config::{Agent, Preset, ProposerKind},
    error::{Doing, Error, Result},
    git::Oid,
    plain_file,
    proposer::{
        Brief, KnobChange, Proposal, ProposeError, Proposer, Repair, SourceFile, agent::AgentProposer,
        knobs::Knobs,
    },
    reach::{self, confined},
    run::Turn,
    session::Session,
    state::write_atomic,
    stop::Watch,
};

impl Session {
    /// Asks a proposer, and makes a candidate of what stands in the worktree afterwards.
    pub(crate) fn propose(
        &mut self,
        watch: &mut Watch,
        proposer: &mut dyn Proposer,
        repair: Option<Repair>,
    ) -> Result<Result<Candidate, Turn>> {
        let program = self.program()?;
        self.keep_program(&program)?;
        let champion = self.champion();
        let parent = self.history().champion().map(|record| record.trial);
        let files = self.source_files(self.proposal_base()?)?;
        let lead = self.history().lead();
        let brief = Brief {
            program: &program,
            files: &files,
            profile: self.setting.profile.map(|profile| profile.name()),
            metric: &self.task.metric,
            trials: self.history().trials(),
            best: self.history().champion(),
            lead,
            budget: watch.budget(),
            seed: proposal_seed(self.tag.as_str(), self.history().attempts()),
            repair: repair.as_ref(),
            worktree: self.worktree.path(),
        };
        let proposal = match proposer.propose(&brief) {
            Ok(proposal) => proposal,
            Err(error) => {
                return Ok(Err(match error {
                    ProposeError::Stopped => Turn::Stopped,
                    ProposeError::Exhausted(reason) => Turn::Exhausted(reason),
                    ProposeError::Failed(reason) => Turn::Down(reason),
                    other => Turn::Nothing(other.to_string()),
                }));
            }
        };
        watch.count_usage(proposal.usage.unwrap_or_default());
        if self.repo.reclaim_branch(&self.tag, champion)? {
            return Ok(Err(Turn::Nothing(format!("refused: it checked out {}", self.tag.branch()))));
        }
        let refused = |refusal: Refusal| Ok(Err(Turn::Nothing(format!("refused: {refusal}"))));
        if let Err(refusal) = write_edits(self.worktree.path(), &proposal.edits, self.task.editable())? {
            return refused(refusal);
        }
        let changes =
            match admissible(self.worktree.changes(champion)?, self.task.editable(), FREE_IN_WORKTREE) {
                Ok(changes) => changes,
                Err(refusal) => return refused(refusal),
            };
        let commit = self.worktree.commit_changes(&self.repo, champion, &changes, &message(&proposal))?;
        let (source, lines) = source_of(&self.repo, commit, self.task.editable())?;
        let paths: Vec<PathBuf> = changes.into_iter().map(|change| change.path).collect();
        let mut proposal = describe(proposal, &paths);
        let carries = self.history().lead().map(|lead| {
            proposal.changes = carried_over(&lead.proposal.changes, proposal.changes.split_off(0));
            lead.trial
        });
        let proposer = proposer.name().to_owned();
        let candidate =
            Candidate { commit, paths, source, lines, parent, proposer, proposal, may_carry: true, carries };
        match self.checked(candidate)? {
            Ok(candidate) => Ok(Ok(candidate)),
            Err(refusal) => refused(refusal),
        }
    }

    /// What the next proposal starts from: the champion, with what is promising on top.
    pub(crate) fn proposal_base(&self) -> Result<Oid> {
        match self.history().lead().and_then(|lead| lead.commit.as_deref()) {
            Some(commit) => self.repo.parse(commit),
            None => Ok(self.champion()),
        }
    }

    /// The editable files of a commit that are text.
    pub(crate) fn source_files(&self, commit: Oid) -> Result<Vec<SourceFile>> {
        let files = self.repo.editable_files(commit, self.task.editable())?;
        let text = |(path, bytes): (PathBuf, Vec<u8>)| {
            Some(SourceFile { path: path.to_str()?.to_owned(), text: String::from_utf8(bytes).ok()? })
        };
        Ok(files.into_iter().filter_map(text).collect())
    }

    /// The human's brief; empty where there is none. Exit code 2 for what cannot be read.
    fn program(&self) -> Result<String> {
        let path = self.state.root().join("program.md");
        match plain_file::read_to_string(&path) {
            Ok(text) => Ok(text),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
            Err(error) => Err(Error::usage("the brief cannot be read")
                .at(path)
                .because(error)
                .hint("make it a plain text file, or remove it")),
        }
    }

    /// Keeps each version of the human's brief that a proposal was made under.
    fn keep_program(&self, program: &str) -> Result<()> {
        if program.is_empty() {
            return Ok(());
        }
        let folder = self.state.briefs();
        let hash = prepare::manifest::hex(&Sha256::digest(program));
        let path = folder.join(format!("{}.md", &hash[..16]));
        if !path.exists() {
            fs::create_dir_all(&folder).doing("create", &folder)?;
            write_atomic(&path, program.as_bytes())?;
        }
        Ok(())
    }

    pub(crate) fn proposer(&self, kind: ProposerKind, capped: bool) -> Result<Box<dyn Proposer>> {
        Ok(match kind {
            ProposerKind::Knobs => Box::new(Knobs),
            ProposerKind::Agent => {
                let preset = Agent {
                    command: None,
                    preset: Some(Preset::Claude),
                    timeout_s: 900,
                    settings: Vec::new(),
                };
                let agent = self.task.proposer.agent.as_ref().unwrap_or(&preset);
                let root = self.state.root();
                let mut proposer = AgentProposer::new(agent, self.scratch(), mark(root), self.stop.clone());
                proposer.check(capped)?;
                if confined(&self.task)? {
                    let policy = reach::agent(&self.task, root, self.worktree.path(), proposer.command());
                    proposer.confine(policy);
                }
                Box::new(proposer)
            }
        })
    }

    /// Where a proposer leaves its prompt and answer until the trial has a number.
    fn scratch(&self) -> PathBuf {
        self.dir.path().join("proposing")
    }

    /// Moves prompt and answer to the trial that came of them.
    pub(crate) fn take_scratch(&self, trial: u64) -> Result<()> {
        let (from, to) = (self.scratch(), self.dir.trial(trial));
        for name in ["prompt.md", "answer.log"] {
            if from.join(name).exists() {
                move_numbered(&from.join(name), &to, name)?;
            }
        }
        Ok(())
    }
}

/// Moves a file into a folder; a second one of that name (a repair's) gets a number.
fn move_numbered(from: &Path, folder: &Path, name: &str) -> Result<()> {
    let (stem, extension) = name.split_once('.').unwrap_or((name, "txt"));
    let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{stem}-{n}.{extension}")));
    let free = names.map(|name| folder.join(name)).find(|path| !path.exists());
    let to = free.unwrap_or_else(|| folder.join(name));
    fs::rename(from, &to).doing("move the proposer's file to", &to)
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

/// Fills in a missing description from the paths changed.
fn describe(mut proposal: Proposal, paths: &[PathBuf]) -> Proposal {
    if proposal.description.trim().is_empty() {
        let names: Vec<String> = paths.iter().map(|path| path.display().to_string()).collect();
        proposal.description = format!("edit of {}", names.join(", "));
    }
    proposal
}

/// The proposer's seed: from the tag and the attempt, so that a resumed night goes on as it would have.
fn proposal_seed(tag: &str, attempt: u64) -> u64 {
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
