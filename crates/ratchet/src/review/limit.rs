//! When a run waits for a person: keeps have piled up that nobody has read.

use std::collections::BTreeMap;

use jiff::{Timestamp, civil::Date, tz::TimeZone};

use super::{Decision, decisions, is_reviewed, keeps};
use crate::{
    config::ReviewSection,
    error::Result,
    history::History,
    journal::{self, Event},
    state::{State, Tag},
};

/// Nights in a row with unreviewed keeps after which a run waits, where `ratchet.toml` gives no limit.
const NIGHTS: usize = 3;

/// The keeps of finished nights, by the local date on which their runs ended; of whatever tag.
type Nights = BTreeMap<Date, Vec<(Tag, u64)>>;

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
                let unreviewed = self.unreviewed(history)?;
                let reached = unreviewed as u64 >= limit;
                Ok(reached.then(|| format!("{} unreviewed, and the limit is {limit}", are(unreviewed))))
            }
            None => self.row(),
        }
    }

    /// Whether the nights in a row back from the last that have unreviewed keeps are too many.
    fn row(&self) -> Result<Option<String>> {
        let mut known: BTreeMap<&Tag, BTreeMap<u64, Decision>> = BTreeMap::new();
        let mut waiting: BTreeMap<&Tag, usize> = BTreeMap::new();
        let mut row = 0;
        for keeps in self.nights.values().rev() {
            let before: usize = waiting.values().sum();
            for (tag, trial) in keeps {
                if !known.contains_key(tag) {
                    known.insert(tag, decisions(&self.state, tag)?);
                }
                if !known[tag].contains_key(trial) {
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
        let decided = decisions(&self.state, &self.tag)?;
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
            nights.entry(date).or_default().extend(trials.into_iter().map(|trial| (tag.clone(), trial)));
        }
    }
    nights
}

/// The keeps of each run that had any, with the date on which it ended; of a run that was killed, of
/// its last trial.
fn runs(events: &[Event]) -> Vec<(Date, Vec<u64>)> {
    let mut runs = Vec::new();
    let mut run: Option<(String, Vec<u64>)> = None;
    let mut end = |run: &mut Option<(String, Vec<u64>)>| {
        if let Some((at, trials)) = run.take().filter(|(_, trials)| !trials.is_empty())
            && let Some(date) = local_date(&at)
        {
            runs.push((date, trials));
        }
    };
    for event in events {
        match event {
            Event::RunStarted { at, .. } => {
                end(&mut run);
                run = Some((at.clone(), Vec::new()));
            }
            Event::Closed(record) if record.proposer != "try" => {
                if let Some((last, trials)) = &mut run {
                    last.clone_from(&record.ended);
                    trials.extend(is_reviewed(record).then_some(record.trial));
                }
            }
            Event::RunEnded { at, .. } => {
                if let Some((last, _)) = &mut run {
                    last.clone_from(at);
                }
                end(&mut run);
            }
            _ => {}
        }
    }
    end(&mut run);
    runs
}

/// The date that a clock on the wall shows at a time of the journal.
fn local_date(at: &str) -> Option<Date> {
    Some(at.parse::<Timestamp>().ok()?.to_zoned(TimeZone::system()).date())
}
