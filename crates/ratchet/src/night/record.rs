//! `ratchet record`: a tag's night as one file.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use super::{Again, DECIDES, Head, Line, Trial, VERSION, read};
use crate::{
    candidate::source_of,
    config::Task,
    error::{Doing, Error, Result},
    git::{Oid, Repo},
    history::History,
    journal::{self, Event, Status, TrialRecord},
    plain_file,
    proposer::Edit,
    sigma::KnownNoise,
    state::{State, Tag, TagDir, write_atomic},
    verdict::Crash,
};

/// Writes the night of a tag to `file`. Returns how many trials it holds.
///
/// Errors: exit code 2 for a tag that is not there, or whose candidates are not text.
pub fn record(root: &Path, asked: Option<Tag>, file: &Path) -> Result<usize> {
    let (task, repo, state) = (Task::read(root)?, Repo::open(root)?, State::new(root));
    let file = &std::path::absolute(file).doing("find the place of", file)?;
    check_place(&state, file)?;
    let tag = match asked.map_or_else(|| state.current(), |tag| Ok(Some(tag)))? {
        Some(tag) if state.tag(&tag).journal().exists() => tag,
        Some(tag) => return Err(state.no_such_tag(&tag)),
        None => return Err(Error::usage("there is no night to record yet").hint("`ratchet run` begins one")),
    };
    let dir = state.tag(&tag);
    let events = journal::events(&dir.journal())?;
    let mut history = History::default();
    events.iter().cloned().for_each(|event| history.apply(event));
    let init = history.init().ok_or_else(|| Error::internal("the journal has no beginning"))?;
    let base = repo.parse(&init.base)?;
    let known = KnownNoise {
        task: &task,
        state: &state,
        tag: tag.as_str(),
        history: &history,
        profile: init.profile.as_deref().and_then(|name| name.parse().ok()),
        device: &init.device,
        night: None,
    };
    let head = Head {
        v: VERSION,
        tag: tag.to_string(),
        source: source_of(&repo, base, task.editable())?.0,
        contract: init
            .contract
            .iter()
            .filter(|(name, _)| DECIDES.contains(&name.as_str()))
            .cloned()
            .collect(),
        profile: init.profile.clone(),
        device: init.device.clone(),
        noise: known.of_other_tags(),
        llm: task.proposer.llm.clone(),
    };
    let mut lines = vec![Line::Head(head)];
    let tape = Tape { task: &task, repo: &repo, dir: &dir, history: &history, base };
    let mut attempt = 0;
    for event in events {
        match event {
            Event::NoProposal { proposer, reason, kind, .. } => {
                let calls = calls(&dir.attempt(attempt));
                attempt += 1;
                lines.push(Line::Nothing { proposer, kind, reason, calls });
            }
            Event::Replicated { trial, run, value, seconds, counts: true, tokens_m, .. } => {
                lines.push(Line::Again(Again { trial, run, value, tokens_m, seconds }));
            }
            Event::Closed(record) => {
                attempt += 1;
                lines.push(Line::Trial(Box::new(tape.trial(*record)?)));
            }
            _ => {}
        }
    }
    let trials = history.trials().len();
    lines.push(Line::End { trials });
    let mut text = Vec::new();
    for line in &lines {
        serde_json::to_writer(&mut text, line)
            .map_err(|error| Error::internal("could not write the night").at(file).because(error))?;
        text.push(b'\n');
    }
    write_atomic(file, &text)?;
    Ok(trials)
}

/// Refuses to write over anything but an earlier recording, or among the driver's own files.
fn check_place(state: &State, file: &Path) -> Result<()> {
    let real = |path: &Path| fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    let folder = file.parent().map(real).unwrap_or_default();
    if [state.dir(), state.root().join(".git")].iter().any(|own| folder.starts_with(real(own))) {
        return Err(Error::usage("a night is not recorded among the driver's own files, or git's").at(file));
    }
    match fs::symlink_metadata(file) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Ok(_) if read(file).is_ok() => Ok(()),
        _ => {
            Err(Error::usage("is there already, and is no recorded night").at(file).hint("name another file"))
        }
    }
}

/// What a tag's trials are read from.
struct Tape<'a> {
    task: &'a Task,
    repo: &'a Repo,
    dir: &'a TagDir,
    history: &'a History,
    base: Oid,
}

impl Tape<'_> {
    fn trial(&self, record: TrialRecord) -> Result<Trial> {
        let folder = self.dir.trial(record.trial);
        let verdict = folder.join("verdict.json");
        let mut proposal = record.proposal.clone();
        let removed;
        (proposal.edits, removed) = self.edits(&record)?;
        let crash = (record.status == Status::Crash).then(|| Crash {
            outcome: record.verdict.outcome.clone(),
            reason: record.verdict.reason.clone(),
        });
        Ok(Trial {
            trial: record.trial,
            proposer: record.proposer,
            proposal,
            removed,
            carries: record.carries,
            excursion: record.excursion,
            demand: record.demand,
            source: record.source,
            ahead: record.ahead,
            calls: calls(&folder),
            values: record.values,
            memory_gb: record.memory_gb,
            tokens_m: record.tokens_m,
            mfu_percent: record.mfu_percent,
            sampling: record.verdict.sampling,
            crash,
            verdict: plain_file::read_to_string(&verdict).doing("read", &verdict)?,
        })
    }

    /// The files in which a candidate differs from those that it started from, whole, and those that are gone.
    fn edits(&self, record: &TrialRecord) -> Result<(Vec<Edit>, Vec<String>)> {
        let commit_of = |trial: Option<u64>| {
            let known = trial.and_then(|trial| self.history.trial(trial));
            known
                .and_then(|record| record.commit.as_deref())
                .map_or(Ok(self.base), |hex| self.repo.parse(hex))
        };
        let start = commit_of(record.carries.or(record.excursion).or(record.parent))?;
        let own = commit_of(Some(record.trial))?;
        let before: BTreeMap<_, _> =
            self.repo.editable_files(start, self.task.editable())?.into_iter().collect();
        let after: BTreeMap<_, _> =
            self.repo.editable_files(own, self.task.editable())?.into_iter().collect();
        let changed = after.iter().filter(|(path, bytes)| before.get(*path) != Some(bytes));
        let gone = before.keys().filter(|path| !after.contains_key(*path));
        let no_text = |path: &Path| {
            Error::usage("the candidate's file is no text, and a recorded night holds text alone").at(path)
        };
        let name = |path: &Path| Ok(path.to_str().ok_or_else(|| no_text(path))?.to_owned());
        let edit = |(path, bytes): (&PathBuf, &Vec<u8>)| {
            Ok(Edit { path: name(path)?, text: String::from_utf8(bytes.clone()).map_err(|_| no_text(path))? })
        };
        Ok((changed.map(edit).collect::<Result<_>>()?, gone.map(|path| name(path)).collect::<Result<_>>()?))
    }
}

/// The calls that a folder's proposal took, round by round.
fn calls(folder: &Path) -> Vec<String> {
    let files = std::iter::once("calls.jsonl".to_owned()).chain((2..).map(|n| format!("calls-{n}.jsonl")));
    files.map_while(|name| plain_file::read_to_string(&folder.join(name)).ok()).collect()
}
