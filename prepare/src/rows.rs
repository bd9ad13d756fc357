//! Fixed exam rows: BOS-aligned, context + 1 tokens each.
//!
//! On disk and on the wire a set of rows is its ids as little-endian `u16`, one row after the other, and
//! nothing else.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::profile::BOS;

/// Which held-out text: `val` decides trials, `audit` is looked at by people only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Split {
    /// Decides every trial.
    Val,
    /// Never seen by the loop; shows whether progress on val is real.
    Audit,
}

impl Split {
    /// Both splits.
    pub const ALL: [Split; 2] = [Split::Val, Split::Audit];

    /// The name used in files.
    pub fn name(self) -> &'static str {
        match self {
            Split::Val => "val",
            Split::Audit => "audit",
        }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Rows of token ids: (rows, context + 1), every row starting with BOS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rows {
    context: usize,
    ids: Vec<u16>,
}

/// Ids or bytes that are not a set of rows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RowsError {
    /// Nothing to score.
    #[error("there are no rows")]
    Empty,
    /// The end is missing, or the context is another one.
    #[error("{bytes} bytes are not a whole number of rows of {row} tokens, 2 bytes each")]
    Ragged {
        /// Bytes given.
        bytes: usize,
        /// Tokens in a row.
        row: usize,
    },
    /// A row begins inside a document.
    #[error("row {row} starts with token {id}, not with BOS ({BOS})")]
    NotAligned {
        /// Number of the row, from 0.
        row: usize,
        /// Its first id.
        id: u16,
    },
}

impl Rows {
    /// ids: (rows · (context + 1)), row after row.
    ///
    /// Errors: no rows, an incomplete row, a row that does not start with BOS.
    pub fn new(context: usize, ids: Vec<u16>) -> Result<Rows, RowsError> {
        let row = context + 1;
        if ids.is_empty() {
            return Err(RowsError::Empty);
        }
        if !ids.len().is_multiple_of(row) {
            return Err(RowsError::Ragged { bytes: ids.len() * 2, row });
        }
        if let Some(i) = ids.chunks_exact(row).position(|r| r[0] != BOS) {
            return Err(RowsError::NotAligned { row: i, id: ids[i * row] });
        }
        Ok(Rows { context, ids })
    }

    /// Reads what [`Rows::to_bytes`] wrote. Errors as [`Rows::new`].
    pub fn from_bytes(context: usize, bytes: &[u8]) -> Result<Rows, RowsError> {
        if !bytes.len().is_multiple_of(2) {
            return Err(RowsError::Ragged { bytes: bytes.len(), row: context + 1 });
        }
        Rows::new(context, bytes.chunks_exact(2).map(|b| u16::from_le_bytes([b[0], b[1]])).collect())
    }

    /// Little-endian ids, row after row.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.ids.iter().flat_map(|id| id.to_le_bytes()).collect()
    }

    /// Input tokens in a row; a row holds one more.
    pub fn context(&self) -> usize {
        self.context
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.ids.len() / (self.context + 1)
    }

    /// Never true: rows without a row cannot be built.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Row `i`: context + 1 ids. Panics when `i` is not below [`Rows::len`].
    pub fn row(&self, i: usize) -> &[u16] {
        let row = self.context + 1;
        &self.ids[i * row..(i + 1) * row]
    }

    /// The rows in order.
    pub fn iter(&self) -> std::slice::ChunksExact<'_, u16> {
        self.ids.chunks_exact(self.context + 1)
    }

    /// Every id, row after row.
    pub fn ids(&self) -> &[u16] {
        &self.ids
    }
}
