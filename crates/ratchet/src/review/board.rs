//! The keeps of a tag as a person or a tool reviews them: what each is, what it rests on, what was decided.

use std::{collections::BTreeSet, fmt::Write, path::PathBuf};

use serde::Serialize;

use super::{Decision, Review, Reviews, in_force, is_reviewed, lineage::Lineage};
use crate::{
    accept,
    error::{Error, Result},
    journal::TrialRecord,
    runlog::{plain, spelled_out},
    show::{View, short},
    state::Tag,
    trial::no_such_trial,
};

/// The longest note, characters.
const LONGEST: usize = 2_000;

/// Every keep of a tag.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Board {
    /// The tag.
    pub tag: String,
    /// The metric's name.
    pub metric: String,
    /// Keeps of which nothing was decided.
    pub unreviewed: usize,
    /// Oldest first; the baseline is none.
    pub keeps: Vec<Item>,
}

/// One keep. Texts are the proposer's own; quote them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Its number.
    pub trial: u64,
    /// The decision in force; null while there is none.
    pub decision: Option<Decision>,
    /// When it was made, RFC 3339 in UTC.
    pub at: Option<String>,
    /// Who made it, as git is configured.
    pub by: Option<String>,
    /// Why.
    pub note: Option<String>,
    /// The branch that it was taken to, while that stands: until then a decision may be changed.
    pub taken: Option<String>,
    /// Earlier keeps whose lines it replaces.
    pub rests_on: BTreeSet<u64>,
    /// Promising trials whose edits are part of it, the latest first.
    pub carries: Vec<u64>,
    /// What it does, in a line.
    pub description: String,
    /// Why it should help.
    pub hypothesis: String,
    /// Who proposed it.
    pub proposer: String,
    /// What was expected of `delta`.
    pub expected_delta: Option<f64>,
    /// Its value minus its champion's, in the metric's own sign.
    pub delta: Option<f64>,
    /// One value a run, seed 0 first.
    pub values: Vec<f64>,
    /// The mean of the champion's values that it was judged against.
    pub champion_value: Option<f64>,
    /// The standard error of `delta`, where the rule is by noise.
    pub standard_error: Option<f64>,
    /// The gain that it had to show, where the rule is by noise.
    pub gain_needed: Option<f64>,
    /// σ of one run at the time.
    pub sigma: Option<f64>,
    /// The verdict's word.
    pub outcome: String,
    /// The verdict in a sentence.
    pub reason: String,
    /// Where the gain comes from, in a sentence.
    pub attribution: Option<String>,
    /// How it came to be: hint, brief, strategy, mechanisms and so on, as (name, text).
    pub circumstances: Vec<(&'static str, String)>,
    /// The champion's commit that it was made from.
    pub parent_commit: String,
    /// Its commit; what it changes is the difference of the two.
    pub commit: String,
    /// The folder with its logs and figures.
    pub files: PathBuf,
}

impl View {
    /// Every keep, and what was decided of it. Exit code 2 while there is no tag.
    pub fn board(&self) -> Result<Board> {
        let tag = self.reviewed_tag()?;
        let lineage = Lineage::of(&self.repo, &self.history)?;
        let (latest, taken) =
            (in_force(&self.state.tag(tag), &self.history)?, accept::taken(&self.repo, &self.state.tag(tag)));
        let keeps: Vec<Item> = (lineage.keeps.iter())
            .map(|keep| {
                let (record, verdict) = (keep.record, &keep.record.verdict);
                let review = latest.get(&record.trial);
                Item {
                    trial: record.trial,
                    decision: review.map(|review| review.decision),
                    at: review.map(|review| review.at.clone()),
                    by: review.and_then(|review| review.by.clone()),
                    note: review.and_then(|review| review.note.clone()),
                    taken: taken.get(&record.trial).cloned(),
                    rests_on: keep.rests_on.clone(),
                    carries: self.history.carried(record.carries).map(|carried| carried.trial).collect(),
                    description: record.proposal.description.clone(),
                    hypothesis: record.proposal.hypothesis.clone(),
                    proposer: record.proposer.clone(),
                    expected_delta: record.proposal.expected_delta,
                    delta: record.delta,
                    values: record.values.clone(),
                    champion_value: verdict.champion,
                    standard_error: verdict.standard_error,
                    gain_needed: verdict.gain_needed,
                    sigma: verdict.noise.sigma(),
                    outcome: verdict.outcome.clone(),
                    reason: verdict.reason.clone(),
                    attribution: self.attribution(record).map(|gain| gain.to_string()),
                    circumstances: self.circumstances(record),
                    parent_commit: keep.before.to_string(),
                    commit: keep.commit.to_string(),
                    files: self.state.tag(tag).trial(record.trial),
                }
            })
            .collect();
        let unreviewed = keeps.iter().filter(|item| item.decision.is_none()).count();
        Ok(Board { tag: tag.to_string(), metric: self.task.metric.name.clone(), unreviewed, keeps })
    }

