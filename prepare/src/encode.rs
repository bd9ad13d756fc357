//! Tokenizes a shard on all cores; documents come out in order.

use std::io;

use rayon::prelude::*;

use crate::corpus::{CorpusError, ShardReader};
use crate::profile::BOS;
use crate::progress::Task;
use crate::tokenizer::Tokenizer;

/// Why encoding failed.
#[derive(Debug, thiserror::Error)]
pub enum EncodeError {
    /// The shard cannot be read.
    #[error(transparent)]
    Corpus(#[from] CorpusError),
    /// The sink refused the tokens.
    #[error("cannot write tokens: {0}")]
    Sink(#[from] io::Error),
}

/// What a shard came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Encoded {
    /// Documents.
    pub documents: u64,
    /// Bytes of their text.
    pub text_bytes: u64,
    /// Their tokens, a BOS for each document included.
    pub tokens: u64,
}

/// Hands every document of `shard` to `sink`, in order: its ids, a BOS first.
pub fn encode_shard(
    tokenizer: &Tokenizer,
    shard: &ShardReader,
    task: &dyn Task,
    mut sink: impl FnMut(&[u16]) -> io::Result<()>,
) -> Result<Encoded, EncodeError> {
    let groups: Vec<usize> = (0..shard.row_groups()).collect();
    let mut sum = Encoded::default();
    // as many row groups at a time as there are threads: bounded memory, ordered output
    for batch in groups.chunks(rayon::current_num_threads()) {
        let encoded: Vec<_> = batch.par_iter().map(|&g| encode_group(tokenizer, shard, g)).collect();
        for group in encoded {
            let (text_bytes, documents) = group?;
            sum.text_bytes += text_bytes;
            sum.documents += documents.len() as u64;
            for ids in &documents {
                sum.tokens += ids.len() as u64;
                sink(ids)?;
            }
            task.advance(documents.len() as u64);
        }
    }
    Ok(sum)
}

/// Bytes of text, and the ids of each document behind its BOS.
fn encode_group(
    t: &Tokenizer,
    shard: &ShardReader,
    group: usize,
) -> Result<(u64, Vec<Vec<u16>>), CorpusError> {
    let documents = shard.documents(group)?;
    let text_bytes = documents.iter().map(|text| text.len() as u64).sum();
    let encode = |text: &String| {
        let mut ids = Vec::with_capacity(1 + text.len() / 3);
        ids.push(BOS);
        t.encode(text, &mut ids);
        ids
    };
    Ok((text_bytes, documents.par_iter().map(encode).collect()))
}
