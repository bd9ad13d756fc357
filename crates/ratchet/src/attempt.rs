//! `ratchet try`: one experiment from the edits now in the working tree; and `ratchet sync`.

use std::{fs, path::PathBuf};

use crate::{
    beginning::note_uncommitted,
    candidate::{Candidate, Refusal, admissible, class_of, message, source_of, without_secrets},
    config::EXEMPT,
    error::{Doing, Error, Kind, Result},
    git::{Change, ChangeKind, Oid},
    journal::{Event, Status, TrialRecord},
    progress::Observer,
    proposer::{Demand, Proposal},
    run::now,
    runlog::plain,
    session::{Checkout, Session},
    state::write_atomic,
    trial::{Done, NotReady},
};

/// Files that cargo and rustup look for in every folder above the one they run in.
const BUILD_SETTINGS: [&str; 4] =
    [".cargo/config.toml", ".cargo/config", "rust-toolchain.toml", "rust-toolchain"];

/// How a `try` ended.
#[derive(Debug)]
pub enum Tried {
    /// A trial was run.
    Trial(Box<TrialRecord>),
    /// A stop was asked for: nothing is recorded, the edits stand as they were.
    Stopped,
}

impl Session {
    /// Runs the baseline unless the tag has a champion. `None` when a stop was asked for.
    ///
    /// A baseline that crashes is a row, and an error with exit code 1.
    pub fn ensure_baseline(&mut self, observer: &mut dyn Observer) -> Result<Option<()>> {
        if self.history().champion().is_some() {
            return Ok(Some(()));
        }
        let candidate = self.baseline()?;
        match self.run_trial(candidate, observer)? {
            Done::Stopped => Ok(None),
            Done::Closed(record) if record.status == Status::Keep => Ok(Some(())),
            Done::Closed(record) => {
                note_uncommitted(&self.task, &self.repo, self.champion(), observer)?;
                Err(Error::internal(format!("the unedited baseline crashed: {}", record.verdict.reason))
                    .at(self.dir.trial(record.trial))
                    .hint(
                        "its logs are there; make the task run by hand, commit the repair, then start again",
                    ))
            }
        }
    }

    /// One trial without repairs: a build that fails is a crash.
    pub fn run_trial(&mut self, candidate: Candidate, observer: &mut dyn Observer) -> Result<Done> {
        let mut open = self.begin(candidate, observer)?;
        match self.make_ready(&mut open, observer)? {
            Ok(()) => self.finish(open, observer),
            Err(NotReady::Crash(crash, _)) => self.close_crashed(open, crash, observer),
            Err(NotReady::Stopped) => self.abandon(open),
        }
    }

    /// Takes the working tree's edits as a candidate and tries them.
    ///
    /// Exit code 3 for a candidate that is refused; the files then stay as they are. After a trial the
    /// editable files equal the champion's.
    pub fn attempt(&mut self, description: &str, observer: &mut dyn Observer) -> Result<Tried> {
        let tried = self.attempt_unless_refused(description, observer);
        if let Err(error) = &tried
            && error.kind == Kind::Refused
        {
            self.journal.append(Event::Refused { at: now(), reason: plain(&error.to_string(), 300) })?;
        }
        tried
    }

    fn attempt_unless_refused(&mut self, description: &str, observer: &mut dyn Observer) -> Result<Tried> {
        self.check_sandbox(false, observer)?;
        without_secrets(self.state.root(), &self.task)?;
        self.check_protected()?;
        let edits = admissible(self.edits()?, self.task.editable(), &EXEMPT)?;
        self.ensure_data(observer)?;
        if self.ensure_baseline(observer)?.is_none() {
            return Ok(Tried::Stopped);
        }
        let (mine, candidate) = self.candidate_of(edits, description)?;
        let checkout = self.checkout()?;
        let trial = self.history().next_trial();
        self.set_checkout(&Checkout { pending: Some((mine.to_string(), trial)), ..checkout.clone() })?;
        match self.run_trial(candidate, observer)? {
            Done::Closed(record) => {
                self.give_files(mine, observer)?;
                Ok(Tried::Trial(record))
            }
            Done::Stopped => {
                self.set_checkout(&checkout)?;
                Ok(Tried::Stopped)
            }
        }
    }

    /// Refuses when a protected file of the working tree is not as the tag started with.
    fn check_protected(&self) -> Result<()> {
        let base = self.history().init().map(|init| init.base.clone()).unwrap_or_default();
        let changes = self.repo.changes(self.repo.parse(&base)?)?;
        match admissible(changes, self.task.editable(), &EXEMPT) {
            Err(refusal @ (Refusal::Protected(_) | Refusal::Link(_))) => Err(Error::from(refusal).hint(
                "or, where your commits changed it on purpose, start another tag with `ratchet init --tag`",
            )),
            _ => Ok(()),
        }
    }