    /// Decides of some keeps, all of them or none. What to tell the person.
    ///
    /// Exit code 2 for what is no keep, or was taken to a branch.
    pub fn decide(&self, trials: &[u64], decision: Decision, note: Option<&str>) -> Result<String> {
        let tag = self.reviewed_tag()?;
        let dir = self.state.tag(tag);
        let taken = accept::taken(&self.repo, &dir);
        let note = note.map(checked_note).transpose()?;
        let records: Vec<&TrialRecord> =
            trials.iter().map(|trial| self.keep(tag, *trial)).collect::<Result<_>>()?;
        if let Some((trial, branch)) = trials.iter().find_map(|trial| Some((trial, taken.get(trial)?))) {
            return Err(Error::usage(format!("trial {trial} was taken to the branch {branch}"))
                .hint(format!("to decide anew, rename that branch or delete it: git branch -D {branch}")));
        }
        let (reviews, by) = (Reviews::of(&dir), self.repo.identity());
        let mut said = String::new();
        for record in records {
            reviews.add(Review {
                at: crate::run::now(),
                trial: record.trial,
                commit: record.commit.clone().unwrap_or_default(),
                decision,
                note: note.clone(),
                by: by.clone(),
            })?;
            let description = plain(&record.proposal.description, 80);
            let _ = writeln!(said, "trial {} {}: {description}", record.trial, decision.as_str());
        }
        Ok(said)
    }

    /// What a person has to know of a keep in order to decide, without its diff. Exit code 2 for what is no keep.
    pub fn explain(&self, board: &Board, trial: u64) -> Result<String> {
        let record = self.keep(self.reviewed_tag()?, trial)?;
        let Some(at) = board.keeps.iter().position(|item| item.trial == trial) else {
            return Err(Error::usage(format!("trial {trial} was kept meanwhile")).hint("start again"));
        };
        let item = &board.keeps[at];
        let mut text = format!("keep {} of {}: {}\n", at + 1, board.keeps.len(), item.standing());
        text += &self.facts(record, self.reviewed_tag()?);
        let mut line = |name: &str, value: &str| {
            let _ = writeln!(text, "{name:12} {value}");
        };
        line("predicted", &prediction(item.expected_delta, item.delta));
        for carried in self.history.carried(record.carries) {
            let what = plain(&carried.proposal.description, 100);
            line("carries", &format!("trial {}, which was promising: {what}", carried.trial));
        }
        for earlier in &item.rests_on {
            let standing = board.keeps.iter().find(|item| item.trial == *earlier).map_or("", Item::word);
            line("rests on", &format!("trial {earlier} ({standing}): it replaces lines of that"));
        }
        if let Some(note) = &item.note {
            line("note", &plain(note, LONGEST));
        }
        Ok(text)
    }

    /// What a keep changes by itself, a line each, with nothing in it that steers a terminal or cannot be seen.
    pub fn own_diff(&self, item: &Item) -> Result<Vec<String>> {
        let (from, to) = (self.repo.parse(&item.parent_commit)?, self.repo.parse(&item.commit)?);
        let patch = self.repo.patch(from, to)?;
        Ok(String::from_utf8_lossy(&patch).split_terminator('\n').map(spelled_out).collect())
    }

