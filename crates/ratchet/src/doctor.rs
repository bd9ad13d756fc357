//! What this machine can do, checked by trying. Changes nothing.

mod checklist;
pub mod forbidden;
mod machine;
mod proposer;
mod space;
mod told;
mod tools;

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use prepare::cache::Cache;
use serde::Serialize;

use self::checklist::{Seen, checklist};
use crate::{
    config::{Step, Task},
    error::Error,
    git::Repo,
    history::History,
    journal,
    review::unreviewed,
    schedule::installed,
    show::View,
    state::{State, Tag},
};

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What.
    pub name: &'static str,
    /// How it is.
    pub state: Health,
    /// What was seen.
    pub detail: String,
    /// What to do about it.
    pub remedy: Option<String>,
}

/// How a thing is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Health {
    /// As it should be.
    Pass,
    /// It works, with less.
    Warn,
    /// A loop cannot run so.
    Fail,
}

fn pass(name: &'static str, detail: impl Into<String>) -> Check {
    Check { name, state: Health::Pass, detail: detail.into(), remedy: None }
}

fn warn(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, state: Health::Warn, detail: detail.into(), remedy: Some(remedy.into()) }
}

fn fail(name: &'static str, detail: impl Into<String>, remedy: impl Into<String>) -> Check {
    Check { name, state: Health::Fail, detail: detail.into(), remedy: Some(remedy.into()) }
}

/// All checks.
#[derive(Debug, Serialize)]
pub struct Report {
    /// In the order in which a first loop needs them.
    pub checks: Vec<Check>,
    /// What has to hold before a loop is left alone.
    pub checklist: Vec<Check>,
}

impl Report {
    /// Whether a loop can run.
    pub fn is_healthy(&self) -> bool {
        self.checks.iter().chain(&self.checklist).all(|check| check.state != Health::Fail)
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut text = lines(&self.checks, 10);
        let _ = writeln!(text, "\nThe first-loop checklist: what holds before a loop is left alone\n");
        text += &lines(&self.checklist, 21);
        let next = if self.is_healthy() {
            "ready: `ratchet run --trials 3` is a first loop"
        } else {
            "not ready: see FAIL above"
        };
        let _ = writeln!(text, "\n{next}");
        text
    }
}

/// One or two lines a check; `width` of its name.
fn lines(checks: &[Check], width: usize) -> String {
    let mut text = String::new();
    for check in checks {
        let sign = match check.state {
            Health::Pass => "ok  ",
            Health::Warn => "warn",
            Health::Fail => "FAIL",
        };
        let _ = writeln!(text, "{sign}  {:width$} {}", check.name, check.detail);
        if let Some(remedy) = &check.remedy {
            let _ = writeln!(text, "      {:width$} -> {remedy}", "");
        }
    }
    text
}

/// Looks at everything that a first loop needs.
pub fn examine(root: &Path) -> Report {
    let mut checks = Vec::new();
    let task = Task::read(root);
    checks.push(match &task {
        Ok(task) => pass("task", format!("{} ({})", task.name(), task.metric.name)),
        Err(error) => {
            fail("task", error.to_string(), "correct ratchet.toml, or run in the folder that holds it")
        }
    });
    let known = task.as_ref().ok();
    let (state, journal) = (State::new(root), journal(root));
    let tag = journal.as_ref().ok().and_then(|found| found.as_ref()).map(|(tag, _)| state.tag(tag));
    let empty = History::default();
    let history =
        journal.as_ref().ok().and_then(|found| found.as_ref()).map_or(&empty, |(_, history)| history);
    let (repository, editable) = repository(root, known);
    checks.extend(repository);
    if known.is_some_and(builds_with_cargo) {
        checks.extend(tools::toolchain());
    }
    let gpu = tools::gpu(known.is_none_or(Task::compiles_for_the_gpu));
    let has_gpu = gpu.state == Health::Pass;
    checks.push(gpu);
    checks.extend(machine::see_driver());
    if known.is_some_and(Task::has_profiles) {
        checks.extend(tools::data());
    }
    checks.push(space::disk(space::free(root), space::need(known, has_gpu, tag.as_ref(), history)));
    checks.push(space::see_memory(history));
    checks.push(machine::see_clock(history));
    checks.push(machine::suspend(machine::see_sleep()));
    let mut sandbox = None;
    if let Some(task) = known {
        sandbox = Some(forbidden::sandbox(root, task));
        checks.extend(sandbox.clone());
        checks.push(tools::programs(root, task));
        checks.push(proposer::proposer(root, task));
        checks.push(proposer::keys(task));
        checks.push(told::notify(root, &task.notify));
    }
    checks.push(told::schedule(&installed(root)));
    checks.push(lock(root));
    let data = known
        .filter(|task| task.has_profiles())
        .and_then(|_| Some(Cache::root().ok()?.display().to_string()));
    let checklist = checklist(&Seen {
        task: task.as_ref().map_err(ToString::to_string),
        editable,
        has_brief: root.join("program.md").is_file(),
        data,
        journal: journal
            .as_ref()
            .map_err(ToString::to_string)
            .map(|found| found.as_ref().map(|(tag, history)| (tag.to_string(), history.trials().len()))),
        fleeting: space::fleeting(&state),
        sandbox,
        unreviewed: View::open(root, None).and_then(|view| unreviewed(&view)).unwrap_or_default(),
    });
    Report { checks, checklist }
}

/// The current tag's, where there is one.
fn journal(root: &Path) -> Result<Option<(Tag, History)>, Error> {
    let state = State::new(root);
    let Some(tag) = state.current()? else { return Ok(None) };
    let path = state.tag(&tag).journal();
    if !path.exists() {
        return Ok(None);
    }
    let history = journal::read(&path)?;
    Ok(Some((tag, history)))
}

fn builds_with_cargo(task: &Task) -> bool {
    task.build.as_ref().is_some_and(Step::is_cargo)
}

/// Git's checks, and how many committed files a candidate may edit.
fn repository(root: &Path, task: Option<&Task>) -> (Vec<Check>, Result<usize, String>) {
    let opened = Repo::open(root).and_then(|repo| {
        let head = repo.head()?;
        let tracked: Vec<PathBuf> = repo.files(head)?.into_keys().collect();
        if let Some(task) = task {
            task.check_files(root, &tracked)?;
        }
        let editable = |path: &&PathBuf| task.is_some_and(|task| task.editable().contains(path));
        let editable = tracked.iter().filter(editable).count();
        Ok((repo, tracked.len(), editable))
    });
    match opened {
        Ok((repo, files, editable)) => {
            let identity = match repo.identity() {
                Some(who) => pass("identity", who),
                None => warn(
                    "identity",
                    "git knows no user.name: commits are made as ratchet <ratchet@localhost>",
                    "git config --global user.name NAME; git config --global user.email ADDRESS",
                ),
            };
            (vec![pass("git", format!("{files} committed files")), identity], Ok(editable))
        }
        Err(error) => {
            let remedy = error.hint.clone().unwrap_or_else(|| error.to_string());
            (vec![fail("git", error.what.clone(), remedy)], Err(error.what))
        }
    }
}

fn lock(root: &Path) -> Check {
    let state = State::new(root);
    let tags = state.tags().iter().map(Tag::to_string).collect::<Vec<_>>().join(", ");
    match state.running() {
        Some(pid) => warn(
            "lock",
            format!("a run is under way, pid {pid}"),
            "wait for it, or end it with Ctrl-C or TERM",
        ),
        None => pass(
            "lock",
            if tags.is_empty() { "free; no tag yet".to_owned() } else { format!("free; tags: {tags}") },
        ),
    }
}
