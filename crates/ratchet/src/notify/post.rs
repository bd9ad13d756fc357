//! The thread that sends messages and looks at the clock.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, Receiver, RecvTimeoutError, SyncSender},
    },
    thread,
    time::{Duration, Instant},
};

use jiff::Zoned;

use super::{Message, command, lock, standing::Standing, webhook::Webhook};
use crate::{
    config::{Occasion, Task},
    error::Result,
};

/// Messages that may wait; a night has far fewer, and what comes on top is dropped rather than held.
const QUEUE: usize = 64;
/// The longest time between two looks at the clock.
const LOOK: Duration = Duration::from_secs(15);
/// What messages that wait get when the run is over.
const AT_THE_END: Duration = Duration::from_secs(10);

/// What ending a program may take.
const GIVING_UP: Duration = Duration::from_secs(1);

/// How messages leave.
pub(super) struct Way {
    webhook: Option<Webhook>,
    command: Option<Vec<String>>,
    root: PathBuf,
    /// Set when nobody waits any longer: a program at work is then ended, with all that it started.
    give_up: Arc<AtomicBool>,
}

impl Way {
    /// As the task says. Exit code 4 where the webhook's address cannot be read.
    pub(super) fn of(task: &Task, root: &Path) -> Result<Self> {
        let webhook = task.notify.address()?.map(Webhook::new);
        let give_up = Arc::default();
        Ok(Self { webhook, command: task.notify.command.clone(), root: root.to_path_buf(), give_up })
    }

    /// Sends by all ways; what failed, in words.
    pub(super) fn tell(&self, message: &Message) -> Result<(), String> {
        let json = message.json();
        let event = message.event.as_str();
        let called = self
            .command
            .as_ref()
            .map_or(Ok(()), |command| command::run(command, &self.root, event, &json, &self.give_up));
        let posted = self.webhook.as_ref().map_or(Ok(()), |webhook| webhook.post(&json));
        match (called, posted) {
            (Err(one), Err(other)) => Err(format!("{one}; {other}")),
            (called, posted) => called.and(posted),
        }
    }
}

/// The thread's other end.
pub(super) struct Post {
    queue: SyncSender<Message>,
    done: Receiver<()>,
    give_up: Arc<AtomicBool>,
    trouble: Arc<Mutex<Trouble>>,
}

/// What went wrong; told once.
#[derive(Default)]
struct Trouble {
    first: Option<String>,
    told: bool,
}

impl Trouble {
    fn take(&mut self) -> Option<String> {
        let first = self.first.as_ref().filter(|_| !self.told)?;
        self.told = true;
        Some(format!("a message could not be delivered: {first}"))
    }
}

impl Post {
    /// Starts the thread.
    pub(super) fn open(way: Way, standing: Arc<Mutex<Standing>>, on: Vec<Occasion>) -> Self {
        let (queue, waiting) = mpsc::sync_channel::<Message>(QUEUE);
        let (ended, done) = mpsc::channel();
        let trouble = Arc::new(Mutex::new(Trouble::default()));
        let told = trouble.clone();
        let give_up = way.give_up.clone();
        thread::spawn(move || {
            loop {
                let look = LOOK.min(lock(&standing).patience() / 10).max(Duration::from_millis(10));
                let mut messages = match waiting.recv_timeout(look) {
                    Ok(message) => vec![message],
                    Err(RecvTimeoutError::Timeout) => Vec::new(),
                    Err(RecvTimeoutError::Disconnected) => break,
                };
                messages.extend(lock(&standing).due(Instant::now(), &Zoned::now()));
                for message in messages.iter().filter(|message| on.contains(&message.event)) {
                    if let Err(error) = way.tell(message) {
                        lock(&told).first.get_or_insert(error);
                    }
                }
            }
            let _ = ended.send(()); // the run may not have waited
        });
        Self { queue, done, give_up, trouble }
    }

    /// Hands over a message; never waits.
    pub(super) fn send(&self, message: Message) {
        if self.queue.try_send(message).is_err() {
            lock(&self.trouble).first.get_or_insert("too many messages wait".to_owned());
        }
    }

    /// What has gone wrong, the first time it is asked for.
    pub(super) fn trouble(&self) -> Option<String> {
        lock(&self.trouble).take()
    }

    /// Waits a little for what is still to be sent; what went wrong, if nobody knows yet.
    pub(super) fn close(self) -> Option<String> {
        let Self { queue, done, give_up, trouble } = self;
        drop(queue);
        if done.recv_timeout(AT_THE_END) == Err(RecvTimeoutError::Timeout) {
            let waited = format!("no answer in the {} s after the run", AT_THE_END.as_secs());
            lock(&trouble).first.get_or_insert(waited);
            give_up.store(true, Ordering::Relaxed);
            let _ = done.recv_timeout(GIVING_UP); // a webhook may hold it longer, and leaves nothing behind
        }
        lock(&trouble).take()
    }
}
