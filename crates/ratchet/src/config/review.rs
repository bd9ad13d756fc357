//! `[review]`: when keeps that nobody has read are warned of, and when a run waits for that.

use serde::Deserialize;

/// `[review]`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ReviewSection {
    /// Unreviewed keeps of a tag from which on a run warns of them.
    pub warn: u64,
    /// Unreviewed keeps of a tag at which a run waits; 0 for never. When it is not said, a run waits while each
    /// of the last three nights that kept something has unreviewed keeps, and all such nights in a row back from
    /// the last have `warn` of them together. A night is the local date on which runs ended, of whatever tag.
    pub limit: Option<u64>,
}

impl Default for ReviewSection {
    fn default() -> Self {
        Self { warn: 10, limit: None }
    }
}

impl ReviewSection {
    /// Says what is wrong, with section and key.
    pub(super) fn check(&self) -> Result<(), String> {
        match self.warn {
            0 => Err("[review] warn is 0; 1 is the least, and a large number warns of nothing".to_owned()),
            _ => Ok(()),
        }
    }
}
