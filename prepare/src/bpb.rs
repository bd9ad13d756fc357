//! Bits per byte from nats and raw byte lengths.
//!
//! bpb = Σ nats / (ln 2 · Σ bytes), both sums over the target tokens whose byte length is above zero. Byte
//! lengths are those of the tokens' raw bytes: half of a two-byte character counts one byte, where a decoded
//! string would show a three-byte replacement character.

use std::cmp::Ordering;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rows::Rows;

/// A val_bpb that can be ranked: finite and above zero. Lower is better.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "f64", into = "f64")]
pub struct Bpb(f64);

/// A number that is no bits per byte.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum BpbError {
    /// NaN, infinite, zero or negative.
    #[error("{0} is no bits per byte: it must be finite and above 0")]
    Value(f64),
    /// No target counts.
    #[error("no target token has bytes: nothing to score")]
    NoBytes,
}

impl Bpb {
    /// Refuses NaN, infinity, zero and anything below.
    pub fn new(value: f64) -> Result<Bpb, BpbError> {
        if value.is_finite() && value > 0.0 { Ok(Bpb(value)) } else { Err(BpbError::Value(value)) }
    }

    /// From the nats of each row, over the targets that count, and the bytes of those targets in all rows.
    pub fn from_nats(nats: &[f64], bytes: u64) -> Result<Bpb, BpbError> {
        if bytes == 0 {
            return Err(BpbError::NoBytes);
        }
        Bpb::new(nats.iter().sum::<f64>() / (std::f64::consts::LN_2 * bytes as f64))
    }

    /// The number.
    pub fn get(self) -> f64 {
        self.0
    }
}

impl Eq for Bpb {}

impl Ord for Bpb {
    fn cmp(&self, other: &Bpb) -> Ordering {
        self.0.total_cmp(&other.0) // numeric order: there is no NaN and no zero
    }
}

impl PartialOrd for Bpb {
    fn partial_cmp(&self, other: &Bpb) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl TryFrom<f64> for Bpb {
    type Error = BpbError;

    fn try_from(value: f64) -> Result<Bpb, BpbError> {
        Bpb::new(value)
    }
}

impl From<Bpb> for f64 {
    fn from(bpb: Bpb) -> f64 {
        bpb.0
    }
}

impl fmt::Display for Bpb {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.6}", self.0)
    }
}

/// Bytes of each row's targets: (rows). A target is every token of a row but the first.
///
/// token_bytes: (vocab), raw byte length of each id. Panics when a row holds an id outside of it.
pub fn target_bytes(rows: &Rows, token_bytes: &[u8]) -> Vec<u64> {
    rows.iter().map(|row| row[1..].iter().map(|&id| u64::from(token_bytes[usize::from(id)])).sum()).collect()
}
