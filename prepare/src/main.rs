//! Prepares a profile.
fn main() {}
