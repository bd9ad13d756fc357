//! The morning report: one night as a page (`report.html`), a picture (`progress.svg`, `progress.png`) and a
//! file for tools (`results.json`).
//!
//! Pure: what it shows stands in a [`Night`], and it knows nothing of git, journals or the disk. Every text of
//! a night is hostile, whoever wrote it.

pub mod night;

pub use night::Night;
