//! `ratchet status`: where a tag stands.

use std::{collections::BTreeMap, fmt::Write};

use serde::Serialize;

use crate::{
    ahead::Wasted,
    config::Goal,
    control::{self, Wish},
    error::Result,
    journal::{Status, TrialRecord},
    novelty::{Novelty, Tally},
    proposer::Usage,
    review,
    search::{Counted, Search, Settings},
    show::{View, short},
    sigma::KnownNoise,
    state::Tag,
};

/// Categories that a status for people names.
const KINDS_SHOWN: usize = 6;

/// `ratchet status --json`; null for what is not there yet.
#[derive(Debug, Serialize)]
pub struct StatusReport {
    /// The task's name.
    pub task: String,
    /// The tag in use.
    pub tag: Option<String>,
    /// The tag's profile.
    pub profile: Option<String>,
    /// The metric's name.
    pub metric: String,
    /// Finished trials.
    pub trials: usize,
    /// Of these, kept.
    pub keeps: usize,
    /// Of these, scored and not kept.
    pub discards: usize,
    /// Of these, without a score.
    pub crashes: usize,
    /// The champion.
    pub best: Option<Mark>,
    /// The first keep.
    pub baseline: Option<Mark>,
    /// σ used by the last verdict that had one.
    pub noise_sigma: Option<f64>,
    /// How the machine has changed since the champion was measured; null while nothing tells that it has.
    pub drift: Option<String>,
    /// Training time as a share of the time that runs took, 0 to 1; null while nothing was trained.
    pub duty_cycle: Option<f64>,
    /// Proposals that a reviewer refused before any time was spent on them.
    pub vetoes: u64,
    /// Training time that they would have cost, seconds: as many trials as the tag's mean.
    pub vetoed_s: f64,
    /// Proposals that were made ahead and not used.
    pub wasted: Wasted,
    /// What proposers have spent for this tag, calls in flight at their worst; null where the account cannot be
    /// read.
    pub spent: Option<Usage>,
    /// Edits by how deep they go.
    pub classes: Vec<Share>,
    /// Trials by the kind of change that their proposers named, the most tried first.
    pub categories: Vec<Share>,
    /// The search itself: what levels 1.5 and 2 have done.
    pub search: SearchReport,
    /// Hints that no trial has taken up yet.
    pub hints: usize,
    /// Keeps that nobody has reviewed, baselines left out; null where the decisions cannot be read.
    pub unreviewed: Option<usize>,
    /// Whether a run holds the lock now.
    pub running: bool,
    /// Whether it waits: because a person asked it to, or for a review.
    pub paused: bool,
    #[serde(skip)]
    waits_for: Option<String>,
    #[serde(skip)]
    no_account: Option<String>,
    #[serde(skip)]
    no_reviews: Option<String>,
    #[serde(skip)]
    goal: Goal,
    #[serde(skip)]
    device: Option<String>,
    #[serde(skip)]
    open: Option<u64>,
    #[serde(skip)]
    last_stop: Option<String>,
    #[serde(skip)]
    pid: Option<u32>,
    #[serde(skip)]
    wish: Wish,
}

/// What the levels above the trials have done.
#[derive(Debug, Serialize)]
pub struct SearchReport {
    /// The settings in force.
    pub settings: Settings,
    /// Looks at the settings, and how many of them came to nothing.
    pub cycles: Counted,
    /// Research sessions, and how many of them failed.
    pub sessions: Counted,
    /// Mechanisms by where they stand.
    pub mechanisms: BTreeMap<&'static str, Vec<String>>,
    /// Mechanisms that were called and never had an answer used, or were never called.
    pub inactive: Vec<String>,
    /// What cycles and sessions have cost; part of `spent`.
    pub spent: Usage,
    /// How long they took, seconds.
    pub seconds: f64,
}

impl SearchReport {
    fn of(search: &Search) -> Self {
        let mut mechanisms: BTreeMap<&'static str, Vec<String>> = BTreeMap::new();
        for known in search.mechanisms().iter() {
            mechanisms.entry(known.standing.as_str()).or_default().push(known.id.clone());
        }
        let inactive = search.mechanisms().iter().filter(|known| known.is_inactive());
        Self {
            settings: search.settings().clone(),
            cycles: search.cycles(),
            sessions: search.sessions(),
            mechanisms,
            inactive: inactive.map(|known| known.id.clone()).collect(),
            spent: search.spent(),
            seconds: search.seconds(),
        }
    }

