//! The `ratchet` program, for examples that run it from outside.

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use anyhow::{Context, Result, ensure};

/// The driver, built beside the example.
pub(crate) fn binary() -> Result<PathBuf> {
    let here = std::env::current_exe()?;
    let folder =
        here.parent().and_then(Path::parent).context("an example lies in target/PROFILE/examples")?;
    let ratchet = folder.join("ratchet");
    ensure!(ratchet.exists(), "{} is not built: cargo build --release -p ratchet", ratchet.display());
    Ok(ratchet)
}

/// Runs a command for what it prints.
pub(crate) fn run(command: &mut Command) -> Result<String> {
    let out = command.stdin(Stdio::null()).output()?;
    ensure!(out.status.success(), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}
