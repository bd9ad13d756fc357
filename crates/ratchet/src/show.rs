//! Status, one trial, all trials, for people and tools. Reads only, and takes no lock.

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use serde_json::Value;

use crate::{
    attribution::{Attribution, Curve},
    config::Task,
    error::{Error, Result},
    git::Repo,
    history::History,
    journal::{self, Status, TrialRecord},
    ledger, plain_file,
    runlog::{plain, spelled_out, tail_of},
    sigma::KnownNoise,
    state::{State, Tag},
    trial::no_such_trial,
};

/// Lines of a crash's log that are shown.
pub(crate) const LOG_LINES: usize = 20;

/// The log of the last thing that a trial did.
pub(crate) fn last_log(trial: &Path) -> Option<PathBuf> {
    ["run.log", "preflight.log", "build.log"]
        .map(|name| trial.join(name))
        .into_iter()
        .find(|log| log.exists())
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

    /// How a trial came to be, as (name, text) for people: knobs moved, hint, strategy, mechanisms, what it builds on.
    pub fn circumstances(&self, record: &TrialRecord) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let mut line = |name, value: String| all.push((name, value));
        for change in &record.proposal.changes {
            line("knob", plain(&format!("{}: {} -> {}", change.name, change.from, change.to), 200));
        }
        if let Some(version) = &record.program {
            line("brief", format!(".ratchet/briefs/{version}.md"));
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
        if let Some(strategy) = demand.strategy {
            line("strategy", strategy.as_str().to_owned());
        }
        if !demand.frozen.is_empty() {
            line("frozen", plain(&demand.frozen.join(", "), 600));
        }
        for guidance in &demand.guidance {
            line("guidance", plain(guidance, 600));
        }
        for used in &record.uses {
            line("mechanism", used.to_string());
        }
        if let Some(from) = record.excursion {
            line("excursion", format!("from the files of trial {from}"));
        }
        let carried: Vec<String> =
            self.history.carried(record.carries).map(|c| c.trial.to_string()).collect();
        if !carried.is_empty() {
            line("carries", format!("the edits of trials {}", carried.join(", ")));
        }
        all
    }

    /// One trial whole.
    pub fn show(&self, n: u64) -> Result<String> {
        let Some(tag) = &self.tag else {
            return Err(Error::usage(format!("there is no trial {n}: no tag exists yet"))
                .hint("`ratchet run` starts one"));
        };
        let record = self.history.trial(n).ok_or_else(|| no_such_trial(n, tag))?;
        let dir = self.state.tag(tag).trial(n);
        let mut text = self.facts(record, tag);
        if let Some(log) = last_log(&dir).filter(|_| record.status == Status::Crash) {
            let _ = writeln!(text, "\n{} (its end)", log.display());
            for words in tail_of(&log, LOG_LINES) {
                let _ = writeln!(text, "  | {words}");
            }
        }
        let patch = plain_file::read(&dir.join("diff.patch")).unwrap_or_default();
        let patch = String::from_utf8_lossy(&patch);
        if !patch.is_empty() {
            text.push('\n');
            for words in patch.lines().take(400) {
                let _ = writeln!(text, "{}", spelled_out(words));
            }
        }
        Ok(text)
    }

    /// What is known of a trial but its log and its diff, a line each.
    pub(crate) fn facts(&self, record: &TrialRecord, tag: &Tag) -> String {
        let (n, metric) = (record.trial, &self.task.metric.name);
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
        if let Some(expected) = record.proposal.expected_delta {
            line("expected", format!("{expected:+.6}"));
        }
        if let Some(class) = record.class {
            line("edit", class.to_string());
        }
        for (name, value) in self.circumstances(record) {
            line(name, value);
        }
        if let Some(gain) = self.attribution(record) {
            line("gain", gain.to_string());
        }
        line("memory", format!("{:.2} GB", record.memory_gb));
        line("time", format!("{:.1} s, ended {}", record.seconds, record.ended));
        line("files", self.state.tag(tag).trial(n).display().to_string());
        text
    }
}
