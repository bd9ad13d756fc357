//! Status, one trial, all trials, for people and tools. Reads only, and takes no lock.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use serde::Serialize;
use serde_json::Value;

use crate::{
    ahead::Wasted,
    attribution::{Attribution, Curve},
    config::{Goal, Task},
    control::{self, Wish},
    error::{Error, Result},
    git::Repo,
    history::History,
    journal::{self, Status, TrialRecord},
    ledger,
    novelty::{Novelty, Tally},
    plain_file,
    proposer::Usage,
    runlog::{plain, tail_of},
    sigma::KnownNoise,
    state::{State, Tag},
    trial::no_such_trial,
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
    /// What proposers have spent for this tag, calls in flight at their worst.
    pub spent: Usage,
    /// Edits by how deep they go.
    pub classes: Vec<Share>,
    /// Trials by the kind of change that their proposers named, the most tried first.
    pub categories: Vec<Share>,
    /// Hints that no trial has taken up yet.
    pub hints: usize,
    /// Whether a run holds the lock now.
    pub running: bool,
    /// Whether it waits because a person asked it to.
    pub paused: bool,
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

/// Seven digits of a commit.
pub fn short(commit: &str) -> String {
    commit.chars().take(7).collect()
}

/// A tag's history, for reading.
pub struct View {
    pub(crate) task: Task,
    pub(crate) repo: Repo,
    pub(crate) state: State,
    pub(crate) tag: Option<Tag>,
    pub(crate) history: History,
}

impl View {
    /// The asked, else the current tag; empty when there is none yet.
    ///
    /// Exit code 2 for a tag that was asked for and does not exist.
    pub fn open(root: &Path, asked: Option<Tag>) -> Result<Self> {
        let task = Task::read(root)?;
        let repo = Repo::open(root)?;
        if let Ok(head) = repo.head() {
            let tracked: Vec<PathBuf> = repo.files(head)?.into_keys().collect();
            task.check_files(root, &tracked)?;
        }
        let state = State::new(root);
        let tag = match asked {
            Some(tag) if !state.tag(&tag).journal().exists() => {
                return Err(state.no_such_tag(&tag));
            }
            Some(tag) => Some(tag),
            None => state.current()?.filter(|tag| state.tag(tag).journal().exists()),
        };
        let history = match &tag {
            Some(tag) => journal::read(&state.tag(tag).journal())?,
            None => History::default(),
        };
        Ok(Self { task, repo, state, tag, history })
    }

    pub(crate) fn known_noise(&self) -> Option<KnownNoise<'_>> {
        let (init, tag) = self.history.init().zip(self.tag.as_ref())?;
        Some(KnownNoise {
            task: &self.task,
            state: &self.state,
            tag: tag.as_str(),
            history: &self.history,
            profile: init.profile.as_deref().and_then(|name| name.parse().ok()),
            device: &init.device,
            night: None,
        })
    }

    /// Where it stands.
    ///
    /// Fails where the account of what was spent cannot be read.
    pub fn status(&self) -> Result<StatusReport> {
        let history = &self.history;
        let pid = self.state.running();
        let known = self.known_noise().filter(|_| history.champion().is_some());
        let tag = self.tag.as_ref().map_or("", Tag::as_str);
        let spent = self.state.spent_by(tag).map(|spent| Usage {
            tokens: spent.tokens,
            usd: (spent.unpriced < spent.calls).then_some(spent.usd),
        })?;
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
            classes: Share::all(novelty.classes.iter().map(|(class, tally)| (class.to_string(), *tally))),
            categories: Share::all(novelty.categories.iter().cloned()),
            hints: self.pending_hints()?.len(),
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

    /// The rows of `results.tsv` as JSON, the last ones where only so many are asked for.
    pub fn results(&self, last: Option<usize>) -> Result<Vec<Value>> {
        let trials = self.history.trials();
        ledger::json(
            &self.task.metric.name,
            &trials[trials.len().saturating_sub(last.unwrap_or(usize::MAX))..],
        )
    }

    /// All trials as a table.
    pub fn log(&self) -> String {
        let mut text = String::new();
        let trials = self.history.trials();
        if trials.is_empty() {
            return "no trials yet: `ratchet run` starts the loop, `ratchet try -m TEXT` tries one edit\n"
                .to_owned();
        }
        let metric = &self.task.metric.name;
        let width = metric.len().max(10);
        let _ = writeln!(
            text,
            "{:>5}  {:7}  {:>width$}  {:>10}  {:>7}  {:7}  description",
            "trial", "status", metric, "delta", "seconds", "commit"
        );
        for trial in trials {
            let value = trial.value.map_or("-".to_owned(), |value| format!("{value:.6}"));
            let delta = trial.delta.map_or("-".to_owned(), |delta| format!("{delta:+.6}"));
            let commit = trial.commit.as_deref().map_or("-".to_owned(), short);
            let _ = writeln!(
                text,
                "{:>5}  {:7}  {value:>width$}  {delta:>10}  {:>7.1}  {commit:7}  {}",
                trial.trial,
                trial.status.as_str(),
                trial.seconds,
                plain(&trial.proposal.description, 100)
            );
        }
        text
    }

    /// How much of a trial's gain over its champion came from throughput and how much from learning; `None`
    /// where fit leaves no loss curves.
    pub fn attribution(&self, record: &TrialRecord) -> Option<Attribution> {
        let tag = self.tag.as_ref()?;
        let curve = |trial| Curve::read(&self.state.tag(tag).trial(trial));
        Some(Attribution::of(&curve(record.trial)?, &curve(record.parent?)?))
    }

    /// One trial whole.
    pub fn show(&self, n: u64) -> Result<String> {
        let Some(tag) = &self.tag else {
            return Err(Error::usage(format!("there is no trial {n}: no tag exists yet"))
                .hint("`ratchet run` starts one"));
        };
        let record = self.history.trial(n).ok_or_else(|| no_such_trial(n, tag))?;
        let dir = self.state.tag(tag).trial(n);
        let metric = &self.task.metric.name;
        let mut text = String::new();
        let mut line = |name: &str, value: String| {
            let _ = writeln!(text, "{name:12} {value}");
        };
        let number = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.6}"));
        line("trial", format!("{n} of {tag}: {}", plain(&record.proposal.description, 300)));
        line(
            "verdict",
            format!(
                "{} ({}): {}",
                record.status.as_str(),
                record.verdict.outcome,
                plain(&record.verdict.reason, 400)
            ),
        );
        line(metric, number(record.value));
        if record.values.len() > 1 {
            line(
                "runs",
                record.values.iter().map(|value| format!("{value:.6}")).collect::<Vec<_>>().join("  "),
            );
        }
        line("delta", record.delta.map_or("-".to_owned(), |delta| format!("{delta:+.6}")));
        let verdict = &record.verdict;
        let rule = format!("{:?}", verdict.rule).to_lowercase();
        let needed = verdict.gain_needed.map_or(String::new(), |gain| format!(", gain needed {gain:.6}"));
        let level =
            verdict.z.map_or(String::new(), |z| format!(" at level {:.2e}, {z:.2} errors", verdict.level));
        let sigma = verdict
            .noise
            .sigma()
            .map_or("unknown".to_owned(), |sigma| format!("{sigma:.6} ({})", verdict.noise.origin()));
        line("rule", format!("{rule}{needed}{level}, sigma {sigma}"));
        line("parent", record.parent.map_or("-".to_owned(), |parent| parent.to_string()));
        line("commit", record.commit.clone().unwrap_or_else(|| "-".to_owned()));
        line("proposer", plain(&record.proposer, 60));
        for (name, value) in
            [("hypothesis", &record.proposal.hypothesis), ("category", &record.proposal.category)]
        {
            if !value.is_empty() {
                line(name, plain(value, 600));
            }
        }
        for change in &record.proposal.changes {
            line("knob", plain(&format!("{}: {} -> {}", change.name, change.from, change.to), 200));
        }
        if let Some(expected) = record.proposal.expected_delta {
            line("expected", format!("{expected:+.6}"));
        }
        if let Some(class) = record.class {
            line("edit", class.to_string());
        }
        if let Some(version) = &record.program {
            line("brief", self.state.briefs().join(format!("{version}.md")).display().to_string());
        }
        let demand = &record.demand;
        if let Some(hint) = &demand.hint {
            line("hint", plain(hint, 300));
        }
        if !demand.unlike.is_empty() {
            line("asked", plain(&format!("for a category other than {}", demand.unlike.join(", ")), 300));
        }
        if demand.structural {
            line("asked", "for a structural edit".to_owned());
        }
        if let Some(from) = record.excursion {
            line("excursion", format!("from the files of trial {from}"));
        }
        let carried: Vec<String> =
            self.history.carried(record.carries).map(|c| c.trial.to_string()).collect();
        if !carried.is_empty() {
            line("carries", format!("the edits of trials {}", carried.join(", ")));
        }
        if let Some(gain) = self.attribution(record) {
            line("gain", gain.to_string());
        }
        line("memory", format!("{:.2} GB", record.memory_gb));
        line("time", format!("{:.1} s, ended {}", record.seconds, record.ended));
        line("files", dir.display().to_string());
        if record.status == Status::Crash {
            let log = ["run.log", "preflight.log", "build.log"]
                .map(|name| dir.join(name))
                .into_iter()
                .find(|log| log.exists());
            if let Some(log) = log {
                let _ = writeln!(text, "\n{} (its end)", log.display());
                for words in tail_of(&log, 20) {
                    let _ = writeln!(text, "  | {words}");
                }
            }
        }
        let patch = plain_file::read(&dir.join("diff.patch")).unwrap_or_default();
        let patch = String::from_utf8_lossy(&patch);
        if !patch.is_empty() {
            text.push('\n');
            for words in patch.lines().take(400) {
                // a diff keeps its spacing, but nothing in it may steer a terminal
                let clean: String = words.chars().filter(|c| !c.is_control() || *c == '\t').collect();
                let _ = writeln!(text, "{clean}");
            }
        }
        Ok(text)
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
        if self.spent.tokens > 0 {
            let usd = self.spent.usd.map_or(String::new(), |usd| format!(", {usd:.2} USD"));
            let _ = writeln!(text, "spent     {} tokens{usd} by proposers", self.spent.tokens);
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
        if self.hints > 0 {
            let _ = writeln!(text, "hints     {} waiting: `ratchet hint` lists them", self.hints);
        }
        let then = match self.wish {
            Wish::Go => "",
            Wish::Pause => "; it pauses after its trial",
            Wish::Stop => "; it ends after its trial",
        };
        let now = match (self.pid, self.open, &self.last_stop) {
            (Some(pid), _, _) if self.paused => {
                format!("paused, pid {pid}: `ratchet resume` lets it go on, `ratchet stop` ends it")
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
