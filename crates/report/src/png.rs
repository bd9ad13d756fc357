//! The drawing as pixels, for places that show no SVG.

use std::sync::{Arc, LazyLock};

use resvg::usvg::{self, fontdb};
use resvg::{render, tiny_skia};

use crate::Night;

/// DejaVu Sans with the characters of a Latin text and of figures; see `vendor/README.md`.
static FONT: &[u8] = include_bytes!("../vendor/plain.ttf");

static FONTS: LazyLock<Arc<fontdb::Database>> = LazyLock::new(|| {
    let mut fonts = fontdb::Database::new();
    fonts.load_font_data(FONT.to_vec());
    fonts.set_sans_serif_family("DejaVu Sans");
    Arc::new(fonts)
});

/// Pixels a unit of the drawing: sharp on a screen of twice the density.
const SCALE: f32 = 2.0;

/// Why there is no picture.
#[derive(Debug, thiserror::Error)]
pub enum PngError {
    /// The drawing is no SVG that the renderer reads.
    #[error("cannot draw progress.png: {0}")]
    Svg(#[from] usvg::Error),
    /// There is no memory for its pixels, or the encoder failed.
    #[error("cannot write progress.png: {0}")]
    Pixels(String),
}

/// `progress.png`: the drawing of [`progress_svg`](crate::progress_svg) in its light colours, 2000 × 1040 pixels.
///
/// # Errors
/// A drawing that cannot be rendered.
pub fn progress_png(night: &Night) -> Result<Vec<u8>, PngError> {
    let options = usvg::Options {
        font_family: "DejaVu Sans".to_owned(),
        fontdb: Arc::clone(&FONTS),
        ..usvg::Options::default()
    };
    let tree = usvg::Tree::from_str(&crate::progress_svg(night), &options)?;
    let size = tree.size().to_int_size().scale_by(SCALE);
    let pixels = size.and_then(|s| tiny_skia::Pixmap::new(s.width(), s.height()));
    let mut pixels = pixels.ok_or_else(|| PngError::Pixels("no memory for its pixels".to_owned()))?;
    render(&tree, tiny_skia::Transform::from_scale(SCALE, SCALE), &mut pixels.as_mut());
    pixels.encode_png().map_err(|e| PngError::Pixels(e.to_string()))
}
