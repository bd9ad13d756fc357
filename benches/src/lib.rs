//! Benchmarks: each prints a ratio against something named, on the same input in the same run.

pub mod agreement;
pub mod peer;
pub mod spans;
