//! The `ratchet` command.
fn main() {}
