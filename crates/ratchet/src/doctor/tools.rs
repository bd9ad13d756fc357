//! Toolchain, GPU, data, and the programs that a task runs.

use std::path::Path;

use prepare::{cache::Cache, profile::Profile};

use super::{Check, fail, pass, warn};
use crate::{
    config::Task,
    cuda::{self, Card, Cuda, Obstacle},
    exec::{first_line_of, is_there},
};

pub(super) fn toolchain() -> Vec<Check> {
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

pub(super) fn gpu(compiles: bool) -> Check {
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

pub(super) fn data() -> Vec<Check> {
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

/// Whether the programs that the contract names are there; those that a build leaves are not, yet.
pub(super) fn programs(root: &Path, task: &Task) -> Check {
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
