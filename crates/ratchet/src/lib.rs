//! The driver: proposes, builds, trains, scores, keeps or resets, and logs every trial.

pub mod brief;
pub mod build;
pub mod candidate;
pub mod config;
pub mod doctor;
pub mod exec;
pub mod fingerprint;
pub mod git;
pub mod journal;
pub mod ledger;
pub mod noise;
pub mod proposer;
pub mod run;
pub mod show;
pub mod source;
pub mod state;
pub mod trial;
pub mod verdict;
