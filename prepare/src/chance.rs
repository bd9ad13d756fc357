//! Randomness from the operating system, which no contestant can foresee.

use std::io;

use rand::SeedableRng;
use rand::rngs::StdRng;

use crate::manifest::hex;

/// A generator with a seed of the system's.
pub(crate) fn os_rng() -> io::Result<StdRng> {
    let mut seed = [0; 32];
    getrandom::fill(&mut seed).map_err(|e| io::Error::other(format!("no randomness: {e}")))?;
    Ok(StdRng::from_seed(seed))
}

/// 128 bits that nobody can guess, hexadecimal.
pub(crate) fn nonce() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|e| io::Error::other(format!("no randomness: {e}")))?;
    Ok(hex(&bytes))
}
