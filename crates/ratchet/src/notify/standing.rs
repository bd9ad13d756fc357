//! How a run stands, as far as messages tell of it, and when it has been silent for too long.

use std::time::{Duration, Instant};

use jiff::Zoned;
use jiff::civil::Time;

use super::message::{Counts, Message};
use crate::{
    config::{Agent, Goal, Occasion, Step, Task},
    history::History,
    journal::{Status, TrialRecord},
    runlog::plain,
    stop::time_until,
};

/// So many times what a trial may take pass without one before somebody is told.
const SILENCE: u32 = 3;

/// What messages tell of.
#[derive(Clone, Debug)]
pub(super) struct Standing {
    task: String,
    tag: String,
    metric: String,
    goal: Goal,
    counts: Counts,
    baseline: Option<f64>,
    best: Option<f64>,
    /// The trial under way, and what it tries.
    open: Option<(u64, String)>,
    /// What the loop was last seen doing.
    doing: String,
    /// Since when no trial has finished.
    since: Instant,
    /// What a trial may take.
    trial: Duration,
    /// Whether the loop waits because a person has it wait.
    paused: bool,
    /// Whether the silence has been told of.
    told: bool,
    /// When the next morning is, for a run that no clock ends.
    morning: Option<Zoned>,
    morning_at: Time,
}

impl Standing {
    /// Of a run that begins now; `budget`: time to train, where the task has profiles.
    pub(super) fn new(
        task: &Task,
        tag: &str,
        history: &History,
        budget: Option<Duration>,
        has_end: bool,
    ) -> Self {
        let count = |status| history.count(status) as u64;
        let value = |record: Option<&TrialRecord>| record.and_then(|record| record.value);
        let mut standing = Self {
            task: task.name().to_owned(),
            tag: tag.to_owned(),
            metric: task.metric.name.clone(),
            goal: task.metric.goal,
            counts: Counts {
                trials: history.trials().len() as u64,
                keeps: count(Status::Keep),
                discards: count(Status::Discard),
                crashes: count(Status::Crash),
            },
            baseline: value(history.baseline()),
            best: value(history.champion()),
            open: None,
            doing: "getting ready".to_owned(),
            since: Instant::now(),
            trial: longest_trial(task, budget, history),
            paused: false,
            told: false,
            morning: None,
            morning_at: task.notify.morning_at,
        };
        if !has_end {
            standing.next_morning(&Zoned::now());
        }
        standing
    }

    pub(super) fn started(&mut self, trial: u64, description: &str) {
        self.open = Some((trial, description.to_owned()));
    }

    pub(super) fn does(&mut self, what: &str) {
        what.clone_into(&mut self.doing);
    }

    /// A trial is over; the message where it is a keep beyond the baseline.
    pub(super) fn ended(&mut self, record: &TrialRecord, champion: Option<&TrialRecord>) -> Option<Message> {
        self.open = None;
        self.heard_of(Instant::now());
        self.counts.trials += 1;
        let count = match record.status {
            Status::Keep => &mut self.counts.keeps,
            Status::Discard => &mut self.counts.discards,
            Status::Crash => &mut self.counts.crashes,
        };
        *count += 1;
        self.best = champion.and_then(|champion| champion.value);
        self.trial = self.trial.max(Duration::from_secs_f64(record.seconds.max(0.0)));
        if record.parent.is_none() {
            self.baseline = record.value.or(self.baseline);
            return None;
        }
        (record.status == Status::Keep).then(|| {
            let mut message = self.message(Occasion::Keep).about(record.trial, &record.proposal.description);
            (message.value, message.delta) = (record.value, record.delta);
            message.written()
        })
    }

    /// A message that tells how the run stands.
    pub(super) fn message(&self, event: Occasion) -> Message {
        let mut message = Message::new(event, &self.task, &self.tag, &self.metric);
        (message.counts, message.best) = (self.counts, self.best);
        message.gain = self.baseline.zip(self.best).map(|(baseline, best)| match self.goal {
            Goal::Minimize => baseline - best,
            Goal::Maximize => best - baseline,
        });
        message
    }

    /// Time without a finished trial after which somebody is told.
    pub(super) fn patience(&self) -> Duration {
        self.trial * SILENCE
    }

    pub(super) fn paused(&mut self, paused: bool) {
        self.paused = paused;
        self.heard_of(Instant::now());
    }

    /// What the time that has passed gives reason to tell.
    pub(super) fn due(&mut self, now: Instant, clock: &Zoned) -> Vec<Message> {
        let mut due = Vec::new();
        let silent = now.saturating_duration_since(self.since);
        if !self.told && !self.paused && silent >= self.patience() {
            self.told = true;
            let reason = format!("no trial has finished for {}; last seen: {}", span(silent), self.doing);
            let mut message = self.message(Occasion::Stuck).because(&reason);
            if let Some((trial, description)) = &self.open {
                message = message.about(*trial, description);
            }
            due.push(message.written());
        }
        if self.morning.as_ref().is_some_and(|morning| clock >= morning) {
            self.next_morning(clock);
            due.push(self.message(Occasion::Morning).because("the run goes on").written());
        }
        due
    }

    fn heard_of(&mut self, now: Instant) {
        (self.since, self.told) = (now, false);
    }

    fn next_morning(&mut self, clock: &Zoned) {
        self.morning = clock.checked_add(time_until(clock, self.morning_at)).ok();
    }
}

/// What a trial may take at most in the ordinary course of things: as long as one of this tag ever took, or what the
/// limits allow one that is proposed, built and trained once. Three times that is beyond a cold first build,
/// two repairs and all further runs that a verdict may ask for, so that only what hangs or waits is told.
fn longest_trial(task: &Task, budget: Option<Duration>, history: &History) -> Duration {
    let limit = |step: Option<&Step>| step.map_or(0, |step| step.timeout_s);
    let trains = budget.map_or(limit(task.fit.as_ref()) + task.score.timeout_s, |budget| budget.as_secs());
    let proposes = task.proposer.agent.as_ref().map_or(0, |agent: &Agent| agent.timeout_s);
    let asks = task.proposer.llm.as_ref().map_or(0, |llm| llm.timeout_s);
    let by_limits = trains + limit(task.build.as_ref()) + proposes.max(asks);
    let longest = history.trials().iter().map(|record| record.seconds).fold(0.0, f64::max);
    Duration::from_secs(by_limits).max(Duration::try_from_secs_f64(longest).unwrap_or_default())
}

/// `50 s`, `48 min`, `3.5 h`.
fn span(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..120 => format!("{seconds} s"),
        seconds @ 120..7200 => format!("{} min", seconds / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

/// Progress in words for [`Standing::does`].
pub(super) fn in_vain(reason: &str) -> String {
    format!("a proposal came to nothing: {}", plain(reason, 150))
}
