//! Who proposes: the proposers that a task names, made ready for work.

use std::{fs, path::Path};

use crate::{
    account::Paid,
    commands::mark,
    config::{Agent, Preset, ProposerKind},
    error::{Doing, Error, Result},
    proposer::{Proposer, agent::AgentProposer, knobs::Knobs},
    proposing::Desk,
    reach::{self, confined},
};

/// Files that a proposer leaves, which belong to the trial that comes of them.
const LEFT: [&str; 3] = ["prompt.md", "answer.log", "calls.jsonl"];

impl Desk<'_> {
    /// A proposer of this kind. `capped`: whether what it spends may end the run.
    ///
    /// Exit code 4 where it cannot work here, 2 where a cap could not be kept.
    pub(crate) fn hire(&self, kind: ProposerKind, capped: bool) -> Result<Box<dyn Proposer>> {
        Ok(match kind {
            ProposerKind::Knobs => Box::new(Knobs),
            ProposerKind::Llm => return Err(Error::usage("the llm proposer is not wired yet")),
            ProposerKind::Agent => {
                let usual = Agent::of(Preset::Claude);
                let agent = self.task.proposer.agent.as_ref().unwrap_or(&usual);
                let root = self.state.root();
                let confined = confined(self.task)?;
                let (scratch, stop) = (self.scratch.clone(), self.stop.clone());
                let mut proposer = AgentProposer::new(agent, scratch, mark(root), stop, confined);
                proposer.check(capped)?;
                if confined {
                    let policy = reach::agent(self.task, root, self.worktree.path(), proposer.command());
                    proposer.confine(policy);
                }
                Box::new(Paid::new(proposer, self)?)
            }
        })
    }
}

/// Moves what a proposer left in `scratch` to the trial that came of it.
pub(crate) fn take_scratch(scratch: &Path, trial: &Path) -> Result<()> {
    for name in LEFT {
        if scratch.join(name).exists() {
            move_numbered(&scratch.join(name), trial, name)?;
        }
    }
    Ok(())
}

/// Moves a file into a folder; a second one of that name (a repair's) gets a number.
fn move_numbered(from: &Path, folder: &Path, name: &str) -> Result<()> {
    let (stem, extension) = name.split_once('.').unwrap_or((name, "txt"));
    let names = std::iter::once(name.to_owned()).chain((2..).map(|n| format!("{stem}-{n}.{extension}")));
    let free = names.map(|name| folder.join(name)).find(|path| !path.exists());
    let to = free.unwrap_or_else(|| folder.join(name));
    fs::rename(from, &to).doing("move the proposer's file to", &to)
}
