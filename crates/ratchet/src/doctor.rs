//! What this machine can do, checked by trying. Changes nothing.

pub mod forbidden;

use std::{
    fmt::Write,
    path::{Path, PathBuf},
};

use prepare::{cache::Cache, profile::Profile};
use serde::Serialize;

use crate::{
    config::{Llm, ProposerKind, Step, Task},
    cuda::{self, Card, Cuda, Obstacle},
    exec::{StopFlag, first_line_of, is_there},
    git::Repo,
    hire,
    material::sources,
    state::{State, Tag},
};

/// Free space below which a night may end early.
const LITTLE_DISK: u64 = 10 << 30;

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
}

impl Report {
    /// Whether a loop can run.
    pub fn is_healthy(&self) -> bool {
        self.checks.iter().all(|check| check.state != Health::Fail)
    }

    /// For a person.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for check in &self.checks {
            let sign = match check.state {
                Health::Pass => "ok  ",
                Health::Warn => "warn",
                Health::Fail => "FAIL",
            };
            let _ = writeln!(text, "{sign}  {:10} {}", check.name, check.detail);
            if let Some(remedy) = &check.remedy {
                let _ = writeln!(text, "      {:10} -> {remedy}", "");
            }
        }
        let next = if self.is_healthy() {
            "ready: `ratchet run --trials 3` is a first loop"
        } else {
            "not ready: see FAIL above"
        };
        let _ = writeln!(text, "\n{next}");
        text
    }
}

/// Looks at everything that a first loop needs.
pub fn examine(root: &Path) -> Report {
    let mut checks = Vec::new();
    let task = match Task::read(root) {
        Ok(task) => {
            checks.push(pass("task", format!("{} ({})", task.name(), task.metric.name)));
            Some(task)
        }
        Err(error) => {
            checks.push(fail(
                "task",
                error.to_string(),
                "correct ratchet.toml, or run in the folder that holds it",
            ));
            None
        }
    };
    checks.extend(repository(root, task.as_ref()));
    if task.as_ref().is_some_and(builds_with_cargo) {
        checks.extend(toolchain());
    }
    checks.push(gpu(task.as_ref().is_none_or(Task::compiles_for_the_gpu)));
    if task.as_ref().is_some_and(Task::has_profiles) {
        checks.extend(data());
    }
    checks.push(disk(root));
    if let Some(task) = &task {
        checks.push(forbidden::sandbox(root, task));
        checks.push(programs(root, task));
        checks.push(proposer(root, task));
    }
    checks.push(lock(root));
    Report { checks }
}

fn builds_with_cargo(task: &Task) -> bool {
    task.build.as_ref().is_some_and(Step::is_cargo)
}

fn repository(root: &Path, task: Option<&Task>) -> Vec<Check> {
    let opened = Repo::open(root).and_then(|repo| {
        let head = repo.head()?;
        let tracked: Vec<PathBuf> = repo.files(head)?.into_keys().collect();
        if let Some(task) = task {
            task.check_files(root, &tracked)?;
        }
        Ok((repo, tracked.len()))
    });
    match opened {
        Ok((repo, files)) => {
            let identity = match repo.identity() {
                Some(who) => pass("identity", who),
                None => warn(
                    "identity",
                    "git knows no user.name: commits are made as ratchet <ratchet@localhost>",
                    "git config --global user.name NAME; git config --global user.email ADDRESS",
                ),
            };
            vec![pass("git", format!("{files} committed files")), identity]
        }
        Err(error) => {
            vec![fail("git", error.what.clone(), error.hint.clone().unwrap_or_else(|| error.to_string()))]
        }
    }
}

fn toolchain() -> Vec<Check> {
    let rust = match (first_line_of("cargo", &["--version"]), first_line_of("rustc", &["--version"])) {
        (Some(cargo), Some(rustc)) => pass("rust", format!("{cargo}; {rustc}")),
        _ => fail("rust", "cargo or rustc is missing", "install Rust from https://rustup.rs"),
    };
    let compiler = ["cc", "gcc", "clang"].iter().find_map(|name| first_line_of(name, &["--version"]));
    let c = compiler.map_or_else(
        || fail("c", "no C compiler found", "install one, for example: apt install build-essential"),
        |version| pass("c", version),
    );
    vec![rust, c]
}

