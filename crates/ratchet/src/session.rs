//! One tag, opened for work under the lock: everything derived is made equal to the journal first.

use std::path::PathBuf;

use jiff::Timestamp;
use prepare::profile::Profile;
use sandbox::{Available, available};
use serde::{Deserialize, Serialize};

use crate::{
    account::Payer,
    beginning::{New, begin_again, create, finish_branch},
    candidate::{Candidate, source_of},
    commands::mark,
    config::{SandboxMode, Task},
    error::{Doing, Error, Result},
    exec::StopFlag,
    fingerprint::{self, Watcher},
    git::{Files, Of, Oid, Repo, Worktree},
    history::History,
    journal::{Event, Init, Journal},
    ledger,
    night::Playback,
    plain_file,
    processes::kill_marked,
    progress::{Observer, Progress},
    proposer::{Demand, Proposal},
    proposing::Desk,
    reach::{confined, lacking},
    search::Levels,
    setting::Setting,
    state::{Lock, State, Tag, TagDir, write_atomic},
};

/// What the user asked for on the command line.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `--tag`.
    pub tag: Option<Tag>,
    /// `--profile`.
    pub profile: Option<Profile>,
    /// A recorded night to play back into a tag of its own.
    pub night: Option<PathBuf>,
}

/// A tag opened for work. The lock is held until this is dropped.
pub struct Session {
    /// The contract.
    pub task: Task,
    /// `.ratchet/`.
    pub state: State,
    /// The tag.
    pub tag: Tag,
    /// Its folder.
    pub dir: TagDir,
    /// The user's repository.
    pub repo: Repo,
    /// Where candidates are built and run.
    pub worktree: Worktree,
    /// The truth.
    pub journal: Journal,
    /// Profile, device, data.
    pub setting: Setting,
    /// Asks to stop.
    pub stop: StopFlag,
    /// This invocation, as it stands in the account of what proposers spend.
    pub(crate) payer: Payer,
    /// What is played back, in place of proposers and runs.
    pub(crate) night: Option<Playback>,
    /// How much of the search may change.
    pub(crate) levels: Levels,
    /// Where a mechanism wants the next proposal's excursion to start.
    pub(crate) chosen: Option<u64>,
    /// What was last said of wishes that cannot be read.
    pub(crate) noted: Option<String>,
    pub(crate) watcher: Watcher,
    champion: Oid,
    champion_files: Files,
    toolchain: Option<String>,
    _lock: Lock,
}

/// What the working tree's editable files started from; `checkout.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Checkout {
    /// The commit whose editable files they were.
    pub base: String,
    /// A `try` under way: what the files hold, and the trial's number.
    pub pending: Option<(String, u64)>,
}

impl Session {
    /// Creates a tag. Exit code 2 when it exists.
    pub fn init(
        root: &std::path::Path,
        asked: &Asked,
        stop: StopFlag,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let (task, repo, state) = parts(root)?;
        let lock = state.lock()?;
        let tag = asked.tag.clone().unwrap_or_else(Tag::today);
        repo.unlock(&tag);
        if state.tag(&tag).journal().exists() {
            return Err(Error::usage(format!("the tag {tag} exists"))
                .at(state.tag(&tag).path())
                .hint(format!("go on with it: `ratchet run --tag {tag}`, or choose another --tag")));
        }
        create(&task, &repo, &state, &tag, asked, New::Created, observer)?;
        Self::enter(task, repo, state, tag, lock, asked, stop, observer)
    }

    /// Opens the asked, else the current, else today's tag; `new` says what becomes of one that is not there.
    pub fn open(
        root: &std::path::Path,
        asked: &Asked,
        new: New,
        stop: StopFlag,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let (task, repo, state) = parts(root)?;
        let tag = match &asked.tag {
            Some(tag) => tag.clone(),
            None => state.current()?.unwrap_or_else(Tag::today),
        };
        let there = state.tag(&tag).journal().exists();
        if !there && asked.tag.is_none() && state.current()?.is_some() {
            return Err(state.no_current_tag(&tag));
        }
        if !there && new == New::Refused {
            return Err(state.no_such_tag(&tag));
        }
        let lock = state.lock()?;
        repo.unlock(&tag);
        if !there {
            create(&task, &repo, &state, &tag, asked, new, observer)?;
        }
        Self::enter(task, repo, state, tag, lock, asked, stop, observer)
    }

