//! What a proposal is made from: whose files it starts from, what is asked of it, and what its proposer is shown.
//!
//! One place for the desk and for those that only look (`ratchet brief`).

use std::path::{Path, PathBuf};

use crate::{
    config::{FILE, Task},
    demand,
    error::{Error, Result},
    excursion,
    git::{Oid, Repo},
    hints::Hints,
    history::History,
    noise::Noise,
    plain_file,
    proposer::{Demand, SourceFile, Start, knobs},
    search::at_desk::MECHANISM,
    state::TagDir,
};

/// Whose files a proposer's next proposal starts from. `chosen`: where a mechanism wants an excursion to start.
pub(crate) fn start<'a>(
    proposer: &str,
    history: &'a History,
    noise: impl FnOnce() -> Noise,
    task: &Task,
    chosen: Option<u64>,
) -> Start<'a> {
    if proposer == "try" {
        return Start::Champion; // a person's edit is of the champion's files
    }
    if let Some(lead) = history.lead() {
        return Start::Lead(lead);
    }
    if proposer == knobs::NAME || proposer.starts_with(MECHANISM) {
        return Start::Champion; // it searches far by itself, and knows the scales from the champion's files
    }
    match excursion::start(history, &noise(), task.metric.goal, task.proposer.excursion, chosen) {
        Some(trial) => Start::Excursion(trial),
        None => Start::Champion,
    }
}

/// What the next proposal of a model or an agent is asked for beyond the brief: a person's hint, or else what the
/// history and the brief ask for. `ahead`: a trial is under way.
pub(crate) fn demand(
    history: &History,
    program: &str,
    task: &Task,
    dir: Option<&TagDir>,
    ahead: bool,
) -> Result<Demand> {
    let hint = dir.map(|dir| Hints::of(dir).next(history)).transpose()?.flatten();
    Ok(match hint {
        // an idea is of the kind it is: nothing else is asked for beside it
        Some(hint) => Demand { hint: Some(hint.text), hint_id: Some(hint.id), ..Demand::default() },
        None => demand::demand(history, program, task.proposer.explore_every, ahead),
    })
}

/// The human's brief; empty where there is none. Exit code 2 for what cannot be read.
pub(crate) fn program(root: &Path) -> Result<String> {
    let path = root.join("program.md");
    match plain_file::read_to_string(&path) {
        Ok(text) => Ok(text),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(String::new()),
        Err(error) => Err(Error::usage("the brief cannot be read")
            .at(path)
            .because(error)
            .hint("make it a plain text file, or remove it")),
    }
}

/// The editable files of a commit that are text.
pub(crate) fn sources(repo: &Repo, task: &Task, commit: Oid) -> Result<Vec<SourceFile>> {
    let files = repo.editable_files(commit, task.editable())?;
    let text = |(path, bytes): (PathBuf, Vec<u8>)| {
        Some(SourceFile { path: path.to_str()?.to_owned(), text: String::from_utf8(bytes).ok()? })
    };
    Ok(files.into_iter().filter_map(text).collect())
}

/// The pages that proposers are shown besides. Exit code 2 for one that the champion does not hold as text.
pub(crate) fn pages(repo: &Repo, task: &Task, champion: Oid) -> Result<Vec<SourceFile>> {
    let names = &task.proposer.pages;
    if names.is_empty() {
        return Ok(Vec::new());
    }
    let files = repo.files(champion)?;
    let read = |name: &String| {
        let entry = files.get(Path::new(name)).copied();
        let bytes = entry.map(|entry| repo.blob(entry)).transpose()?;
        let text = bytes.and_then(|bytes| String::from_utf8(bytes).ok());
        let missing = || {
            Error::usage(format!("[proposer] pages: {name} is no text file of the champion's commit"))
                .at(FILE)
                .hint("commit it before the tag begins, or take it out of `pages`")
        };
        Ok(SourceFile { path: name.clone(), text: text.ok_or_else(missing)? })
    };
    names.iter().map(read).collect()
}
