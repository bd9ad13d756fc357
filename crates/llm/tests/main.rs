//! The crate against a local server that speaks the providers' protocols.

mod answers;
mod keys;
mod records;
mod setup;
mod spending;
mod trouble;
