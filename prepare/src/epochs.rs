//! The endless order in which training documents enter the packer.

use std::sync::Arc;

use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand::{RngExt, SeedableRng};

use crate::cache::TokenFile;
use crate::pack::{self, Span};

/// Every document once an epoch, for ever. A clone goes on from the same place.
///
/// `full` reads its documents, which were shuffled when the shards were made, in shard order from a start
/// that the seed decides. The other profiles cut documents into pieces; neighbouring pieces are of one
/// text, so each epoch has a shuffled order, again decided by the seed.
#[derive(Debug, Clone)]
pub(crate) struct Epochs {
    corpus: Arc<TokenFile>,
    seed: u64,
    order: Order,
    /// Position in the epoch's order.
    at: usize,
    /// Epochs begun.
    epoch: u64,
}

#[derive(Debug, Clone)]
enum Order {
    Documents {
        start: usize,
    },
    /// Pieces of at most `most` tokens, BOS included; the length holds from the next epoch on.
    Pieces {
        most: usize,
        shuffled: Arc<[Span]>,
    },
}

impl Epochs {
    /// Whole documents, or pieces of at most `pieces` ≥ 2 tokens.
    pub(crate) fn new(corpus: Arc<TokenFile>, seed: u64, pieces: Option<usize>) -> Epochs {
        let order = match pieces {
            None => {
                let documents = corpus.docs().len() - 1;
                Order::Documents { start: rng(seed, 0).random_range(0..documents) }
            }
            Some(most) => Order::Pieces { most, shuffled: Arc::from([]) },
        };
        Epochs { corpus, seed, order, at: 0, epoch: 0 }
    }

    /// Tokens of an epoch, counting one BOS a document (pieces have a few more).
    pub(crate) fn tokens(&self) -> u64 {
        self.corpus.tokens().len() as u64
    }

    /// Cuts pieces of at most `most` ≥ 2 tokens from the next epoch on; whole documents stay whole.
    pub(crate) fn set_piece(&mut self, length: usize) {
        if let Order::Pieces { most, .. } = &mut self.order {
            *most = length;
        }
    }

    fn document(&self, i: usize) -> Span {
        let docs = self.corpus.docs();
        Span { start: docs[i] + 1, len: (docs[i + 1] - docs[i] - 1) as u32 }
    }

    fn documents(&self) -> usize {
        self.corpus.docs().len() - 1
    }
}

impl Iterator for Epochs {
    type Item = Span;

    fn next(&mut self) -> Option<Span> {
        let units = match &self.order {
            Order::Documents { .. } => self.documents(),
            Order::Pieces { shuffled, .. } => shuffled.len(),
        };
        if self.epoch == 0 || self.at == units {
            self.at = 0;
            if let Order::Pieces { most, .. } = self.order {
                let mut pieces: Vec<Span> = pack::pieces(pack::documents(self.corpus.docs()), most).collect();
                pieces.shuffle(&mut rng(self.seed, self.epoch));
                self.order = Order::Pieces { most, shuffled: pieces.into() };
            }
            self.epoch += 1;
        }
        let i = self.at;
        self.at += 1;
        Some(match &self.order {
            Order::Pieces { shuffled, .. } => shuffled[i],
            Order::Documents { start } => self.document((start + i) % self.documents()),
        })
    }
}

/// A generator for one epoch: the same for a seed, whatever was drawn before.
fn rng(seed: u64, epoch: u64) -> StdRng {
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..16].copy_from_slice(&epoch.to_le_bytes());
    StdRng::from_seed(bytes)
}
