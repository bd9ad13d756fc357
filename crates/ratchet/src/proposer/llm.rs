//! A language model as a proposer: one that plans and edits, or a team of roles.
//!
//! The rooms keep apart who may know what. `writers` make proposals, and lessons are private to them.
//! `reviewer` judges one before any time is spent on it, and is given a diff and the human's brief, as a type
//! that holds nothing else: no code outside `writers` can name a lesson, so no judgment can rest on one.
//!
//! Nothing is kept between proposals but files in the tag's folder: with lookahead each is made in a process of
//! its own.

mod asker;
mod edits;
mod reviewer;
mod writers;

use std::{fs, path::PathBuf};

use ::llm::{AskError, Model};

pub(crate) use self::writers::lessons_told;
use self::{
    asker::Asker,
    reviewer::{Submission, review},
    writers::{Writers, drafted, repaired},
};
use super::{Brief, Proposal, ProposeError, Proposer, Usage, context::Context};
use crate::{
    config::{Editable, Llm, Roles},
    runlog::plain,
    secrets::secrets,
};

/// What holds for every role.
const POLICY: &str = include_str!("llm/policy.md");
/// Where the system text is left.
const PROMPT_FILE: &str = "prompt.md";

/// The proposer `llm`.
pub struct Author {
    settings: Llm,
    editable: Editable,
    model: Box<dyn Model>,
    memory: PathBuf,
    scratch: PathBuf,
    spent: Usage,
}

impl Author {
    /// `model` is asked, within its caps; `memory` is the tag's folder, where `lessons.md` is; in `scratch` it
    /// leaves `prompt.md`, the system text whose hash stands with each call.
    pub fn new(
        settings: Llm,
        editable: Editable,
        model: Box<dyn Model>,
        memory: PathBuf,
        scratch: PathBuf,
    ) -> Self {
        Self { settings, editable, model, memory, scratch, spent: Usage::default() }
    }
}

impl Proposer for Author {
    fn name(&self) -> &str {
        "llm"
    }

    fn propose(&mut self, brief: &Brief<'_>) -> Result<Proposal, ProposeError> {
        let context = Context::new(brief, self.settings.context_tokens).map_err(ProposeError::Unusable)?;
        let system = format!("{}# Policy\n\n{POLICY}\n", context.standing);
        let path = self.scratch.join(PROMPT_FILE);
        let written = fs::write(&path, secrets().redact(&system).as_bytes());
        written.map_err(|error| ProposeError::Failed(format!("{}: {error}", path.display())))?;
        let mut asker = Asker::new(self.model.as_mut(), self.settings.max_output_tokens);
        let writers = Writers {
            brief,
            context: &context,
            system: &system,
            editable: &self.editable,
            memory: &self.memory,
            whole_files: self.settings.whole_files,
            team: self.settings.roles == Roles::Team,
        };
        let proposal = proposal(&writers, &mut asker, self.settings.context_tokens);
        let usage = asker.usage();
        self.spent += usage;
        Ok(Proposal { usage: Some(usage), ..proposal? })
    }

    fn take_spent(&mut self) -> Usage {
        std::mem::take(&mut self.spent)
    }
}

/// A draft that the team's reviewer lets pass; for a repair, the failed edit mended, which is not reviewed again:
/// its idea has passed, and what the tools said is nothing for a reviewer.
fn proposal(
    writers: &Writers<'_>,
    asker: &mut Asker<'_>,
    context_tokens: u32,
) -> Result<Proposal, ProposeError> {
    if let Some(repair) = writers.brief.repair {
        return Ok(repaired(writers, asker, repair)?.proposal);
    }
    let draft = drafted(writers, asker)?;
    if writers.team {
        let submission = Submission { diff: &draft.diff, program: writers.brief.program };
        if let Some(reason) = review(asker, &submission, context_tokens).map_err(refused)? {
            return Err(ProposeError::Vetoed { description: draft.proposal.description, reason });
        }
    }
    Ok(draft.proposal)
}

/// A call without an answer, as the driver sees it.
fn refused(error: AskError) -> ProposeError {
    let text = plain(&error.to_string(), 300);
    match error {
        AskError::Down(_) => ProposeError::Failed(text),
        AskError::Key { .. } => ProposeError::Unusable(format!(
            "{text}; set the variable, or name another with key_variable or key_file in [proposer.llm]"
        )),
        AskError::Model(_) => ProposeError::Unusable(format!(
            "{text}; name one that the provider has as model in [proposer.llm]"
        )),
        AskError::Setup(_) | AskError::Record(_) => ProposeError::Unusable(text),
        AskError::Cap(_) => ProposeError::Capped(text),
        AskError::Rejected(_) | AskError::TooLarge | AskError::Malformed(_) => ProposeError::Declined(text),
        AskError::Stopped => ProposeError::Stopped,
    }
}

#[cfg(test)]
mod tests;
