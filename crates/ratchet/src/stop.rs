//! Stop rules: what ends a run, each with a name.

use std::time::{Duration, Instant};

use jiff::{Zoned, civil::Time};

use crate::{
    config::Goal,
    error::{Error, Result},
    proposer::Budget,
};

/// A time of day as people write it, `07:30`.
pub fn clock(text: &str) -> Result<Time, String> {
    Time::strptime("%H:%M", text).map_err(|_| "must be a time of day, for example 07:30".to_owned())
}

/// What kind of end a run came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Its time was up.
    Clock,
    /// Another rule, or a person.
    Asked,
    /// It could not go on.
    Trouble,
}

/// The rules that a run was started with; `None` where none is set.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    /// Trials of this invocation, the baseline included.
    pub trials: Option<u64>,
    /// Time of this invocation.
    pub time: Option<Duration>,
    /// A time of day, here.
    pub until: Option<Time>,
    /// A value that is good enough.
    pub target: Option<f64>,
    /// Trials without a keep.
    pub stall: Option<u64>,
    /// Tokens spent by proposers.
    pub max_tokens: Option<u64>,
    /// US dollars spent by proposers.
    pub max_usd: Option<f64>,
}

impl Rules {
    /// Time until a clock ends a run that begins now.
    pub fn time_left(&self) -> Option<Duration> {
        let until = self.until.map(|until| time_until(&Zoned::now(), until));
        self.time.into_iter().chain(until).min()
    }
}

/// Counts what the rules look at.
#[derive(Debug)]
pub struct Watch {
    rules: Rules,
    goal: Goal,
    max_crashes: u64,
    began: Instant,
    deadline: Option<(Instant, String)>,
    /// Trials of this invocation.
    pub trials: u64,
    since_keep: u64,
    crashes_in_a_row: u64,
    tokens: u64,
    usd: f64,
}

impl Watch {
    /// Starts the clock. Exit code 2 for rules that make no sense.
    pub fn start(rules: Rules, goal: Goal, max_crashes: u64) -> Result<Self> {
        let began = Instant::now();
        if rules.target.is_some_and(|target| !target.is_finite()) {
            return Err(Error::usage("--target must be a finite number"));
        }
        let hours = rules
            .time
            .map(|time| (began + time, format!("time is up ({:.2} h)", time.as_secs_f64() / 3600.0)));
        let until =
            rules.until.map(|until| (began + time_until(&Zoned::now(), until), format!("it is {until}")));
        let deadline = hours.into_iter().chain(until).min_by_key(|(at, _)| *at);
        Ok(Self {
            rules,
            goal,
            max_crashes,
            began,
            deadline,
            trials: 0,
            since_keep: 0,
            crashes_in_a_row: 0,
            tokens: 0,
            usd: 0.0,
        })
    }

    /// Counts a finished trial.
    pub fn count_trial(&mut self, kept: bool, crashed: bool) {
        self.trials += 1;
        self.since_keep = if kept { 0 } else { self.since_keep + 1 };
        self.crashes_in_a_row = if crashed { self.crashes_in_a_row + 1 } else { 0 };
    }

    /// Says what proposers have spent so far.
    pub fn set_spent(&mut self, tokens: u64, usd: f64) {
        (self.tokens, self.usd) = (tokens, usd);
    }

    /// The rule that ends the run now, in words; `best` is the champion's value.
    pub fn reason(&self, best: Option<f64>) -> Option<String> {
        let rules = &self.rules;
        if let (Some(target), Some(best)) = (rules.target, best)
            && !self.goal.better(target, best)
        {
            return Some(format!("target {target} reached with {best:.6}"));
        }
        if rules.trials.is_some_and(|most| self.trials >= most) {
            return Some(format!("{} done", counted(self.trials)));
        }
        if let Some((at, reason)) = &self.deadline
            && Instant::now() >= *at
        {
            return Some(reason.clone());
        }
        if rules.stall.is_some_and(|most| self.since_keep >= most) {
            return Some(format!("{} without a keep", counted(self.since_keep)));
        }
        if self.max_crashes > 0 && self.crashes_in_a_row >= self.max_crashes {
            return Some(format!("{} crashes in a row", self.crashes_in_a_row));
        }
        if rules.max_tokens.is_some_and(|most| self.tokens >= most) {
            return Some(format!("{} tokens spent", self.tokens));
        }
        if rules.max_usd.is_some_and(|most| self.usd >= most) {
            return Some(format!("{:.2} USD spent", self.usd));
        }
        None
    }

    /// What kind of end the run came to; `given_up`: no proposer was left.
    pub fn ending(&self, reason: &str, given_up: bool) -> Ending {
        let by_clock = self.deadline.as_ref().is_some_and(|(_, clock)| clock == reason);
        let crashing = self.max_crashes > 0 && self.crashes_in_a_row >= self.max_crashes;
        match by_clock {
            true => Ending::Clock,
            false if given_up || crashing => Ending::Trouble,
            false => Ending::Asked,
        }
    }

    /// What is left, for the proposer.
    pub fn budget(&self) -> Budget {
        Budget {
            trials: self.rules.trials.map(|most| most.saturating_sub(self.trials)),
            time: self.deadline.as_ref().map(|(at, _)| at.saturating_duration_since(Instant::now())),
        }
    }

