//! The referee, tested from outside.

mod bpb;
mod cache;
mod exam;
mod pack;
mod profile;
mod rows;

#[cfg(feature = "data")]
mod build;
#[cfg(feature = "data")]
mod command;
#[cfg(feature = "data")]
mod corpus;
#[cfg(feature = "data")]
mod fetch;
#[cfg(feature = "data")]
mod prepared;
#[cfg(feature = "data")]
mod server;
#[cfg(feature = "data")]
mod tokenizer;

#[cfg(feature = "contest")]
mod clock;
#[cfg(feature = "contest")]
mod cross_entropy;
#[cfg(feature = "contest")]
mod fake;
#[cfg(feature = "contest")]
mod loader;
#[cfg(feature = "contest")]
mod protocol;
#[cfg(feature = "contest")]
mod resit;
#[cfg(all(feature = "data", feature = "contest"))]
mod sample;
#[cfg(feature = "contest")]
mod score;
#[cfg(feature = "contest")]
mod summary;