    /// Refuses while something untracked stands above the worktree that would change how cargo builds there: a
    /// build would not be what the commit says, and a rate of learning not what the code says.
    pub(crate) fn check_surroundings(&self) -> Result<()> {
        let builds =
            self.task.build.as_ref().is_some_and(|build| build.command.first().is_some_and(|c| c == "cargo"));
        let root = self.state.root();
        let tracked = self.repo.files(self.champion())?;
        let above = self.worktree.path().ancestors().skip(1).take_while(|folder| folder.starts_with(root));
        let found = above.flat_map(|folder| BUILD_SETTINGS.map(|name| folder.join(name))).find(|path| {
            let inside = path.strip_prefix(root).unwrap_or(path);
            fs::symlink_metadata(path).is_ok() && !tracked.contains_key(inside)
        });
        match found.filter(|_| builds) {
            None => Ok(()),
            Some(path) => Err(Error::refused("is not tracked, and changes how cargo builds below it")
                .at(path)
                .hint("commit it before the tag begins, or move it into your home directory")),
        }
    }

    /// What the user changed in the editable files since they were last made equal to a champion.
    fn edits(&self) -> Result<Vec<Change>> {
        let base = self.repo.parse(&self.checkout()?.base)?;
        let editable = self.task.editable();
        Ok(self.repo.changes(base)?.into_iter().filter(|change| editable.contains(&change.path)).collect())
    }

    /// The user's state as a commit on its base, and the candidate made of it on the champion.
    fn candidate_of(&self, edits: Vec<Change>, description: &str) -> Result<(Oid, Candidate)> {
        let base = self.repo.parse(&self.checkout()?.base)?;
        let champion = self.champion();
        let proposal = Proposal { description: description.to_owned(), ..Proposal::default() };
        let text = message(&proposal);
        let mine = self.repo.commit_changes(base, &edits, &text)?;
        let commit = if base == champion {
            mine
        } else {
            self.repo.rebase(base, mine, champion, champion, &text)?.ok_or_else(|| {
                Error::refused("the champion has moved since, and your edit touches the same lines").hint(
                    "`ratchet sync` saves your edit and brings the files to the champion; then edit again",
                )
            })?
        };
        let (source, lines) = source_of(&self.repo, commit, self.task.editable())?;
        let paths: Vec<PathBuf> = edits.into_iter().map(|change| change.path).collect();
        let candidate = self.desk().checked(Candidate {
            commit,
            paths,
            source,
            lines,
            parent: self.history().champion().map(|record| record.trial),
            proposer: "try".to_owned(),
            proposal,
            may_carry: false,
            carries: None,
            excursion: None,
            ahead: false,
            class: class_of(&self.repo, champion, commit, self.task.editable())?,
            program: None,
            demand: Demand::default(),
            uses: Vec::new(),
        })?;
        Ok((mine, candidate?))
    }

    /// Brings the working tree's editable files to the champion. Edits that stand there are saved first;
    /// where, is returned.
    pub fn sync(&self, observer: &mut dyn Observer) -> Result<Option<Saved>> {
        let base = self.repo.parse(&self.checkout()?.base)?;
        let edits = self.edits()?;
        let mine = if edits.is_empty() {
            None
        } else if let Some(link) = edits.iter().find(|change| change.is_link()) {
            return Err(Refusal::Link(link.path.clone()).into());
        } else {
            Some(self.repo.commit_changes(base, &edits, "edits before ratchet sync")?)
        };
        let saved = mine.map(|mine| self.save(base, mine, &edits)).transpose()?;
        self.give_files(mine.unwrap_or(base), observer)?;
        Ok(saved)
    }

    fn save(&self, base: Oid, mine: Oid, edits: &[Change]) -> Result<Saved> {
        let name = jiff::Zoned::now().strftime("%Y%m%d-%H%M%S").to_string();
        let reference = self.repo.keep_saved(&name, mine)?;
        let folder = self.state.dir().join("saved");
        fs::create_dir_all(&folder).doing("create", &folder)?;
        let patch = folder.join(format!("{name}.patch"));
        write_atomic(&patch, &self.repo.patch(base, mine)?)?;
        let files = edits.iter().filter(|change| change.kind != ChangeKind::Deleted).count();
        Ok(Saved { patch, reference, files })
    }
}

/// Where `sync` saved edits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Saved {
    /// A patch against what the edits started from.
    pub patch: PathBuf,
    /// A ref whose commit holds the files.
    pub reference: String,
    /// How many files.
    pub files: usize,
}
