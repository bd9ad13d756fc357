//! Lookahead: the next proposal is made, and built, while a trial trains.
//!
//! A companion process does it, in a worktree and a target directory of its own: it is handed an order, and leaves
//! what it made in a file. The driver looks at that file when it wants the next candidate, and uses it only where
//! it still fits: under the same brief, and on the champion it was made from or, three-way, on the one after it.

mod work;

use std::{fs, path::PathBuf, time::Duration};

use serde::{Deserialize, Serialize};

pub use self::work::work;
use crate::{
    account::Payer,
    candidate::{Candidate, message, source_of},
    commands::mark,
    companion::Companion,
    config::ProposerKind,
    control::{self, Wish},
    error::{Doing, Error, Result},
    git::{Of, Oid, Worktree, as_text, remove},
    hire::take_scratch,
    journal::Event,
    plain_file,
    progress::{Observer, Progress},
    proposer::{Budget, Proposal, Usage},
    proposing::{NoCandidate, program_version},
    runlog::tail_of,
    search::{Levels, Use},
    session::Session,
    setting::Setting,
    source::TreeHash,
    state::{TagDir, write_atomic},
};

/// The hidden command of the companion.
pub const COMMAND: &str = "ahead";

/// What a companion is to do.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) tag: String,
    pub(crate) kind: ProposerKind,
    pub(crate) payer: Payer,
    pub(crate) budget: Budget,
    /// The trial under way.
    pub(crate) running: Option<Running>,
    #[serde(with = "as_text")]
    pub(crate) champion: Oid,
    pub(crate) setting: Setting,
    pub(crate) levels: Levels,
    /// Whether to build what was proposed.
    pub(crate) builds: bool,
}

/// A trial under way, as the next proposal needs to know it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Running {
    pub(crate) trial: u64,
    pub(crate) proposal: Proposal,
    pub(crate) source: TreeHash,
    /// The mechanisms that it is a trial of.
    pub(crate) mechanisms: Vec<String>,
}

/// What a companion made.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Made {
    /// The champion then.
    #[serde(with = "as_text")]
    champion: Oid,
    /// The commit whose files the proposal started from.
    #[serde(with = "as_text")]
    start: Oid,
    /// Where a mechanism wanted an excursion to start.
    chosen: Option<u64>,
    proposer: String,
    outcome: std::result::Result<Draft, NoCandidate>,
    /// What mechanisms did.
    uses: Vec<Use>,
    /// What it took.
    seconds: f64,
}

/// A candidate that was made ahead.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Draft {
    pub(crate) candidate: Candidate,
    /// Whether its binaries are there.
    pub(crate) built: bool,
    /// Repairs that it has had.
    pub(crate) round: u32,
}

/// What was made ahead: a draft, or why there is none, and what mechanisms did.
pub(crate) type Drafted = std::result::Result<Draft, (NoCandidate, Vec<Use>)>;

/// The folder that a companion works in.
#[derive(Clone, Debug)]
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn of(dir: &TagDir) -> Self {
        Self(dir.path().join("ahead"))
    }

    fn order(&self) -> PathBuf {
        self.0.join("order.json")
    }

    fn made(&self) -> PathBuf {
        self.0.join("made.json")
    }

    fn log(&self) -> PathBuf {
        self.0.join("log")
    }

    fn worktree(&self) -> PathBuf {
        self.0.join("worktree")
    }

    fn target(&self) -> PathBuf {
        self.0.join("target")
    }

    /// Prompts and answers of the proposal.
    pub(crate) fn scratch(&self) -> PathBuf {
        self.0.join("proposing")
    }

    /// The folder of its build: `bin/` and `build.log`.
    pub(crate) fn run(&self) -> PathBuf {
        self.0.join("run")
    }
}

impl Session {
    /// Sets a companion to work on the next proposal. What goes wrong costs the overlap and nothing else, so it is
    /// told and forgotten.
    pub(crate) fn look_ahead(
        &self,
        kind: ProposerKind,
        budget: Budget,
        running: Option<&Candidate>,
        observer: &mut dyn Observer,
    ) -> Option<Companion> {
        let trial = self.history().open().unwrap_or(0);
        let order = Order {
            tag: self.tag.to_string(),
            kind,
            payer: self.payer.clone(),
            budget,
            running: running.map(|candidate| Running {
                trial,
                proposal: candidate.proposal.clone(),
                source: candidate.source.clone(),
                mechanisms: candidate.uses.iter().map(|used| used.id.clone()).collect(),
            }),
            champion: self.champion(),
            setting: self.setting.handed(),
            levels: self.levels,
            // compiled on the cores that a trial trains on, it would take from what that is measured by; and
            // before the first build there is nothing to start from
            builds: self.task.build.is_some() && self.setting.card.is_some() && running.is_some(),
        };
        let folder = Folder::of(&self.dir);
        let begin = || -> Result<Companion> {
            fs::create_dir_all(&folder.0).doing("create", &folder.0)?;
            if folder.made().exists() {
                remove(&folder.made())?;
            }
            // a new worktree stands on the branch for a moment, which must be before anybody looks
            Worktree::open(&self.repo, &self.tag, Of::Ahead, &folder.worktree())?;
            let json =
                serde_json::to_vec(&order).map_err(|error| Error::internal("no order").because(error))?;
            write_atomic(&folder.order(), &json)?;
            Companion::start(self.state.root(), COMMAND, &mark(self.state.root()), &folder.log())
                .doing("start the process that looks ahead, with its log", &folder.log())
        };
        begin()
            .inspect_err(|error| observer.tell(Progress::Note(&format!("no lookahead this time: {error}"))))
            .ok()
    }

