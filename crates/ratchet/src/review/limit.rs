//! When a run waits for a person: keeps have piled up that nobody has read.

use std::collections::BTreeMap;

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use super::{Review, Reviews, in_force, is_reviewed, keeps};
use crate::{
    config::ReviewSection,
    error::Result,
    history::History,
    journal::{self, Event, TrialRecord},
    state::{State, Tag},
};

/// Nights in a row with unreviewed keeps after which a run waits, where `ratchet.toml` gives no limit.
const NIGHTS: usize = 3;

/// One keep: its tag, trial and commit.
type Kept = (Tag, u64, Option<String>);
/// The keeps of finished nights, by the local date on which their runs ended; of whatever tag.
type Nights = BTreeMap<Date, Vec<Kept>>;

/// The rule of one run.
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    section: ReviewSection,
    state: State,
    tag: Tag,
    /// Those before this run; while it goes on there can be no others.
    nights: Nights,
    /// A person lets the run go on as it is.
    lifted: bool,
}

impl Limit {
    /// Of a tag whose run has not begun, or is over.
    pub(crate) fn of(section: &ReviewSection, state: &State, tag: &Tag) -> Self {
        let nights = match section.limit {
            Some(_) => Nights::new(),
            None => nights(state),
        };
        Self { section: section.clone(), state: state.clone(), tag: tag.clone(), nights, lifted: false }
    }

    /// Lets this run go on, whatever is unreviewed.
    pub(crate) fn lift(&mut self) {
        self.lifted = true;
    }

    /// Why a run has to wait; `None` when it has not.
    ///
    /// Fails where the decisions cannot be read.
    pub(crate) fn reached(&self, history: &History) -> Result<Option<String>> {
        if self.lifted {
            return Ok(None);
        }
        match self.section.limit {
            Some(0) => Ok(None),
            Some(limit) => {
                // what cannot be read was not reviewed: a limit that a person has set is not lifted by damage
                let (unreviewed, wrong) = match self.unreviewed(history) {
                    Ok(unreviewed) => (unreviewed, String::new()),
                    Err(error) => (keeps(history).count(), format!("; {error}")),
                };
                let reached = unreviewed as u64 >= limit;
                let why = || format!("{} unreviewed, and the limit is {limit}{wrong}", are(unreviewed));
                Ok(reached.then(why))
            }
            None => self.row(),
        }
    }

    /// Whether the nights in a row back from the last that have unreviewed keeps are too many.
    fn row(&self) -> Result<Option<String>> {
        let mut known: BTreeMap<&Tag, BTreeMap<u64, Review>> = BTreeMap::new();
        let mut waiting: BTreeMap<&Tag, usize> = BTreeMap::new();
        let mut row = 0;
        for keeps in self.nights.values().rev() {
            let before: usize = waiting.values().sum();
            for (tag, trial, commit) in keeps {
                if !known.contains_key(tag) {
                    known.insert(tag, Reviews::of(&self.state.tag(tag)).latest()?);
                }
                let review = known[tag].get(trial).map(|review| &review.commit);
                if review.is_none() || review != commit.as_ref() {
                    *waiting.entry(tag).or_default() += 1;
                }
            }
            if waiting.values().sum::<usize>() == before {
                break;
            }
            row += 1;
        }
        let all: usize = waiting.values().sum();
        let reached = row >= NIGHTS && all as u64 >= self.section.warn;
        Ok(reached.then(|| {
            let tags: Vec<&str> = waiting.keys().map(|tag| tag.as_str()).collect();
            let tags = match tags[..] {
                [tag] if tag == self.tag.as_str() => String::new(),
                _ => format!(" (of the tags {})", tags.join(", ")),
            };
            format!("{all} keeps of {row} nights in a row are unreviewed{tags}")
        }))
    }

    /// The tag's keeps of which nothing was decided.
    pub(crate) fn unreviewed(&self, history: &History) -> Result<usize> {
        let decided = in_force(&self.state.tag(&self.tag), history)?;
        Ok(keeps(history).filter(|record| !decided.contains_key(&record.trial)).count())
    }

    /// What a person should know of the tag's unreviewed keeps when a run begins; `None` while they are few.
    pub(crate) fn warning(&self, history: &History) -> Result<Option<String>> {
        let unreviewed = self.unreviewed(history)?;
        let many = unreviewed as u64 >= self.section.warn;
        Ok(many.then(|| format!("{} unreviewed: `ratchet review` walks them", are(unreviewed))))
    }

    /// What a person should know of them when a run is over; `None` when there are none.
    pub(crate) fn at_the_end(&self, history: &History) -> Result<Option<String>> {
        if let Some(why) = self.reached(history)? {
            return Ok(Some(format!(
                "{why}: the next run will wait. `ratchet review` walks them; `ratchet resume` lets a run go on all the same"
            )));
        }
        let unreviewed = self.unreviewed(history)?;
        Ok((unreviewed > 0).then(|| format!("{} unreviewed: `ratchet review` walks them", are(unreviewed))))
    }
}

fn are(keeps: usize) -> String {
    if keeps == 1 { "1 keep is".to_owned() } else { format!("{keeps} keeps are") }
}

/// The finished nights of every tag. A journal that cannot be read holds none: it is another command's to say so.
fn nights(state: &State) -> Nights {
    let mut nights = Nights::new();
    for tag in state.tags() {
        let events = journal::events(&state.tag(&tag).journal()).unwrap_or_default();
        for (date, trials) in runs(&events) {
            let kept = |record: &TrialRecord| (tag.clone(), record.trial, record.commit.clone());
            nights.entry(date).or_default().extend(trials.into_iter().map(kept));
        }
    }
    nights
}

