//! The live view of a night: draws a [`Scene`] on a terminal of any size, and says what a key asks for.
//!
//! Pure: it reads no file, starts nothing, and knows nothing of journals. Texts of a scene are hostile, whoever
//! wrote them; who fills it takes out what could steer a terminal.

mod chart;
mod draw;
mod header;
mod keys;
mod now;
pub mod scene;
#[cfg(test)]
mod tests;
mod theme;
mod trials;
mod words;

pub use draw::draw;
pub use keys::{Action, Ui};
pub use scene::Scene;
pub use theme::Theme;
pub use words::span;