    /// What was made ahead, waiting for it where it is still being made; `None` where nothing can be used.
    pub(crate) fn take_ahead(
        &mut self,
        companion: Option<Companion>,
        observer: &mut dyn Observer,
    ) -> Result<Option<Drafted>> {
        let asked = companion.is_some();
        if let Some(mut companion) = companion {
            while !companion.is_done() {
                // no trial is under way that a stop would have to wait for
                let wish = control::wish(&self.state, std::process::id());
                if self.stop.is_set() || wish.is_some_and(Wish::ends) {
                    return Ok(Some(Err((NoCandidate::Stopped, Vec::new()))));
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
        let folder = Folder::of(&self.dir);
        let Ok(bytes) = plain_file::read(&folder.made()) else {
            if asked {
                let last = tail_of(&folder.log(), 1).pop().unwrap_or_else(|| "it was ended".to_owned());
                observer.tell(Progress::Note(&format!("the process that looks ahead left nothing: {last}")));
            }
            return Ok(None);
        };
        // taken once, whatever comes of it
        remove(&folder.made())?;
        let Ok(made) = serde_json::from_slice::<Made>(&bytes) else { return Ok(None) };
        let draft = match made.outcome {
            Ok(draft) => draft,
            Err(why) if asked => return Ok(Some(Err((why, made.uses)))),
            Err(_) => return Ok(None), // an earlier run's end is not this one's
        };
        let (description, usage) =
            (draft.candidate.proposal.description.clone(), draft.candidate.proposal.usage);
        self.chosen = made.chosen;
        match self.fitted(draft, made.champion, made.start)? {
            Ok(draft) => Ok(Some(Ok(draft))),
            Err(reason) => {
                observer.tell(Progress::Note(&format!("a proposal made ahead is dropped: {reason}")));
                take_scratch(&folder.scratch(), &self.dir.wasted(self.history().wasted().proposals + 1))?;
                self.journal.append(Event::Wasted {
                    proposer: made.proposer,
                    description,
                    reason,
                    usage: usage.unwrap_or_default(),
                    seconds: made.seconds,
                })?;
                Ok(None)
            }
        }
    }

    /// A draft as a candidate on today's champion, or why it can be none.
    fn fitted(&self, draft: Draft, champion: Oid, start: Oid) -> Result<std::result::Result<Draft, String>> {
        let desk = self.desk();
        let program = desk.program()?;
        if draft.candidate.program != (!program.is_empty()).then(|| program_version(&program)) {
            return Ok(Err("program.md has changed since".to_owned()));
        }
        let mut draft = draft;
        let candidate = &mut draft.candidate;
        let now = desk.start_commit(&candidate.proposer)?;
        if (champion, start) != (self.champion(), now) {
            let text = message(&candidate.proposal);
            let moved = self.repo.rebase(start, candidate.commit, now, self.champion(), &text)?;
            let Some(commit) = moved else {
                return Ok(Err("it touches what has changed since".to_owned()));
            };
            candidate.commit = commit;
            (candidate.carries, candidate.excursion) = desk.builds_on(&candidate.proposer);
            draft.built = false;
        }
        (candidate.source, candidate.lines) = source_of(&self.repo, candidate.commit, self.task.editable())?;
        candidate.paths = self.repo.differing(self.champion(), candidate.commit)?;
        candidate.ahead = true;
        candidate.parent = self.history().champion().map(|record| record.trial);
        match desk.checked(draft.candidate)? {
            Ok(candidate) => Ok(Ok(Draft { candidate, ..draft })),
            Err(refusal) => Ok(Err(refusal.to_string())),
        }
    }
}

/// Proposals that were made ahead and not used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Wasted {
    /// How many.
    pub proposals: u64,
    /// What they cost.
    pub usage: Usage,
    /// What they took, beside trials.
    pub seconds: f64,
}
