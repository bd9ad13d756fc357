//! `ratchet completions` and `ratchet man`: what a shell and a reader of manuals are given, made from the command line.

use std::path::Path;

use anyhow::{Context, Result};
use clap_complete::Shell;

use crate::examples::for_people;

/// The completions of a shell.
pub(crate) fn completions(shell: Shell) -> Vec<u8> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut for_people(), "ratchet", &mut text);
    text
}

/// The page of `ratchet` itself.
pub(crate) fn page() -> Result<Vec<u8>> {
    let mut text = Vec::new();
    clap_mangen::Man::new(for_people().disable_help_subcommand(true)).render(&mut text)?;
    Ok(text)
}

/// A page for each command, in a folder that is made where it is missing.
pub(crate) fn pages(folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder).with_context(|| format!("{}: could not create it", folder.display()))?;
    let all = for_people().disable_help_subcommand(true);
    clap_mangen::generate_to(all, folder)
        .with_context(|| format!("{}: could not write pages", folder.display()))
}