    /// Lines for a person; none where nothing was done.
    fn text(&self) -> String {
        let mut text = String::new();
        let failed = |counted: Counted| match counted.failed {
            0 => String::new(),
            failed => format!(" ({failed} came to nothing)"),
        };
        if self.cycles.done + self.sessions.done > 0 {
            let strategy =
                self.settings.strategy.map_or(String::new(), |strategy| format!("; {}", strategy.as_str()));
            let frozen = match self.settings.frozen.len() {
                0 => String::new(),
                frozen => format!(", {frozen} knobs frozen"),
            };
            let _ = writeln!(
                text,
                "search    {} looks at its settings{}, {} sessions{}{strategy}{frozen}",
                self.cycles.done,
                failed(self.cycles),
                self.sessions.done,
                failed(self.sessions)
            );
        }
        for (standing, ids) in &self.mechanisms {
            let _ = writeln!(text, "{standing:9} {}", ids.join(", "));
        }
        if !self.inactive.is_empty() {
            let _ = writeln!(text, "inactive  {}: nothing of it was ever used", self.inactive.join(", "));
        }
        text
    }
}

/// Trials of one kind in a status.
#[derive(Debug, Serialize)]
pub struct Share {
    /// The kind.
    pub name: String,
    /// Its part of all that have one, 0 to 1.
    pub share: f64,
    /// How they ended.
    #[serde(flatten)]
    pub tally: Tally,
    /// Keeps per trial, 0 to 1.
    pub keep_rate: f64,
}

impl Share {
    fn all(tallies: impl Iterator<Item = (String, Tally)> + Clone) -> Vec<Self> {
        let all: u64 = tallies.clone().map(|(_, tally)| tally.tried).sum();
        tallies
            .map(|(name, tally)| Self {
                name,
                share: tally.tried as f64 / all.max(1) as f64,
                tally,
                keep_rate: tally.keep_rate(),
            })
            .collect()
    }
}

/// One trial in a status.
#[derive(Debug, Serialize)]
pub struct Mark {
    /// Its number.
    pub trial: u64,
    /// Its commit, seven digits.
    pub commit: Option<String>,
    /// Its value.
    pub value: Option<f64>,
}

impl Mark {
    fn of(record: &TrialRecord) -> Self {
        Self { trial: record.trial, commit: record.commit.as_deref().map(short), value: record.value }
    }
}

