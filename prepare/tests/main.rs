//! The referee, tested from outside.

mod cache;
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