    /// The rules in words, for the journal.
    pub fn describe(&self) -> String {
        let rules = &self.rules;
        let mut parts = Vec::new();
        parts.extend(rules.trials.map(|n| format!("trials {n}")));
        parts.extend(rules.time.map(|time| format!("hours {:.2}", time.as_secs_f64() / 3600.0)));
        parts.extend(rules.until.map(|until| format!("until {until}")));
        parts.extend(rules.target.map(|target| format!("target {target}")));
        parts.extend(rules.stall.map(|n| format!("stall {n}")));
        parts.extend(rules.max_tokens.map(|n| format!("max-tokens {n}")));
        parts.extend(rules.max_usd.map(|usd| format!("max-usd {usd}")));
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }

    /// Time since the start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }
}

/// `1 trial`, `2 trials`.
fn counted(trials: u64) -> String {
    if trials == 1 { "1 trial".to_owned() } else { format!("{trials} trials") }
}

/// From `now` to the next time it is `until`, by this machine's calendar.
pub(crate) fn time_until(now: &Zoned, until: Time) -> Duration {
    let today = now.date().to_datetime(until).to_zoned(now.time_zone().clone());
    let next = match today {
        Ok(at) if at > *now => Ok(at),
        _ => now.date().tomorrow().and_then(|day| day.to_datetime(until).to_zoned(now.time_zone().clone())),
    };
    // only at the end of the calendar's range can there be no tomorrow
    next.ok().and_then(|next| Duration::try_from(next.duration_since(now)).ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(rules: Rules, goal: Goal) -> Watch {
        Watch::start(rules, goal, 3).unwrap()
    }

    #[test]
    fn each_rule_ends_a_run_by_its_name() {
        let mut by_trials = watch(Rules { trials: Some(2), ..Rules::default() }, Goal::Minimize);
        by_trials.count_trial(true, false);
        assert_eq!(by_trials.reason(Some(1.0)), None);
        assert_eq!(counted(1), "1 trial");
        by_trials.count_trial(false, false);
        assert_eq!(by_trials.reason(Some(1.0)).unwrap(), "2 trials done");

        let mut stalled = watch(Rules { stall: Some(2), ..Rules::default() }, Goal::Minimize);
        stalled.count_trial(false, false);
        stalled.count_trial(true, false);
        stalled.count_trial(false, false);
        assert_eq!(stalled.reason(None), None, "a keep starts the count anew");
        stalled.count_trial(false, false);
        assert!(stalled.reason(None).unwrap().contains("without a keep"));

        let mut crashing = watch(Rules::default(), Goal::Minimize);
        (0..3).for_each(|_| crashing.count_trial(false, true));
        assert!(crashing.reason(None).unwrap().contains("crashes in a row"));
        assert_eq!(crashing.ending(&crashing.reason(None).unwrap(), false), Ending::Trouble);

        let mut paid =
            watch(Rules { max_tokens: Some(10), max_usd: Some(1.0), ..Rules::default() }, Goal::Minimize);
        paid.set_spent(4, 1.5);
        assert!(paid.reason(None).unwrap().contains("USD"));
        paid.set_spent(10, 1.5);
        assert!(paid.reason(None).unwrap().contains("tokens"));

        let timed = watch(Rules { time: Some(Duration::ZERO), ..Rules::default() }, Goal::Minimize);
        assert!(timed.reason(None).unwrap().contains("time is up"));
        assert_eq!(timed.ending(&timed.reason(None).unwrap(), false), Ending::Clock);
        assert_eq!(timed.ending("stopped", false), Ending::Asked);
        assert_eq!(timed.ending("nobody proposes", true), Ending::Trouble);
    }

    #[test]
    fn a_target_is_reached_from_the_goals_side() {
        let rules = Rules { target: Some(2.0), ..Rules::default() };
        let reached = |goal, best| watch(rules.clone(), goal).reason(Some(best)).is_some();
        assert!(
            reached(Goal::Minimize, 2.0) && reached(Goal::Minimize, 1.0) && !reached(Goal::Minimize, 2.1)
        );
        assert!(
            reached(Goal::Maximize, 2.0) && reached(Goal::Maximize, 3.0) && !reached(Goal::Maximize, 1.9)
        );
        assert!(watch(rules, Goal::Minimize).reason(None).is_none(), "nothing measured yet");
    }

    #[test]
    fn until_means_the_next_time_the_clock_says_so() {
        let at = |text: &str| text.parse::<Zoned>().unwrap();
        let seven: Time = "07:00".parse().unwrap();
        assert_eq!(time_until(&at("2026-03-01T23:00[UTC]"), seven), Duration::from_secs(8 * 3600));
        assert_eq!(time_until(&at("2026-03-01T06:30[UTC]"), seven), Duration::from_secs(1800));
        assert_eq!(time_until(&at("2026-03-01T07:00[UTC]"), seven), Duration::from_secs(24 * 3600));
        // the night the clocks go forward is an hour shorter
        assert_eq!(time_until(&at("2026-03-28T23:00[Europe/Berlin]"), seven), Duration::from_secs(7 * 3600));
    }
}
