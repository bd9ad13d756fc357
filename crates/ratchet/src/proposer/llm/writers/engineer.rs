//! The engineer: writes the edit, and mends what of it does not fit the files.

use std::collections::BTreeSet;

use ::llm::Turn;

use super::super::{
    asker::Asker,
    edits::{Failure, Files, Form, apply, head, parse},
    refused,
};
use crate::{
    config::Editable,
    proposer::{
        ProposeError,
        context::{fence, line},
    },
};

/// Failures that are told to the model at once, and bytes of all of them.
const TOLD: usize = 12;
const TOLD_BYTES: usize = 24 << 10;

/// Files under edit.
pub(super) struct Engineer<'a> {
    pub(super) files: Files,
    pub(super) editable: &'a Editable,
    /// Whether the model writes whole files from the start.
    pub(super) whole_files: bool,
}

impl Engineer<'_> {
    /// How the answer is to write its edits.
    pub(super) fn format(&self) -> String {
        match self.whole_files {
            true => self.whole_format(),
            false => "Write the edit as search and replace blocks. Each stands under the path of its file, for example:\n\n\
                      path/to/file.rs\n```\n<<<<<<< SEARCH\nlines as they stand in the file\n=======\n\
                      lines that take their place\n>>>>>>> REPLACE\n```\n\n\
                      The SEARCH part holds whole lines, exactly as they stand, enough of them to occur only once \
                      in the file. Use as many blocks as needed, each as small as possible. An empty SEARCH part \
                      makes a new file. Nothing else in your answer is read by the machine.\n"
                .to_owned(),
        }
    }

    fn whole_format(&self) -> String {
        let fence = self.fence();
        format!(
            "Write each file that you change, and no other, whole, from its first line to its last, under its \
             path, for example:\n\npath/to/file.rs\n{fence}\nthe whole file\n{fence}\n\n\
             Use fences of {} backticks. Nothing else in your answer is read by the machine.\n",
            fence.len()
        )
    }

    fn fence(&self) -> String {
        let longest = self.files.values().map(|text| fence(text)).max_by_key(String::len);
        longest.unwrap_or_else(|| fence(""))
    }

    fn form(&self) -> Form {
        match self.whole_files {
            true => Form::WholeFiles { fence: self.fence().len() },
            false => Form::Blocks,
        }
    }

    /// Asks for the edit and applies it. Blocks that do not fit go back once, with what resembles them most;
    /// after that their files are asked for whole.
    ///
    /// Fails with what still does not fit: half an idea is not worth a trial.
    pub(super) fn edit(
        &mut self,
        asker: &mut Asker<'_>,
        system: &str,
        turns: &mut Vec<Turn>,
        purpose: &str,
        text: String,
    ) -> Result<(), ProposeError> {
        let form = self.form();
        let failures = self.round(asker, system, turns, purpose, text, form)?;
        if failures.is_empty() {
            return Ok(());
        }
        let text = format!(
            "Not all of that could be applied; what could, has been. This could not:\n\n{}\n\
             Answer with the failed parts again, corrected, and nothing of what has been applied.\n\n{}",
            told(&failures),
            self.format()
        );
        let failures = self.round(asker, system, turns, "mend", text, form)?;
        let paths: BTreeSet<&str> = failures.iter().filter_map(Failure::helped_by_whole_file).collect();
        if failures.is_empty() {
            return Ok(());
        }
        if paths.is_empty() || self.whole_files {
            return Err(unfit(&failures));
        }
        let paths: Vec<&str> = paths.into_iter().collect();
        let text = format!(
            "That does not fit either:\n\n{}\nWrite {} whole instead, with your edit in it.\n\n{}",
            told(&failures),
            paths.join(" and "),
            self.whole_format()
        );
        let form = Form::WholeFiles { fence: self.fence().len() };
        let failures = self.round(asker, system, turns, "whole", text, form)?;
        if failures.is_empty() { Ok(()) } else { Err(unfit(&failures)) }
    }

    /// One answer, applied; what of it did not fit.
    fn round(
        &mut self,
        asker: &mut Asker<'_>,
        system: &str,
        turns: &mut Vec<Turn>,
        purpose: &str,
        text: String,
        form: Form,
    ) -> Result<Vec<Failure>, ProposeError> {
        let answer = asker.say(purpose, system, turns, text).map_err(refused)?;
        let (blocks, mut failures) = parse(&answer.text, form);
        if blocks.is_empty() && failures.is_empty() {
            failures
                .push(Failure::malformed(None, "the answer holds no edit in the form that was asked for"));
        }
        if answer.truncated {
            failures
                .push(Failure::malformed(None, "the answer was cut off at its limit; go on where it ends"));
        }
        failures.extend(apply(&mut self.files, blocks, self.editable));
        Ok(failures)
    }
}

fn told(failures: &[Failure]) -> String {
    let shown: Vec<String> = failures.iter().take(TOLD).map(|failure| format!("- {failure}\n")).collect();
    head(&shown.concat(), TOLD_BYTES)
}

/// Why there is no proposal, in one line.
fn unfit(failures: &[Failure]) -> ProposeError {
    let first = failures.first().map(Failure::to_string).unwrap_or_default();
    let first = first.lines().next().unwrap_or_default();
    ProposeError::Declined(format!("the edit does not fit the files: {}", line(first, 200)))
}
