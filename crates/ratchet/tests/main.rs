//! The `ratchet` binary from outside: a toy task, real git, and the contract of `docs/design.md`.

mod beginnings;
mod builds;
mod confined;
mod contract;
mod ledger;
mod night;
mod noise;
mod processes;
mod proposers;
mod rates;
mod readme;
mod refusals;
mod replicates;
mod repositories;
mod run;
#[path = "../examples/nights/night.rs"]
mod simulated;
mod survival;
mod swaps;
mod toy;
mod verdicts;
mod views;
