//! What noise explains: σ from replicates.

use serde::{Deserialize, Serialize};

/// The spread of one run's value between seeds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Noise {
    /// Standard deviation of one run; `None` while it is neither stated nor measured.
    pub sigma: Option<f64>,
    /// Degrees of freedom behind a measured σ; 0 when stated or unknown.
    pub freedom: u32,
}
