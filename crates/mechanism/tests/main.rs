//! Scripts in real child processes.

mod builtin;

use mechanism::Child;

/// The child alone, as this crate builds it.
fn child() -> Child {
    Child { program: env!("CARGO_BIN_EXE_mechanism").into(), arguments: Vec::new() }
}