    fn reviewed_tag(&self) -> Result<&Tag> {
        self.tag.as_ref().ok_or_else(|| {
            Error::usage("there is nothing to review: no tag exists yet").hint("`ratchet run` starts one")
        })
    }

    fn keep(&self, tag: &Tag, trial: u64) -> Result<&TrialRecord> {
        let record = self.history.trial(trial).ok_or_else(|| no_such_trial(trial, tag))?;
        match is_reviewed(record) {
            true => Ok(record),
            false => {
                let what = if record.parent.is_none() { "a baseline" } else { record.status.as_str() };
                Err(Error::usage(format!("trial {trial} is no keep that could be reviewed, but {what}"))
                    .hint("`ratchet review` lists the keeps"))
            }
        }
    }
}

impl Item {
    /// Whether a person has still to decide.
    pub fn is_open(&self) -> bool {
        self.taken.is_none() && matches!(self.decision, None | Some(Decision::Deferred))
    }

    /// The decision as a word.
    pub fn word(&self) -> &'static str {
        self.decision.map_or("unreviewed", Decision::as_str)
    }

    /// The decision, whose it is, and what became of it.
    fn standing(&self) -> String {
        let by = self.by.as_deref().map_or(String::new(), |by| format!(" by {}", plain(by, 100)));
        let at = self.at.as_deref().map_or(String::new(), |at| format!(" at {}", plain(at, 40)));
        let taken = self.taken.as_deref().map_or(String::new(), |branch| format!(", taken to {branch}"));
        format!("{}{by}{at}{taken}", self.word())
    }
}

impl Board {
    /// What is open, and the commands, for a person without a terminal.
    pub fn text(&self) -> String {
        if self.keeps.is_empty() {
            return format!("nothing to review: the tag {} has no keep but its baseline\n", self.tag);
        }
        let mut text = format!(
            "{:>5}  {:10}  {:>10}  {:7}  {:12}  description\n",
            "trial", "decision", "delta", "commit", "rests on"
        );
        for item in &self.keeps {
            let delta = item.delta.map_or("-".to_owned(), |delta| format!("{delta:+.6}"));
            let earlier: Vec<String> = item.rests_on.iter().map(u64::to_string).collect();
            let earlier = if earlier.is_empty() { "-".to_owned() } else { earlier.join(", ") };
            let taken = if item.taken.is_some() { "*" } else { "" };
            let _ = writeln!(
                text,
                "{:>5}  {:10}  {delta:>10}  {:7}  {earlier:12}  {}",
                item.trial,
                format!("{}{taken}", item.word()),
                short(&item.commit),
                plain(&item.description, 80)
            );
        }
        let open = self.keeps.iter().filter(|item| item.is_open()).count();
        let _ = writeln!(text, "{open} of {} keeps are open", self.keeps.len());
        let branches: BTreeSet<&str> = self.keeps.iter().filter_map(|item| item.taken.as_deref()).collect();
        for branch in branches {
            let _ = writeln!(text, "* taken to the branch {branch}");
        }
        text += "\
            to walk them: ratchet review (on a terminal); one whole: ratchet review N\n\
            to decide: ratchet review N --accept, --reject or --defer, with --note TEXT\n\
            to take what is accepted to a branch: ratchet accept\n";
        text
    }
}

/// What was expected, and how it came.
fn prediction(expected: Option<f64>, delta: Option<f64>) -> String {
    let measured = delta.map_or("unknown".to_owned(), |delta| format!("{delta:+.6}"));
    let Some(expected) = expected else { return format!("nothing; measured {measured}") };
    let word = match delta {
        Some(delta) if delta * expected > 0.0 => format!(", {:.1} x as much", delta / expected),
        Some(_) => ", not that way".to_owned(),
        None => String::new(),
    };
    format!("{expected:+.6}; measured {measured}{word}")
}

fn checked_note(note: &str) -> Result<String> {
    let length = note.chars().count();
    if length > LONGEST {
        return Err(Error::usage(format!("the note has {length} characters, and {LONGEST} is the most")));
    }
    match plain(note, LONGEST) {
        empty if empty.is_empty() => Err(Error::usage("the note is empty: leave --note out")),
        note => Ok(note),
    }
}
