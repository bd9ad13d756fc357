//! Reverse-mode autodiff over candle tensors.

mod bridge;
pub mod check;
mod error;
mod nn;
mod ops;
mod param;
mod tape;

pub use error::Error;
pub use param::Param;
pub use tape::{Node, Operand, Tape};
