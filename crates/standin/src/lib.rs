//! For tests: a local server that speaks the protocols of language-model providers, with faults.
//!
//! A script says what each request is answered; the server puts it into the protocol asked in, whole or as a
//! stream, with usage, finish reasons and error bodies as the providers have them. It keeps every request.

pub mod faults;
mod http;
mod protocol;
mod request;
mod server;
mod wire;

pub use faults::Fault;
pub use protocol::Protocol;
pub use request::{Message, Request};
pub use server::{Reply, Server};