    #[expect(clippy::too_many_arguments, reason = "private, and each is a part of the session")]
    fn enter(
        task: Task,
        repo: Repo,
        state: State,
        tag: Tag,
        lock: Lock,
        asked: &Asked,
        stop: StopFlag,
        observer: &mut dyn Observer,
    ) -> Result<Self> {
        let dir = state.tag(&tag);
        state.settle(&tag)?;
        let mut journal = Journal::open(&dir.journal())?;
        begin_again(&task, &repo, &state, &tag, &mut journal, asked, observer)?;
        let init = journal
            .history()
            .init()
            .cloned()
            .ok_or_else(|| Error::internal("the journal has no beginning"))?;
        check_contract(&task, &init)?;
        let night = asked.night.as_deref().map(Playback::read).transpose()?;
        if night.is_some() && !journal.history().trials().is_empty() {
            return Err(Error::usage(format!("the tag {tag} holds trials already"))
                .hint("a recorded night is played back into a tag of its own: name a new one with --tag"));
        }
        let setting = match &night {
            Some(night) => Setting::recorded(night, Some(&init))?,
            None => Setting::choose(&task, asked.profile, Some(&init), observer)?,
        };
        let left = kill_marked(&mark(state.root()).to_string_lossy());
        if left > 0 {
            observer.tell(Progress::Note(&format!("ended {left} processes that an earlier run left behind")));
        }
        if let Some(trial) = journal.history().open() {
            observer
                .tell(Progress::Note(&format!("trial {trial} was interrupted; its number is used again")));
            journal.append(Event::Abandoned { trial, reason: "the driver was ended".into() })?;
        }
        let champion = champion_commit(&repo, journal.history(), &init)?;
        if repo.reclaim_branch(&tag, champion)? {
            observer.tell(Progress::Note(&format!(
                "the branch {} was checked out in its worktree",
                tag.branch()
            )));
        }
        finish_branch(&repo, &tag, &mut journal, champion)?;
        repo.check_branch(&tag, champion)?;
        let worktree = Worktree::open(&repo, &tag, Of::Trials, &dir.worktree())?;
        let champion_files = repo.files(champion)?;
        if fingerprint::protected(&champion_files, task.editable()) != init.protected {
            return Err(Error::usage(
                "protected files of the champion are not those that the tag started with",
            )
            .at(state.root())
            .hint("start another with --tag"));
        }
        worktree.restore(champion, &champion_files)?;
        let committed = worktree.path().join(crate::config::FILE);
        task.notify.check_committed(&plain_file::read_to_string(&committed).unwrap_or_default())?;
        save_foreign_results(&state, observer)?;
        ledger::write(&state, &task.metric.name, journal.history().trials())?;
        state.set_current(&tag)?;
        let run = format!("{tag} {} {}", Timestamp::now(), std::process::id());
        let payer = Payer { run, max_tokens: None, max_usd: None };
        let mut session = Self {
            task,
            state,
            tag,
            dir,
            repo,
            worktree,
            journal,
            setting,
            stop,
            payer,
            night,
            levels: Levels::default(),
            chosen: None,
            noted: None,
            watcher: Watcher::default(),
            champion,
            champion_files,
            toolchain: None,
            _lock: lock,
        };
        session.finish_shelf()?;
        session.finish_checkout(observer)?;
        Ok(session)
    }

    /// The history.
    pub fn history(&self) -> &History {
        self.journal.history()
    }

    /// The night that is played back.
    pub fn night(&self) -> Option<&Playback> {
        self.night.as_ref()
    }

    /// The champion's commit; the base before the baseline.
    pub fn champion(&self) -> Oid {
        self.champion
    }

    /// Makes another commit the champion, and the worktree equal to it.
    pub(crate) fn set_champion(&mut self, commit: Oid) -> Result<()> {
        self.champion = commit;
        self.champion_files = self.repo.files(commit)?;
        self.restore()
    }

    /// Makes the worktree equal to the champion.
    pub fn restore(&self) -> Result<()> {
        self.worktree.restore(self.champion, &self.champion_files)
    }

    /// Opens the data of the profile, preparing it when it is bundled.
    pub fn ensure_data(&mut self, observer: &mut dyn Observer) -> Result<()> {
        if self.night.is_some() {
            return Ok(());
        }
        self.setting.ensure_data(&self.task, &self.state, &self.stop, observer)
    }

    /// The compiler's version, where the task builds with cargo; asked for once.
    pub(crate) fn toolchain(&mut self) -> Option<&str> {
        if self.toolchain.is_none() && self.task.build.is_some() {
            self.toolchain = Some(crate::exec::first_line_of("rustc", &["--version"]).unwrap_or_default());
        }
        self.toolchain.as_deref()
    }

    /// Says what the lack of a sandbox means. Exit code 4 where it must not be: for code that an agent wrote,
    /// or when `required`, unless the user says `off`.
    pub fn check_sandbox(&self, untrusted: bool, observer: &mut dyn Observer) -> Result<()> {
        if confined(&self.task)? || self.task.sandbox.mode == SandboxMode::Off {
            return Ok(());
        }
        let Available::Nothing(why) = available() else { return Ok(()) };
        if untrusted {
            return Err(lacking(&why));
        }
        observer
            .tell(Progress::Note(&format!("there is no sandbox here ({why}): trials run with your rights")));
        Ok(())
    }

