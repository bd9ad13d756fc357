//! The driver: proposes, builds, trains, scores, keeps or resets, and logs every trial.
//!
//! Nothing in this library talks to the terminal: it returns values and errors, and reports what it is
//! doing through [`progress::Observer`]. Only [`git`] touches git, only [`journal`] writes the journal, only
//! [`ledger`] writes `results.tsv`, only [`exec`] starts processes, and [`verdict`] decides without doing.

pub(crate) mod account;
pub mod ahead;
pub mod attempt;
pub mod attribution;
pub mod audit;
pub mod beginning;
pub mod brief;
pub mod build;
pub mod candidate;
pub mod commands;
pub(crate) mod companion;
pub mod config;
pub mod control;
pub mod cuda;
pub mod demand;
pub mod doctor;
pub mod duty;
pub mod edit_class;
pub mod error;
pub mod excursion;
pub mod exec;
pub mod figures;
pub mod fingerprint;
pub mod git;
pub mod hints;
pub(crate) mod hire;
pub mod history;
pub mod journal;
pub mod judge;
pub mod ledger;
pub(crate) mod material;
pub mod measure;
pub mod night;
pub mod noise;
pub mod novelty;
pub(crate) mod patience;
pub mod plain_file;
pub mod processes;
pub mod progress;
pub mod proposer;
pub(crate) mod proposing;
pub mod reach;
pub mod rerun;
pub mod risk;
pub mod run;
pub mod runlog;
pub mod sampling;
pub mod scan;
pub mod secrets;
pub mod session;
pub mod setting;
pub mod shelf;
pub mod show;
pub mod sigma;
pub mod source;
pub mod state;
pub mod stop;
pub mod suggest;
pub mod transfer;
pub mod trial;
pub mod verdict;
pub(crate) mod weak;