/// The keeps of each run that had any, with the date on which it ended; of a run that was killed, of
/// its last trial.
fn runs(events: &[Event]) -> Vec<(Date, Vec<&TrialRecord>)> {
    let mut runs: Vec<(&str, Vec<&TrialRecord>)> = Vec::new();
    for event in events {
        match (event, runs.last_mut()) {
            (Event::RunStarted { at, .. }, _) => runs.push((at, Vec::new())),
            (Event::RunEnded { at, .. }, Some((last, _))) => *last = at,
            // a person tries what they like between runs
            (Event::Closed(record), Some((last, trials))) if record.proposer != "try" => {
                *last = &record.ended;
                trials.extend(is_reviewed(record).then_some(record.as_ref()));
            }
            _ => {}
        }
    }
    runs.retain(|(_, trials)| !trials.is_empty());
    runs.into_iter().filter_map(|(at, trials)| Some((local_date(at)?, trials))).collect()
}

/// The date that a clock on the wall shows at a time of the journal.
fn local_date(at: &str) -> Option<Date> {
    Some(at.parse::<Timestamp>().ok()?.to_zoned(TimeZone::system()).date())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        journal::{
            Journal, Status,
            tests::{init, record},
        },
        review::Decision,
    };

    struct Nightly {
        state: State,
        _dir: tempfile::TempDir,
    }

    impl Nightly {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            Self { state: State::new(dir.path()), _dir: dir }
        }

        fn tag(name: &str) -> Tag {
            Tag::parse(name).unwrap()
        }

        fn journal(&self, tag: &str) -> Journal {
            let dir = self.state.tag(&Self::tag(tag));
            std::fs::create_dir_all(dir.path()).unwrap();
            Journal::open(&dir.journal()).or_else(|_| Journal::create(&dir.journal(), init())).unwrap()
        }

        fn append(&self, tag: &str, events: Vec<Event>) {
            let mut journal = self.journal(tag);
            events.into_iter().for_each(|event| journal.append(event).unwrap());
        }

        /// A run that ended at noon of a day in January with these keeps.
        fn night(&self, tag: &str, day: u64, trials: &[u64]) {
            let mut events = vec![started(day)];
            events.extend(trials.iter().map(|trial| kept(*trial, day)));
            events.push(Event::RunEnded { at: noon(day), reason: String::new() });
            self.append(tag, events);
        }

        fn review(&self, tag: &str, trial: u64) {
            let commit = record(trial, Status::Keep, Some(1.0)).commit.unwrap();
            let (at, decision) = (noon(1), Decision::Rejected);
            let review = Review { at, trial, commit, decision, note: None, by: None };
            Reviews::of(&self.state.tag(&Self::tag(tag))).add(review).unwrap();
        }

        fn why(&self, warn: u64) -> Option<String> {
            let section = ReviewSection { warn, limit: None };
            let limit = Limit::of(&section, &self.state, &Self::tag("t"));
            limit.reached(self.journal("t").history()).unwrap()
        }
    }

    fn noon(day: u64) -> String {
        format!("2026-01-{day:02}T12:00:00Z")
    }

    fn started(day: u64) -> Event {
        Event::RunStarted { at: noon(day), rules: String::new() }
    }

    fn kept(trial: u64, day: u64) -> Event {
        Event::Closed(Box::new(TrialRecord { ended: noon(day), ..record(trial, Status::Keep, Some(1.0)) }))
    }

    #[test]
    fn nights_of_all_tags_count_and_one_that_was_read_ends_the_row() {
        let nightly = Nightly::new();
        nightly.night("t", 1, &[1, 2, 3]); // 1 is the baseline
        nightly.night("u", 2, &[2, 3]);
        nightly.night("t", 3, &[]);
        assert_eq!(nightly.why(1), None, "two nights");
        nightly.night("t", 5, &[4]);
        let why = nightly.why(5).unwrap();
        assert!(why.starts_with("5 keeps of 3 nights") && why.ends_with("(of the tags t, u)"), "{why}");
        assert_eq!(nightly.why(6), None, "too few keeps");
        nightly.review("u", 2);
        assert!(nightly.why(4).is_some(), "one of its two is unread");
        nightly.review("u", 3);
        assert_eq!(nightly.why(1), None, "the night between was read");
        nightly.night("t", 6, &[5]);
        nightly.night("t", 7, &[6]);
        assert_eq!(nightly.why(3).unwrap(), "3 keeps of 3 nights in a row are unreviewed");
    }

    #[test]
    fn two_runs_of_a_day_are_one_night_and_a_killed_one_is_one_too() {
        let nightly = Nightly::new();
        nightly.night("t", 1, &[2]);
        nightly.night("t", 1, &[3]);
        nightly.append("t", vec![started(2), kept(4, 2)]); // and then it is killed
        let by_hand = Event::Closed(Box::new(TrialRecord {
            proposer: "try".to_owned(),
            ended: noon(3),
            ..record(5, Status::Keep, Some(1.0))
        }));
        nightly.append("t", vec![by_hand]);
        assert_eq!(nightly.why(1), None);
        nightly.night("t", 4, &[6]);
        assert_eq!(nightly.why(4).unwrap(), "4 keeps of 3 nights in a row are unreviewed");
    }

    #[test]
    fn a_decision_about_another_commit_is_none() {
        let nightly = Nightly::new();
        (1..4).for_each(|day| nightly.night("t", day, &[day + 1]));
        let (at, decision, commit) = (noon(1), Decision::Accepted, "f".repeat(40));
        let review = Review { at, trial: 4, commit, decision, note: None, by: None };
        Reviews::of(&nightly.state.tag(&Nightly::tag("t"))).add(review).unwrap();
        assert!(nightly.why(3).is_some());
        nightly.review("t", 4);
        assert_eq!(nightly.why(3), None);
    }
}