fn gpu(compiles: bool) -> Check {
    match cuda::look(compiles) {
        Cuda::Absent => warn(
            "gpu",
            "no NVIDIA device: trials run on the CPU",
            "use the profile laptop; results are comparable among themselves",
        ),
        Cuda::Unusable(Obstacle { what, remedy }) => warn("gpu", what, remedy),
        Cuda::Usable(Card { name, driver, capability, compiler }) => {
            let compiler = compiler.map_or(String::new(), |compiler| {
                format!("; {} of CUDA {}", compiler.nvcc.display(), compiler.version)
            });
            pass(
                "gpu",
                format!(
                    "{name}, compute capability {capability}; its driver understands CUDA {driver}{compiler}"
                ),
            )
        }
    }
}

fn data() -> Vec<Check> {
    let checks = Profile::ALL.map(|profile| {
        let (name, bundled) = match profile {
            Profile::Full => ("data full", false),
            Profile::Laptop => ("data lapt.", true),
            Profile::Smoke => ("data smoke", true),
        };
        match Cache::open(profile) {
            Ok(cache) => pass(name, format!("prepared in {}", cache.paths().dir().display())),
            Err(_) if bundled => {
                pass(name, "not prepared yet; `ratchet run` does it in a minute, without network")
            }
            Err(error) => warn(
                name,
                error.to_string(),
                format!("cargo run --release -p prepare -- --profile {profile}"),
            ),
        }
    });
    checks.to_vec()
}

fn disk(root: &Path) -> Check {
    let free = rustix::fs::statvfs(root).map(|stat| stat.f_bavail * stat.f_frsize);
    match free {
        Ok(free) if free >= LITTLE_DISK => pass("disk", format!("{} GB free", free >> 30)),
        Ok(free) => warn(
            "disk",
            format!("{:.1} GB free", free as f64 / 1e9),
            "free some: builds and checkpoints of a night take several GB",
        ),
        Err(error) => warn("disk", format!("free space is unknown: {error}"), "look with df"),
    }
}

/// Whether the programs that the contract names are there; those that a build leaves are not, yet.
fn programs(root: &Path, task: &Task) -> Check {
    let steps = [
        ("prepare", &task.prepare),
        ("build", &task.build),
        ("preflight", &task.preflight),
        ("fit", &task.fit),
    ];
    let steps = steps.into_iter().filter_map(|(name, step)| Some((name, &step.as_ref()?.command)));
    let missing = steps.chain([("score", &task.score.command)]).find_map(|(name, command)| {
        let program = command.first().filter(|program| !program.contains('{'))?;
        (!is_there(root, program)).then(|| (name, program.clone()))
    });
    match missing {
        Some((name, program)) => fail(
            "programs",
            format!("[{name}] runs {program}, which is not installed"),
            "install it, or correct the command in ratchet.toml",
        ),
        None => pass("programs", "what the task runs is installed"),
    }
}

/// How many knobs the committed files mark.
fn knobs(root: &Path, task: &Task) -> Result<usize, String> {
    let read = || {
        let repo = Repo::open(root)?;
        sources(&repo, task, repo.head()?)
    };
    let files = read().map_err(|error| error.to_string())?;
    // a line that differs by profile names all of them
    let profile = task.has_profiles().then(|| Profile::Laptop.name());
    crate::proposer::knobs::count(&files, profile)
}

/// The model of `[proposer.llm]`, and whether its key is there; nothing is sent.
fn model(llm: &Llm) -> Check {
    let name = format!("llm: {} of {}", llm.model, llm.provider.as_str());
    match hire::answerer(llm, &StopFlag::default()) {
        Ok(_) => pass("proposer", name),
        Err(error) => fail("proposer", format!("{name}: {error}"), "or use --proposer knobs"),
    }
}

fn proposer(root: &Path, task: &Task) -> Check {
    if let (ProposerKind::Llm, Some(llm)) = (task.proposer.kind, &task.proposer.llm) {
        return model(llm);
    }
    match (task.proposer.kind, &task.proposer.agent) {
        (ProposerKind::Agent, Some(agent)) => {
            let program = agent.program();
            if is_there(root, program) {
                pass("proposer", format!("agent {program}"))
            } else {
                fail(
                    "proposer",
                    format!("the agent's command {program} is not installed"),
                    "install it, or use --proposer knobs",
                )
            }
        }
        _ => match knobs(root, task) {
            Ok(0) => fail(
                "proposer",
                "knobs: no editable file marks one",
                "write for example `// knob: log 0.005..0.2` behind a value, or use an agent",
            ),
            Ok(knobs) => pass("proposer", format!("knobs: the built-in search, offline; marked: {knobs}")),
            Err(problem) => fail("proposer", problem, "correct the marker"),
        },
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
