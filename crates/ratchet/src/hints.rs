//! `ratchet hint`: one-off ideas of a person, queued for the next proposals of a model or an agent.
//!
//! Each is a file below the tag's folder whose name is its id, written whole or not at all and without the
//! run's lock. A hint is used up when a trial that was proposed with it is recorded; which those are is read
//! from the journal, so that whatever is killed when, each is taken once. What is used up is then removed.

use std::{
    fs, io,
    path::PathBuf,
    time::{SystemTime, UNIX_EPOCH},
};

use crate::{
    config::ProposerKind,
    error::{Doing, Error, Result},
    history::History,
    journal::Event,
    plain_file,
    runlog::plain,
    secrets::secrets,
    show::View,
    state::{TagDir, replace, sync_folder},
};

/// The longest hint, characters: an idea, not a brief.
const LONGEST: usize = 2_000;
/// Proposals in a row that may come to nothing before one is asked for without the hint, which may be why.
const PATIENCE: usize = 3;

/// One idea in the queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// Its name in records, unique and in the order of arrival.
    pub id: String,
    /// The idea.
    pub text: String,
}

/// The queue of one tag.
#[derive(Clone, Debug)]
pub struct Hints {
    folder: PathBuf,
}

impl Hints {
    /// Of a tag; creates nothing.
    pub fn of(tag: &TagDir) -> Self {
        Self { folder: tag.path().join("hints") }
    }

    /// Queues an idea. Exit code 2 for what is none.
    pub fn add(&self, text: &str) -> Result<()> {
        let text = checked(text)?;
        let tag = self.folder.parent().unwrap_or(&self.folder);
        fs::create_dir_all(&self.folder).doing("create", &self.folder)?;
        sync_folder(tag)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let id = format!("{:020}-{}", now.as_nanos(), std::process::id());
        let (path, via) = (self.path(&id), self.folder.join(format!("{id}.new")));
        replace(&path, &via, text.as_bytes())
    }

    /// The ideas that no trial has taken up, oldest first. What is no hint in the folder is passed over.
    pub fn pending(&self, history: &History) -> Result<Vec<Hint>> {
        let mut ids = self.ids()?;
        ids.retain(|id| !history.hint_taken(id));
        ids.sort_unstable();
        let hint = |id: String| {
            let text = plain_file::read_to_string(&self.path(&id)).ok()?;
            Some(Hint { text: checked(&text).ok()?, id })
        };
        Ok(ids.into_iter().filter_map(hint).collect())
    }

    /// The idea that the next proposal is to take up.
    pub fn next(&self, history: &History) -> Result<Option<Hint>> {
        if history.in_vain().len() >= PATIENCE {
            return Ok(None);
        }
        Ok(self.pending(history)?.into_iter().next())
    }

    /// Takes a hint out of the queue.
    pub fn remove(&self, id: &str) -> Result<()> {
        let path = self.path(id);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error).doing("remove", &path),
            _ => Ok(()),
        }
    }

    /// Removes what finished trials have used up.
    pub(crate) fn sweep(&self, history: &History) -> Result<()> {
        let used =
            |id: &String| history.trials().iter().any(|record| record.demand.hint_id.as_ref() == Some(id));
        self.ids()?.iter().filter(|id| used(id)).try_for_each(|id| self.remove(id))
    }

    fn ids(&self) -> Result<Vec<String>> {
        match fs::read_dir(&self.folder) {
            Ok(entries) => Ok(entries
                .flatten()
                .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".txt")?.to_owned()))
                .collect()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error).doing("read", &self.folder),
        }
    }

    fn path(&self, id: &str) -> PathBuf {
        self.folder.join(format!("{id}.txt"))
    }
}

impl View {
    /// Queues an idea for the tag's next proposals. What to tell the person.
    pub fn add_hint(&self, text: &str) -> Result<String> {
        self.queue()?.add(text)?;
        let waiting = self.pending_hints()?.len();
        let mut said = format!("queued, {waiting} waiting: the next proposal takes up the oldest\n");
        if matches!(self.task.proposer.kind, ProposerKind::Knobs | ProposerKind::Replay) {
            said += "the proposer in ratchet.toml takes up no hints: they wait for a `ratchet run --proposer llm` or `agent`\n";
        }
        Ok(said)
    }

    /// The queue, numbered, for a person.
    pub fn hints(&self) -> Result<String> {
        let hints = self.pending_hints()?;
        if hints.is_empty() {
            return Ok("no hints are waiting: `ratchet hint TEXT` queues one\n".to_owned());
        }
        Ok((1..).zip(&hints).map(|(n, hint)| format!("{n:>3}  {}\n", plain(&hint.text, LONGEST))).collect())
    }

    /// Takes number `n` of the list out of the queue. Exit code 2 when there is none.
    pub fn remove_hint(&self, n: usize) -> Result<String> {
        let hints = self.pending_hints()?;
        let hint = n.checked_sub(1).and_then(|i| hints.get(i)).ok_or_else(|| {
            Error::usage(format!("there is no hint {n} in the queue")).hint("`ratchet hint` lists them")
        })?;
        self.queue()?.remove(&hint.id)?;
        Ok(format!("taken out of the queue: {}\n", plain(&hint.text, 200)))
    }

