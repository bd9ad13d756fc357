//! A task without a GPU: a simulated training run over the contest's own knobs, which scores in milliseconds.
//!
//! So that a search, and what changes how it searches, can be watched and measured within seconds, on any machine
//! and without a key. `examples/sim` is the task; [`Sim`] writes it with another seed.

mod landscape;
mod settings;
mod task;

pub use landscape::{Landscape, OutOfMemory, SIGMA};
pub use settings::{FILE, START, Settings};
pub use task::{COMMAND, Sim, score};
