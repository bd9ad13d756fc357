//! Proposers: given a brief, return edits.

pub mod agent;
pub mod knobs;
