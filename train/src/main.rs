//! The contestant.
fn main() {}
