//! What limits the latest run, how much of it is used, and when it ends by that.
//!
//! The rules stand in the journal as words, as they were given; what is not understood is shown as it stands.

use jiff::{SignedDuration, Timestamp, Zoned, civil::Time, tz::TimeZone};
use watch::{scene::Limit, span};

use crate::{
    config::Goal,
    history::{Begun, History},
    journal::Status,
    proposer::Usage,
    runlog::plain,
    stop::time_until,
};

/// The limits, and the time of the next stop in words.
pub(super) fn limits(
    history: &History,
    spent: &Usage,
    goal: Goal,
    now: &Zoned,
) -> (Vec<Limit>, Option<String>) {
    let Some(run) = history.run() else { return Default::default() };
    let began = run.at.parse::<Timestamp>().map(|at| at.to_zoned(TimeZone::system()));
    let began = began.unwrap_or_else(|_| now.clone());
    let elapsed = now.duration_since(&began).as_secs_f64().max(0.0);
    let trials = history.trials().len().saturating_sub(run.trials);
    let mut limits = Vec::new();
    let mut ends: Vec<(Zoned, String)> = Vec::new();
    let mut counted = [false; 2]; // trials, spending
    for rule in rules(run) {
        let (name, value) = rule.split_once(' ').unwrap_or((rule, ""));
        let number: Option<f64> = value.parse().ok().filter(|number: &f64| number.is_finite());
        let limit = match (name, number) {
            ("trials", Some(most)) => {
                counted[0] = true;
                if trials > 0 {
                    let left = (most - trials as f64).max(0.0) * elapsed / trials as f64;
                    ends.extend(later(now, left).map(|at| (at, format!(", after {most} trials"))));
                }
                used("trials", trials as f64, most)
            }
            ("hours", Some(most)) => {
                ends.extend(later(&began, 3600.0 * most).map(|at| (at, String::new())));
                let text = format!("{} of {}", span(elapsed), span(3600.0 * most));
                Limit { name: "time".into(), text, share: Some(elapsed / 3600.0 / most) }
            }
            ("until", _) => match value.parse::<Time>().ok().and_then(|time| next(&began, time)) {
                Some(at) => {
                    let whole = at.duration_since(&began).as_secs_f64();
                    let text = at.strftime("%H:%M").to_string();
                    ends.push((at, String::new()));
                    Limit { name: "until".into(), text, share: Some(elapsed / whole) }
                }
                None => as_it_stands(rule),
            },
            ("stall", Some(most)) => {
                let since = history.trials()[history.trials().len() - trials..].iter().rev();
                let without = since.take_while(|record| record.status != Status::Keep).count();
                used("no keep", without as f64, most)
            }
            ("target", Some(target)) => {
                let word = if goal == Goal::Minimize { "at most" } else { "at least" };
                Limit { name: "target".into(), text: format!("{word} {target}"), share: None }
            }
            ("max-tokens", Some(most)) => {
                counted[1] = true;
                used("tokens", spent.tokens as f64, most)
            }
            ("max-usd", Some(most)) => {
                counted[1] = true;
                let text = spent.usd.map_or("? ".to_owned(), |usd| format!("{usd:.2} "));
                let share = spent.usd.map(|usd| usd / most);
                Limit { name: "spent".into(), text: format!("{text}of {most:.2} USD"), share }
            }
            _ => as_it_stands(rule),
        };
        limits.push(limit);
    }
    if !counted[0] {
        limits.insert(0, Limit { name: "trials".into(), text: format!("{trials} in this run"), share: None });
    }
    if !counted[1] && spent.tokens > 0 {
        let usd = spent.usd.map_or(String::new(), |usd| format!(", {usd:.2} USD"));
        limits.push(Limit {
            name: "spent".into(),
            text: format!("{} tokens{usd}", spent.tokens),
            share: None,
        });
    }
    let first = ends.into_iter().min_by(|a, b| a.0.cmp(&b.0));
    let stop = first.map(|(at, why)| {
        let about = if why.is_empty() { "" } else { "about " };
        let left = at.duration_since(now).as_secs_f64().max(0.0);
        format!("{about}{}, in {}{why}", at.strftime("%H:%M"), span(left))
    });
    (limits, stop)
}

/// The rules one by one.
fn rules(run: &Begun) -> impl Iterator<Item = &str> {
    run.rules.split(", ").filter(|rule| *rule != "none").take(12)
}

fn used(name: &str, used: f64, most: f64) -> Limit {
    Limit { name: name.to_owned(), text: format!("{used} of {most}"), share: Some(used / most) }
}

fn as_it_stands(rule: &str) -> Limit {
    let (name, text) = rule.split_once(' ').unwrap_or((rule, ""));
    Limit { name: plain(name, 10), text: plain(text, 30), share: None }
}

fn later(from: &Zoned, seconds: f64) -> Option<Zoned> {
    from.checked_add(SignedDuration::try_from_secs_f64(seconds).ok()?).ok()
}

/// The next time after `from` that it is `time`.
fn next(from: &Zoned, time: Time) -> Option<Zoned> {
    from.checked_add(time_until(from, time)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::{Event, tests::record};

    fn shown(rules: &str, hour: &str) -> (Vec<String>, Option<String>) {
        let mut history = History::default();
        history.apply(Event::Closed(Box::new(record(1, Status::Keep, Some(2.0)))));
        history.apply(Event::RunStarted { at: "2026-03-01T23:00:00Z".into(), rules: rules.into() });
        for trial in 2..6 {
            history.apply(Event::Closed(Box::new(record(trial, Status::Discard, Some(2.0)))));
        }
        let spent = Usage { tokens: 1200, usd: Some(0.5) };
        let now = hour.parse::<Timestamp>().unwrap().to_zoned(TimeZone::system());
        let (limits, stop) = limits(&history, &spent, Goal::Minimize, &now);
        (limits.into_iter().map(|limit| format!("{} {}", limit.name, limit.text)).collect(), stop)
    }

    #[test]
    fn each_rule_shows_what_is_used_of_it() {
        let (limits, stop) = shown(
            "trials 10, hours 8.00, target 1.5, stall 30, max-tokens 5000, max-usd 2, moon full",
            "2026-03-02T01:00:00Z",
        );
        assert_eq!(
            limits,
            [
                "trials 4 of 10",
                "time 2 h 00 min of 8 h 00 min",
                "target at most 1.5",
                "no keep 4 of 30",
                "tokens 1200 of 5000",
                "spent 0.50 of 2.00 USD",
                "moon full"
            ]
        );
        // four trials in two hours: six more take three
        assert!(
            stop.as_ref().is_some_and(|stop| stop.ends_with("in 3 h 00 min, after 10 trials")),
            "{stop:?}"
        );
    }

    #[test]
    fn without_rules_there_is_no_stop_and_a_clock_means_its_next_time() {
        let (limits, stop) = shown("none", "2026-03-02T01:00:00Z");
        assert_eq!((limits.concat(), stop), ("trials 4 in this runspent 1200 tokens, 0.50 USD".into(), None));
        let began = "2026-03-01T23:00[UTC]".parse::<Zoned>().unwrap();
        let at = next(&began, "07:00".parse().unwrap()).unwrap();
        assert_eq!(at.duration_since(&began).as_secs(), 8 * 3600);
        let (_, stop) = shown("hours 3.00, trials 400", "2026-03-02T01:00:00Z");
        assert!(stop.as_ref().is_some_and(|stop| stop.ends_with("in 1 h 00 min")), "{stop:?}");
    }
}
