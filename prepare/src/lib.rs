//! The frozen referee: corpus, tokenizer, packing, val_bpb, clock, contest protocol.
//!
//! Features: `data` fetches and tokenizes; `contest` is what a contestant links. Without either, only
//! what the driver reads is built: profiles, manifest, exam rows, the exam exchange.

pub mod bpb;
pub mod cache;
mod chance;
pub mod exam;
pub mod manifest;
pub mod pack;
pub mod profile;
pub mod resit;
pub mod rows;
mod stamp;
pub mod utf8;
pub mod vouch;

#[cfg(feature = "data")]
pub mod build;
#[cfg(feature = "data")]
pub mod corpus;
#[cfg(feature = "data")]
pub mod encode;
#[cfg(feature = "data")]
pub mod fetch;
#[cfg(feature = "data")]
pub mod progress;

#[cfg(any(feature = "data", feature = "contest"))]
pub mod tokenizer;

#[cfg(feature = "contest")]
mod by_hand;
#[cfg(feature = "contest")]
pub mod checkpoint;
#[cfg(feature = "contest")]
pub mod clock;
#[cfg(feature = "contest")]
pub mod contest;
#[cfg(feature = "contest")]
pub mod cross_entropy;
#[cfg(feature = "contest")]
pub mod device;
#[cfg(feature = "contest")]
mod epochs;
#[cfg(feature = "contest")]
mod fit;
#[cfg(feature = "contest")]
pub mod loader;
#[cfg(feature = "contest")]
mod pipe;
#[cfg(feature = "contest")]
pub mod preflight;
#[cfg(feature = "contest")]
mod probe;
#[cfg(feature = "contest")]
mod sample;
#[cfg(feature = "contest")]
pub mod score;
#[cfg(feature = "contest")]
pub mod summary;
#[cfg(feature = "contest")]
pub mod trial;

#[cfg(feature = "contest")]
pub use contest::{Batch, Checkpoint, Contestant, Description, Trial, contest};
