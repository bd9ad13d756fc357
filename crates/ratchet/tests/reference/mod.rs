//! `docs/reference/`: pages made of the code, and one held against a night.
//!
//! `UPDATE_REFERENCE=1 cargo test -p ratchet --test main reference` writes the pages anew.

mod commands;
mod configuration;
mod files;
mod journal;
pub(crate) mod links;
mod types;

use crate::source::hold;

/// A page of the reference is what the code says.
#[track_caller]
fn page(name: &str, text: &str) {
    hold(&format!("docs/reference/{name}.md"), text, "UPDATE_REFERENCE", "reference");
}

const MADE: &str = "Made from the source by `crates/ratchet/tests/reference/`; not to be edited by hand.";
