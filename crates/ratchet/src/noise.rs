//! What noise explains: σ from replicates.
