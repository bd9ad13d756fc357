//! The `ratchet` binary from outside: a toy task, real git, and the contract of `docs/design.md`.

mod ablation;
mod accept;
mod agents;
mod api_page;
mod awake;
mod beginnings;
mod builds;
mod confined;
mod contract;
mod cuda;
#[cfg(all(target_os = "linux", target_env = "gnu", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod faults; // by ptrace
mod ledger;
mod levels;
mod llm;
mod manual;
mod mcp;
mod night;
mod noise;
mod notify;
mod novelty;
mod processes;
mod proposers;
mod rates;
mod readme;
mod reference;
mod refusals;
mod replay;
mod replicates;
mod report;
mod repositories;
mod review;
mod run;
mod sample;
mod schedule;
mod search;
mod sim;
#[path = "../examples/nights/night.rs"]
mod simulated;
mod source;
mod steering;
mod survival;
mod swaps;
mod toy;
mod transfer;
mod verdicts;
mod views;
mod watching;