    /// The hints that no trial has taken up.
    pub(crate) fn pending_hints(&self) -> Result<Vec<Hint>> {
        match &self.tag {
            Some(tag) => {
                let mut history = self.history.clone();
                if let Some(trial) = history.open().filter(|_| self.state.running().is_none()) {
                    history.apply(Event::Abandoned { trial, reason: String::new() }); // as the next start will
                }
                Hints::of(&self.state.tag(tag)).pending(&history)
            }
            None => Ok(Vec::new()),
        }
    }

    fn queue(&self) -> Result<Hints> {
        match &self.tag {
            Some(tag) => Ok(Hints::of(&self.state.tag(tag))),
            None => Err(Error::usage("there is no tag yet that a hint could be for")
                .hint("`ratchet init` or `ratchet run` creates one")),
        }
    }
}

/// A hint as it may stand in a prompt, a record and on a screen.
fn checked(text: &str) -> Result<String> {
    let text = text.trim();
    let wrong = |what: &str| Err(Error::usage(format!("the hint {what}")));
    if text.is_empty() {
        return wrong("is empty: say the idea in a sentence or two");
    }
    let length = text.chars().count();
    if length > LONGEST {
        return wrong(&format!(
            "has {length} characters, and {LONGEST} is the most; what is longer belongs in program.md"
        ));
    }
    if text.chars().any(|c| c.is_control() && !matches!(c, '\n' | '\t')) {
        return wrong("holds control characters; write plain text");
    }
    match secrets().found_in(text.as_bytes()) {
        Some(name) => wrong(&format!("holds the value of {name}, and hints are recorded; take it out")),
        None => Ok(text.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        journal::{Status, tests::record},
        state::{State, Tag},
    };

    fn hints(dir: &tempfile::TempDir) -> Hints {
        let tag = State::new(dir.path()).tag(&Tag::parse("t").unwrap());
        fs::create_dir_all(tag.path()).unwrap();
        Hints::of(&tag)
    }

    fn texts(hints: &Hints, history: &History) -> Vec<String> {
        hints.pending(history).unwrap().into_iter().map(|hint| hint.text).collect()
    }

    #[test]
    fn hints_are_taken_in_order_each_by_one_recorded_trial() {
        let dir = tempfile::tempdir().unwrap();
        let hints = hints(&dir);
        let mut history = History::default();
        assert_eq!(hints.next(&history).unwrap(), None);
        hints.add(" first \n").unwrap();
        hints.add("second\nof two lines").unwrap();
        let first = hints.next(&history).unwrap().unwrap();
        assert_eq!(first.text, "first");
        let opened =
            Event::Opened { trial: 1, parent: None, commit: String::new(), hint: Some(first.id.clone()) };
        history.apply(opened.clone());
        assert_eq!(texts(&hints, &history), ["second\nof two lines"], "the trial that runs has the first");
        history.apply(Event::Abandoned { trial: 1, reason: "killed".into() });
        assert_eq!(texts(&hints, &history).len(), 2, "it goes back");
        history.apply(opened);
        let mut trial = record(1, Status::Discard, Some(1.0));
        trial.demand.hint_id = Some(first.id);
        history.apply(Event::Closed(Box::new(trial)));
        assert_eq!(texts(&hints, &history).len(), 1);
        assert_eq!(fs::read_dir(&hints.folder).unwrap().count(), 2);
        hints.sweep(&history).unwrap();
        assert_eq!(fs::read_dir(&hints.folder).unwrap().count(), 1);
    }

    #[test]
    fn a_hint_that_nothing_comes_of_does_not_block_the_night() {
        let dir = tempfile::tempdir().unwrap();
        let hints = hints(&dir);
        hints.add("impossible").unwrap();
        let mut history = History::default();
        for _ in 0..PATIENCE {
            assert!(hints.next(&history).unwrap().is_some());
            let (proposer, reason) = ("a".into(), "no edit".into());
            history.apply(Event::NoProposal { proposer, reason, kind: Default::default(), uses: Vec::new() });
        }
        assert_eq!(hints.next(&history).unwrap(), None);
        history.apply(Event::Closed(Box::new(record(1, Status::Keep, Some(1.0)))));
        assert!(hints.next(&history).unwrap().is_some(), "after a trial it is asked for again");
    }

    #[test]
    fn what_is_no_hint_is_refused_or_passed_over() {
        let dir = tempfile::tempdir().unwrap();
        let hints = hints(&dir);
        for bad in ["", " \n", "a\u{1b}[2Jb", "a\0b", &"x".repeat(1 << 20)] {
            assert_eq!(hints.add(bad).unwrap_err().kind.exit_code(), 2);
        }
        fs::create_dir_all(hints.folder.join("folder.txt")).unwrap();
        fs::write(hints.folder.join("1.txt"), [0xff]).unwrap();
        fs::write(hints.folder.join("2.new"), "half").unwrap();
        assert_eq!(hints.pending(&History::default()).unwrap(), []);
    }
}