    /// The unedited base as a candidate.
    pub fn baseline(&self) -> Result<Candidate> {
        let (source, lines) = source_of(&self.repo, self.champion, self.task.editable())?;
        Ok(Candidate {
            commit: self.champion,
            paths: Vec::new(),
            source,
            lines,
            parent: None,
            proposer: "baseline".to_owned(),
            proposal: Proposal { description: "baseline".to_owned(), ..Proposal::default() },
            may_carry: false,
            carries: None,
            excursion: None,
            ahead: false,
            class: None,
            program: None,
            demand: Demand::default(),
            uses: Vec::new(),
        })
    }

    /// Where proposals are made while nothing else is done.
    pub(crate) fn desk(&self) -> Desk<'_> {
        Desk {
            task: &self.task,
            repo: &self.repo,
            state: &self.state,
            tag: &self.tag,
            dir: &self.dir,
            history: self.history(),
            setting: &self.setting,
            worktree: &self.worktree,
            champion: self.champion,
            scratch: self.dir.path().join("proposing"),
            payer: &self.payer,
            night: self.night(),
            levels: self.levels,
            chosen: self.chosen,
            stop: &self.stop,
        }
    }

    /// What the user's editable files started from.
    pub fn checkout(&self) -> Result<Checkout> {
        let path = self.dir.checkout();
        match plain_file::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| {
                Error::internal("not what checkout.json should be")
                    .at(&path)
                    .because(error)
                    .hint("remove it: your files then count as started from the tag's first commit")
            }),
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error).doing("read", &path),
            Err(_) => {
                let base = self.history().init().map(|init| init.base.clone()).unwrap_or_default();
                Ok(Checkout { base, pending: None })
            }
        }
    }

    /// Notes what the user's editable files start from now.
    pub fn set_checkout(&self, checkout: &Checkout) -> Result<()> {
        let json = serde_json::to_vec(checkout).unwrap_or_default(); // strings and a number: cannot fail
        write_atomic(&self.dir.checkout(), &json)
    }

    /// Ends a `try` whose trial was closed before the files could follow.
    fn finish_checkout(&mut self, observer: &mut dyn Observer) -> Result<()> {
        let mut checkout = self.checkout()?;
        let Some((mine, trial)) = checkout.pending.take() else { return Ok(()) };
        if self.history().trial(trial).is_some() {
            let known = self.repo.parse(&mine)?;
            self.give_files(known, observer)?;
        } else {
            self.set_checkout(&checkout)?;
        }
        Ok(())
    }

    /// Makes the user's editable files equal to the champion's, where they still hold what `known` has.
    pub fn give_files(&self, known: Oid, observer: &mut dyn Observer) -> Result<()> {
        let left = self.repo.set_files(self.champion, self.task.editable(), known, &self.worktree)?;
        if let Some(first) = left.first() {
            let more = if left.len() > 1 { format!(" and {} more", left.len() - 1) } else { String::new() };
            observer.tell(Progress::Note(&format!(
                "{}{more} was edited meanwhile and is left as it is",
                first.display()
            )));
        }
        self.set_checkout(&Checkout { base: self.champion.to_string(), pending: None })
    }
}

fn parts(root: &std::path::Path) -> Result<(Task, Repo, State)> {
    let task = Task::read(root)?;
    let repo = Repo::open(root)?;
    Ok((task, repo, State::new(root)))
}

fn check_contract(task: &Task, init: &Init) -> Result<()> {
    for ((section, now), (_, then)) in task.contract().iter().zip(&init.contract) {
        if now != then {
            return Err(Error::usage(format!(
                "[{section}] has changed since the tag {} was created",
                init.tag
            ))
            .at(crate::config::FILE)
            .hint(
                "values before and after cannot be compared: undo the change, or start another with --tag",
            ));
        }
    }
    Ok(())
}

fn champion_commit(repo: &Repo, history: &History, init: &Init) -> Result<Oid> {
    let commit = history.champion().and_then(|record| record.commit.as_deref()).unwrap_or(&init.base);
    repo.parse(commit)
}

/// Puts a `results.tsv` that no tag of this folder wrote out of the way.
fn save_foreign_results(state: &State, observer: &mut dyn Observer) -> Result<()> {
    let Ok(bytes) = plain_file::read(&state.results()) else { return Ok(()) };
    let text = String::from_utf8_lossy(&bytes);
    let head = text.lines().next().unwrap_or_default();
    if text.trim().is_empty() || (head.contains("\ttrial\t") && head.ends_with("\toutcome")) {
        return Ok(());
    }
    let names = std::iter::once("results-before.tsv".to_owned())
        .chain((2..).map(|n| format!("results-before-{n}.tsv")));
    let free = names.map(|name| state.dir().join(name)).find(|path| {
        // the same text is saved once
        plain_file::read(path).map_or(true, |known| known == bytes)
    });
    if let Some(saved) = free.filter(|path| !path.exists()) {
        write_atomic(&saved, &bytes)?;
        observer.tell(Progress::Note(&format!("the results.tsv that was here is now {}", saved.display())));
    }
    Ok(())
}
