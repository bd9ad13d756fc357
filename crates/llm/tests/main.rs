//! The crate against a local server that speaks the providers' protocols.

#![allow(missing_docs, clippy::unwrap_used)]

mod answers;
mod keys;
mod records;
mod setup;
mod spending;
mod trouble;
