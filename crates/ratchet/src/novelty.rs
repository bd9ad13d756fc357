//! How varied a search is, and what pays: trials and keeps by category and by how deep their edits go.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use crate::{
    edit_class::EditClass,
    journal::{Status, TrialRecord},
    proposer::{Proposal, knobs},
    runlog::plain,
};

/// How trials of one kind ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Tally {
    /// Trials.
    pub tried: u64,
    /// Of these, kept.
    pub kept: u64,
    /// Of these, without a score.
    pub crashed: u64,
}

impl Tally {
    fn count(&mut self, status: Status) {
        self.tried += 1;
        self.kept += u64::from(status == Status::Keep);
        self.crashed += u64::from(status == Status::Crash);
    }

    /// Keeps per trial, 0 to 1.
    pub fn keep_rate(self) -> f64 {
        self.kept as f64 / self.tried.max(1) as f64
    }
}

/// Trials by kind, the baseline left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Novelty {
    /// By normalised category, the most tried first. Trials of `knobs` have none: it gives the names of the
    /// knobs it moved, of which every pair would be a category of its own.
    pub categories: Vec<(String, Tally)>,
    /// By the edit's class.
    pub classes: BTreeMap<EditClass, Tally>,
}

impl Novelty {
    /// Counts.
    pub fn of(trials: &[TrialRecord]) -> Self {
        let mut categories: BTreeMap<String, Tally> = BTreeMap::new();
        let mut classes: BTreeMap<EditClass, Tally> = BTreeMap::new();
        for record in trials {
            if let Some(class) = record.class {
                classes.entry(class).or_default().count(record.status);
            }
            if let Some(category) = category_of(record) {
                categories.entry(category).or_default().count(record.status);
            }
        }
        let mut categories: Vec<(String, Tally)> = categories.into_iter().collect();
        categories.sort_by_key(|(_, tally)| Reverse(tally.tried)); // stable: by name among equals
        Self { categories, classes }
    }

    /// The part of all edits that are of a class, 0 to 1; 0 where there are none.
    pub fn share(&self, class: EditClass) -> f64 {
        let all: u64 = self.classes.values().map(|tally| tally.tried).sum();
        self.classes.get(&class).map_or(0.0, |tally| tally.tried as f64 / all.max(1) as f64)
    }
}

/// What kind of change a trial was, as its proposer says; `None` where it says nothing and for `knobs`.
pub fn category_of(record: &TrialRecord) -> Option<String> {
    Some(category(&record.proposal)).filter(|name| !name.is_empty() && record.proposer != knobs::NAME)
}

/// A category as it is compared: lower case, without spaces around and with one `-` for those within.
pub fn category(proposal: &Proposal) -> String {
    let words: Vec<String> = plain(&proposal.category, 40)
        .to_lowercase()
        .split(|c: char| c.is_whitespace() || matches!(c, '_' | '-'))
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect();
    words.join("-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::tests::record;

    #[test]
    fn a_category_is_the_same_however_it_is_written_and_a_knobs_name_is_none() {
        let of = |trial, category: &str, class, status| {
            let mut record = record(trial, status, Some(1.0));
            record.proposal.category = category.into();
            record.class = Some(class);
            record
        };
        let mut baseline = record(1, Status::Keep, Some(2.0));
        baseline.class = None;
        let mut knobs = of(6, "LR+DEPTH", EditClass::Constant, Status::Discard);
        knobs.proposer = knobs::NAME.into();
        let trials = [
            baseline,
            of(2, " Learning Rate\n", EditClass::Constant, Status::Keep),
            of(3, "learning_rate", EditClass::Constant, Status::Discard),
            of(4, "attention", EditClass::Structural, Status::Crash),
            of(5, "", EditClass::Local, Status::Discard),
            knobs,
        ];
        let novelty = Novelty::of(&trials);
        let tally = |tried, kept, crashed| Tally { tried, kept, crashed };
        assert_eq!(
            novelty.categories,
            [("learning-rate".to_owned(), tally(2, 1, 0)), ("attention".to_owned(), tally(1, 0, 1))]
        );
        assert_eq!(novelty.classes[&EditClass::Constant], tally(3, 1, 0));
        assert_eq!(novelty.share(EditClass::Structural), 0.2);
        assert_eq!(novelty.classes[&EditClass::Local].keep_rate(), 0.0);
        assert_eq!(Novelty::of(&[]).share(EditClass::Local), 0.0);
    }
}
