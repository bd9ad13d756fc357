//! Scores a contestant on exam rows: cross-entropy, probes, refusals.
