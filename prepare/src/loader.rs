//! Training batches of any B and T from the token file.
//!
//! A background thread packs ahead while the device computes. It never decides anything: each batch carries
//! the packer's state after it, and when the contestant asks for another shape, what was packed ahead is
//! thrown away and packing goes on from the state after the last batch that was handed out. The batches are
//! therefore a function of seed and shapes alone, and no document is lost to a change of shape.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use candle_core::{Device, Error, Result, Tensor};

use crate::cache::TokenFile;
use crate::epochs::Epochs;
use crate::pack::{self, Packer};
use crate::profile::{BOS, Spec};
use crate::trial::Batch;

/// Batches packed ahead: one that waits while the next is made.
const AHEAD: usize = 1;

/// Endless batches, deterministic for a seed.
pub struct Loader {
    corpus: Arc<TokenFile>,
    context: usize,
    /// State after the last batch handed out.
    packer: Packer<Epochs>,
    ahead: Option<Ahead>,
}

struct Ahead {
    shape: (usize, usize),
    batches: Receiver<Packed>,
}

struct Packed {
    x: Vec<u32>,
    y: Vec<u32>,
    after: Packer<Epochs>,
}

impl Loader {
    /// Batches of the training documents `corpus` in the order that `seed` decides.
    pub fn new(corpus: TokenFile, spec: &Spec, seed: u64) -> Loader {
        let corpus = Arc::new(corpus);
        let pieces = spec.pieces.then_some(spec.row_len());
        let epochs = Epochs::new(Arc::clone(&corpus), seed, pieces);
        Loader { corpus, context: spec.context, packer: Packer::new(epochs, spec.row_len()), ahead: None }
    }

    /// The next `b` rows of `t` inputs and their targets, on `device`.
    ///
    /// Errors: `b` or `t` is 0; the device has no room.
    pub fn next(&mut self, b: usize, t: usize, device: &Device) -> Result<Batch> {
        if b == 0 || t == 0 {
            return Err(Error::msg(format!("a batch of {b} rows of {t} tokens holds nothing")));
        }
        let ahead = match self.ahead.take() {
            Some(ahead) if ahead.shape == (b, t) => ahead,
            _ => self.pack_ahead(b, t)?,
        };
        let lost = |_| Error::msg("the thread that packs batches has died; its message is above");
        let Packed { x, y, after } = ahead.batches.recv().map_err(lost)?;
        self.packer = after;
        self.ahead = Some(ahead);
        Ok(Batch { x: Tensor::from_vec(x, (b, t), device)?, y: Tensor::from_vec(y, (b, t), device)? })
    }

    /// Tokens cut off so far where a document was cropped to fill a row.
    pub fn cropped_tokens(&self) -> u64 {
        self.packer.tally().cropped
    }

    /// How often the training text went by so far, e.g. 0.2 for a fifth of it.
    pub fn epochs(&self) -> f64 {
        let tally = self.packer.tally();
        (tally.placed + tally.cropped) as f64 / self.packer.source().tokens() as f64
    }

    fn pack_ahead(&self, b: usize, t: usize) -> io::Result<Ahead> {
        let (sender, batches) = sync_channel(AHEAD);
        let mut packer = self.packer.clone();
        packer.set_row_len(t + 1);
        // a piece longer than a row would always be cropped; a longer one than the exam's rows is unheard of
        packer.source_mut().set_piece(t.min(self.context) + 1);
        let corpus = Arc::clone(&self.corpus);
        std::thread::Builder::new()
            .name("loader".into())
            .spawn(move || pack_batches(packer, &corpus, (b, t), &sender))?;
        Ok(Ahead { shape: (b, t), batches })
    }
}

/// Packs until nobody wants any more.
fn pack_batches(
    mut packer: Packer<Epochs>,
    corpus: &TokenFile,
    (b, t): (usize, usize),
    sender: &SyncSender<Packed>,
) {
    let mut spans = Vec::new();
    let mut row = vec![0; t + 1];
    loop {
        let (mut x, mut y) = (Vec::with_capacity(b * t), Vec::with_capacity(b * t));
        for _ in 0..b {
            let full = packer.next_row(&mut spans);
            assert!(full, "an endless source fills every row");
            pack::write_row(&spans, corpus.tokens(), BOS, &mut row);
            x.extend(row[..t].iter().map(|&id| u32::from(id)));
            y.extend(row[1..].iter().map(|&id| u32::from(id)));
        }
        if sender.send(Packed { x, y, after: packer.clone() }).is_err() {
            return;
        }
    }
}
