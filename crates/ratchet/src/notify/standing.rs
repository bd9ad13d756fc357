//! How a run stands, as far as messages tell of it, and when it has been silent for too long.

use std::time::{Duration, Instant};

use jiff::Zoned;
use jiff::civil::Time;

use super::message::{Counts, Message};
use crate::{
    config::{Goal, Occasion, Step, Task},
    history::History,
    journal::{Status, TrialRecord},
    progress::Phase,
    runlog::plain,
    stop::time_until,
    verdict::Rule,
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
    usual: Usual,
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
            usual: Usual::new(task, budget, history),
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
        self.usual.saw(record);
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
        message.gain = self.baseline.zip(self.best).map(|(baseline, best)| self.goal.gain(baseline, best));
        message
    }

    /// Time without a finished trial after which somebody is told.
    pub(super) fn patience(&self) -> Duration {
        self.usual.trial() * SILENCE
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

/// What a trial may take in the ordinary course of things. Three times that is beyond a cold build, two repairs and all
/// further runs that a verdict may ask for, so that only what hangs or waits is told.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// To propose and to train, with every further run: by the limits.
    limits: Duration,
    /// To build: by its limit, until one was seen.
    build: Duration,
    /// The longest trial of the tag.
    longest: Duration,
}

impl Usual {
    fn new(task: &Task, budget: Option<Duration>, history: &History) -> Self {
        let limit = |step: Option<&Step>| step.map_or(0, |step| step.timeout_s);
        let trains =
            budget.map_or(limit(task.fit.as_ref()) + task.score.timeout_s, |budget| budget.as_secs());
        let runs = match task.accept.rule {
            Rule::Strict => 1,
            Rule::Noise => 1 + 2 * u64::from(task.accept.max_replicates), // the candidate's and the champion's
        };
        let agent = task.proposer.agent.as_ref().map_or(0, |agent| agent.timeout_s);
        let llm = task.proposer.llm.as_ref().map_or(0, |llm| llm.timeout_s);
        let mut usual = Self {
            limits: Duration::from_secs(trains * runs + agent.max(llm)),
            build: Duration::from_secs(limit(task.build.as_ref())),
            longest: Duration::ZERO,
        };
        history.trials().iter().for_each(|record| usual.saw(record));
        usual
    }

    fn saw(&mut self, record: &TrialRecord) {
        let seconds = |seconds: f64| Duration::try_from_secs_f64(seconds).unwrap_or_default();
        let first = self.longest.is_zero();
        self.longest = self.longest.max(seconds(record.seconds));
        if let Some((_, build)) = record.phases.iter().find(|(phase, _)| *phase == Phase::Build) {
            self.build = if first { seconds(*build) } else { self.build.max(seconds(*build)) };
        }
    }

    fn trial(&self) -> Duration {
        self.longest.max(self.limits + self.build)
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// A task that builds for at most half an hour, on a profile of a minute.
    fn standing(has_end: bool) -> Standing {
        let dir = tempfile::tempdir().unwrap();
        let text = "[task]\nname = \"toy\"\neditable = [\"cand/**\"]\n[metric]\nname = \"loss\"\n[build]\ncommand = [\"make\"]\n\
                    timeout_s = 1800\n[score]\ncommand = [\"sh\", \"score.sh\"]\n[notify]\nmorning_at = \"06:30\"\n";
        std::fs::write(dir.path().join("ratchet.toml"), text).unwrap();
        let task = Task::read(dir.path()).unwrap();
        Standing::new(&task, "bar", &History::default(), Some(MINUTE), has_end)
    }

    fn events(messages: &[Message]) -> Vec<Occasion> {
        messages.iter().map(|message| message.event).collect()
    }

    #[test]
    fn silence_is_told_once_beyond_what_any_trial_may_take_and_never_in_a_pause() {
        let clock = Zoned::now();
        let mut standing = standing(true);
        // five runs of a minute, and the build's limit while none was seen
        let first = 3 * (5 * MINUTE + Duration::from_secs(1800));
        assert_eq!(standing.patience(), first);
        let begin = standing.since;
        assert!(standing.due(begin + first - MINUTE, &clock).is_empty());
        standing.started(1, "baseline");
        let told = standing.due(begin + first, &clock);
        assert_eq!(events(&told), [Occasion::Stuck]);
        assert!(
            told[0].text.contains("no trial has finished for 105 min") && told[0].trial == Some(1),
            "{told:?}"
        );
        assert!(standing.due(begin + 2 * first, &clock).is_empty(), "once");

        standing.paused(true);
        assert!(standing.due(standing.since + 9 * first, &clock).is_empty(), "a person knows");
        standing.paused(false);
        assert_eq!(events(&standing.due(standing.since + first, &clock)), [Occasion::Stuck], "and then anew");
    }

    #[test]
    fn a_build_that_was_seen_goes_over_its_limit() {
        let usual = standing(true).usual;
        let seen = |build, seconds| {
            let mut usual = usual;
            usual.longest = usual.longest.max(seconds);
            usual.build = build;
            usual.trial()
        };
        assert_eq!(seen(MINUTE / 6, 2 * MINUTE), 5 * MINUTE + MINUTE / 6);
        assert_eq!(seen(MINUTE / 6, 30 * MINUTE), 30 * MINUTE, "as long as one ever took");
    }

    #[test]
    fn a_run_without_an_end_tells_every_morning_and_one_with_an_end_at_its_end() {
        let mut standing = standing(false);
        let at = |text: &str| text.parse::<Zoned>().unwrap();
        standing.next_morning(&at("2026-03-01T23:00[UTC]"));
        let now = standing.since;
        let mut told = |clock: &str| events(&standing.due(now, &at(clock)));
        assert_eq!(told("2026-03-02T06:29[UTC]"), []);
        assert_eq!(told("2026-03-02T06:30[UTC]"), [Occasion::Morning]);
        assert_eq!(told("2026-03-02T06:31[UTC]"), []);
        assert_eq!(
            told("2026-03-05T09:00[UTC]"),
            [Occasion::Morning],
            "once, however long the machine slept"
        );
        assert_eq!(told("2026-03-06T06:30[UTC]"), [Occasion::Morning]);
        assert!(super::tests::standing(true).morning.is_none());
    }
}
