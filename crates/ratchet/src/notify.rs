//! Tells somebody who is not at the terminal: a webhook, a command, or both.
//!
//! A [`Herald`] follows a run as an observer. What is to be told goes to a thread of its own, which also looks at the
//! clock, as the loop itself may hang. Nothing here ever ends a run or holds it up: what cannot be told is a note.

mod command;
mod message;
mod post;
mod standing;
mod webhook;

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub use self::message::{Counts, Message};
use self::{
    post::{Post, Way},
    standing::{Standing, in_vain},
};
use crate::{
    config::{Occasion, Task},
    error::{Error, Kind, Result},
    progress::{Observer, Progress},
    run::Summary,
    session::Session,
    state::{State, Tag},
    stop::{Ending, Rules},
};

/// Follows a run, passes on what it hears, and tells of it.
pub struct Herald<'a> {
    inner: &'a mut dyn Observer,
    post: Option<Post>,
    standing: Arc<Mutex<Standing>>,
    on: Vec<Occasion>,
}

impl<'a> Herald<'a> {
    /// For a run of this session. Exit code 4 where the webhook's address cannot be read.
    pub fn new(session: &Session, rules: &Rules, inner: &'a mut dyn Observer) -> Result<Self> {
        let task = &session.task;
        let has_end = rules.time.is_some() || rules.until.is_some();
        let tag = session.tag.as_str();
        let standing = Standing::new(task, tag, session.history(), session.setting.budget(), has_end);
        let standing = Arc::new(Mutex::new(standing));
        let on = task.notify.on.clone();
        let post = match task.notify.is_used() {
            false => None,
            true => {
                let way = Way::of(task, session.state.root())?;
                Some(Post::open(way, standing.clone(), on.clone()))
            }
        };
        Ok(Self { inner, post, standing, on })
    }

    /// Tells how the run ended, and gives what still waits to be told a short time.
    pub fn run_ended(mut self, result: &Result<Summary>) {
        let Some(post) = self.post.take() else { return };
        let (mut event, reason) = match result {
            Ok(summary) => (
                match summary.ending {
                    Ending::Clock => Occasion::Morning,
                    Ending::Asked => Occasion::Stop,
                    Ending::Trouble => Occasion::Error,
                },
                [Some(summary.reason.as_str()), summary.review.as_deref()]
                    .into_iter()
                    .flatten()
                    .collect::<Vec<_>>()
                    .join("; "),
            ),
            Err(error) => (Occasion::Error, error.to_string()),
        };
        if event == Occasion::Morning && !self.on.contains(&event) {
            event = Occasion::Stop; // it ended all the same
        }
        let reason = match event {
            Occasion::Morning => format!("the run has ended: {reason}"),
            _ => reason,
        };
        if self.on.contains(&event) {
            post.send(lock(&self.standing).message(event).because(&reason).written());
        }
        if let Some(trouble) = post.close() {
            self.inner.tell(Progress::Note(&trouble));
        }
    }
}

impl Observer for Herald<'_> {
    fn tell(&mut self, progress: Progress<'_>) {
        self.inner.tell(progress);
        let Some(post) = &self.post else { return };
        if let Some(trouble) = post.trouble() {
            self.inner.tell(Progress::Note(&trouble));
        }
        let mut standing = lock(&self.standing);
        match progress {
            Progress::Proposing { proposer } => standing.does(&format!("{proposer} proposes")),
            Progress::Searching { what } => standing.does(&format!("the search {what}")),
            Progress::NoProposal { reason } => standing.does(&in_vain(reason)),
            Progress::Started { trial, description, .. } => standing.started(trial, description),
            Progress::Phase { phase, .. } => standing.does(&phase.to_string()),
            Progress::Ended { record, champion } => {
                let keep = standing.ended(record, champion).filter(|_| self.on.contains(&Occasion::Keep));
                keep.into_iter().for_each(|message| post.send(message));
            }
            Progress::Paused { why } => {
                standing.paused(true);
                // a person knows that they paused it; nobody knows that it waits for one
                let waits = why.map(|why| format!("the run waits: {why}"));
                let message = waits.filter(|_| self.on.contains(&Occasion::Stuck));
                message.into_iter().for_each(|waits| {
                    post.send(standing.message(Occasion::Stuck).because(&waits).written());
                });
            }
            Progress::Resumed => standing.paused(false),
            Progress::Note(_) | Progress::Output(_) => {}
        }
    }
}

/// Tells that a run could not even begin, as far as anybody can be told: one that a timer began fails unseen.
pub fn not_begun(root: &Path, error: &Error) {
    let Ok(task) = Task::read(root) else { return };
    if error.kind == Kind::Locked || !task.notify.is_used() || !task.notify.on.contains(&Occasion::Error) {
        return; // another run is at work, and tells
    }
    let tag = State::new(root).current().ok().flatten().unwrap_or_else(Tag::today);
    let message = Message::new(Occasion::Error, task.name(), tag.as_str(), &task.metric.name);
    let message = message.because(&error.to_string()).written();
    let _ = Way::of(&task, root).map(|way| way.tell(&message)); // the error itself is told on stderr
}

/// Sends a test on every way that `[notify]` names, and waits for it. Exit code 2 where it names none, 4 where one
/// fails.
pub fn test(task: &Task, state: &State) -> Result<()> {
    if !task.notify.is_used() {
        return Err(Error::usage("[notify] names nobody to tell")
            .at(crate::config::FILE)
            .hint("give it a webhook_file or a command"));
    }
    let tag = state.current()?.unwrap_or_else(Tag::today);
    let message = Message::new(Occasion::Test, task.name(), tag.as_str(), &task.metric.name).written();
    let way = Way::of(task, state.root())?;
    way.tell(&message).map_err(|trouble| Error::environment(format!("the test did not arrive: {trouble}")))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
