//! Hashes of everything protected.