impl View {
    /// Where it stands.
    ///
    /// Fails where the hints cannot be read.
    pub fn status(&self) -> Result<StatusReport> {
        let history = &self.history;
        let pid = self.state.running();
        let known = self.known_noise().filter(|_| history.champion().is_some());
        let tag = self.tag.as_ref().map_or("", Tag::as_str);
        let spent = self.state.spent_by(tag).map(Usage::from);
        let (spent, no_account) = match spent {
            Ok(spent) => (Some(spent), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let (unreviewed, no_reviews) = match review::unreviewed(self) {
            Ok(unreviewed) => (Some(unreviewed), None),
            Err(error) => (None, Some(error.to_string())),
        };
        let novelty = Novelty::of(history.trials());
        Ok(StatusReport {
            task: self.task.name().to_owned(),
            tag: self.tag.as_ref().map(Tag::to_string),
            profile: history.init().and_then(|init| init.profile.clone()),
            metric: self.task.metric.name.clone(),
            trials: history.trials().len(),
            keeps: history.count(Status::Keep),
            discards: history.count(Status::Discard),
            crashes: history.count(Status::Crash),
            best: history.champion().map(Mark::of),
            baseline: history.baseline().map(Mark::of),
            noise_sigma: known.as_ref().and_then(|known| known.noise(None).sigma()),
            drift: known.as_ref().and_then(KnownNoise::clear_drift).map(|drift| drift.to_string()),
            duty_cycle: history.duty().share(),
            vetoes: history.vetoes(),
            vetoed_s: history.vetoes() as f64 * history.seconds_a_trial(),
            wasted: history.wasted(),
            spent,
            no_account,
            classes: Share::all(novelty.classes.iter().map(|(class, tally)| (class.to_string(), *tally))),
            categories: Share::all(novelty.categories.iter().cloned()),
            search: SearchReport::of(history.search()),
            hints: self.pending_hints()?.len(),
            unreviewed,
            no_reviews,
            waits_for: history.paused_why().map(str::to_owned),
            running: pid.is_some(),
            paused: pid.is_some() && history.paused_since().is_some(),
            wish: pid.and_then(|pid| control::wish(&self.state, pid)).unwrap_or(Wish::Go),
            goal: self.task.metric.goal,
            device: history.init().map(|init| init.device.clone()),
            open: history.open(),
            last_stop: history.last_stop().map(str::to_owned),
            pid,
        })
    }
}

impl StatusReport {
    /// For a person.
    pub fn text(&self) -> String {
        let mut text = String::new();
        let Some(tag) = &self.tag else {
            return format!("task {}: no tag yet; `ratchet run` starts one\n", self.task);
        };
        let better = if self.goal == Goal::Minimize { "lower" } else { "higher" };
        let place = [self.profile.as_deref(), self.device.as_deref()]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join(", ");
        let _ = writeln!(text, "task      {} on {place}, tag {tag}", self.task);
        let _ = writeln!(text, "metric    {} ({better} is better)", self.metric);
        let _ = writeln!(
            text,
            "trials    {}: {} kept, {} discarded, {} crashed",
            self.trials, self.keeps, self.discards, self.crashes
        );
        let mark = |mark: &Mark| {
            let value = mark.value.map_or("-".to_owned(), |value| format!("{value:.6}"));
            format!("{value}  trial {}, commit {}", mark.trial, mark.commit.as_deref().unwrap_or("-"))
        };
        let _ = writeln!(text, "best      {}", self.best.as_ref().map_or("none yet".to_owned(), mark));
        let _ = writeln!(text, "baseline  {}", self.baseline.as_ref().map_or("none yet".to_owned(), mark));
        if let Some(sigma) = self.noise_sigma {
            let _ = writeln!(text, "noise     sigma {sigma:.6}");
        }
        if let Some(drift) = &self.drift {
            let _ = writeln!(text, "drift     {drift}");
        }
        if let Some(share) = self.duty_cycle {
            let _ = writeln!(text, "duty      {:.1} % of the time of runs was training", 100.0 * share);
        }
        if self.vetoes > 0 {
            let _ = writeln!(
                text,
                "vetoes    {}, which would have cost {:.0} min of trials",
                self.vetoes,
                self.vetoed_s / 60.0
            );
        }
        if let Some(error) = &self.no_account {
            let _ = writeln!(text, "spent     unknown: {error}");
        }
        if let Some(spent) = self.spent.filter(|spent| spent.tokens > 0) {
            let usd = spent.usd.map_or(String::new(), |usd| format!(", {usd:.2} USD"));
            let _ = writeln!(text, "spent     {} tokens{usd} by proposers", spent.tokens);
        }
        if self.wasted.proposals > 0 {
            let usd = self.wasted.usage.usd.map_or(String::new(), |usd| format!(", {usd:.2} USD"));
            let _ = writeln!(
                text,
                "ahead     {} proposals made while a trial trained could not be used: {} tokens{usd}",
                self.wasted.proposals, self.wasted.usage.tokens
            );
        }
        for (head, shares) in [("edits", &self.classes), ("kinds", &self.categories)] {
            let words: Vec<String> = shares
                .iter()
                .take(KINDS_SHOWN)
                .map(|kind| {
                    let (percent, tally) = (100.0 * kind.share, kind.tally);
                    format!("{} {} ({percent:.0} %, {} kept)", tally.tried, kind.name, tally.kept)
                })
                .collect();
            if !words.is_empty() {
                let more = shares.len().saturating_sub(KINDS_SHOWN);
                let more = if more > 0 { format!(" and {more} more") } else { String::new() };
                let _ = writeln!(text, "{head:9} {}{more}", words.join(", "));
            }
        }
        text += &self.search.text();
        if self.hints > 0 {
            let _ = writeln!(text, "hints     {} waiting: `ratchet hint` lists them", self.hints);
        }
        match (self.unreviewed, &self.no_reviews) {
            (Some(0), _) => {}
            (Some(unreviewed), _) => {
                let are = if unreviewed == 1 { "keep is" } else { "keeps are" };
                let _ =
                    writeln!(text, "review    {unreviewed} {are} unreviewed: `ratchet review` walks them");
            }
            (None, error) => {
                let _ = writeln!(text, "review    unknown: {}", error.as_deref().unwrap_or_default());
            }
        }
        let then = match self.wish {
            Wish::Go | Wish::GoOn => "",
            Wish::Pause => "; it pauses after its trial",
            Wish::Stop => "; it ends after its trial",
            Wish::StopNow => "; it ends now",
        };
        let now = match (self.pid, self.open, &self.last_stop) {
            (Some(pid), _, _) if self.paused => {
                let why = self.waits_for.as_ref().map_or(String::new(), |why| format!("; {why}"));
                format!("paused, pid {pid}{why}: `ratchet resume` lets it go on, `ratchet stop` ends it")
            }
            (Some(pid), Some(trial), _) => format!("running, pid {pid}, in trial {trial}{then}"),
            (Some(pid), None, _) => format!("running, pid {pid}{then}"),
            (None, Some(trial), _) => {
                format!("not running; trial {trial} was interrupted and its number is used again")
            }
            (None, None, Some(reason)) => format!("not running; the last run ended: {reason}"),
            (None, None, None) => "not running".to_owned(),
        };
        let _ = writeln!(text, "now       {now}");
        text
    }
}
