//! Training batches of any B and T from the token file.

use candle_core::{Device, Error, Result};

use crate::trial::Batch;

/// Endless batches, deterministic for a seed.
pub struct Loader {}

impl Loader {
    /// The next `b` rows of `t` tokens.
    pub fn next(&mut self, b: usize, t: usize, _device: &Device) -> Result<Batch> {
        Err(Error::msg(format!("no batch of {b} x {t}")))
    }
}
