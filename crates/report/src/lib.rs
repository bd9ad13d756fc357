//! The morning report: one night as a page (`report.html`) and a picture (`progress.svg`, `progress.png`).
//!
//! Pure: what it shows stands in a [`Night`], and it knows nothing of git, journals or the disk. Every text of
//! a night is hostile, whoever wrote it.

pub mod night;

mod figures;
mod page;
mod palette;
mod png;
mod progress;
mod range;
mod room;
mod scale;
mod text;

pub use night::Night;
pub use page::{MARK, html};
pub use png::{PngError, progress_png};

/// `progress.svg`: a drawing that stands alone, for a README; light and dark, no scripts, no links.
pub fn progress_svg(night: &Night) -> String {
    progress::Drawing::svg(night, progress::Canvas::FILE)
}
