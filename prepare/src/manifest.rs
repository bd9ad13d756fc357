//! `manifest.json`: what a prepared profile holds, from what, by which recipe, with a SHA-256 of each file.
//!
//! It is written last and holds no time or path of this machine: equal data has an equal manifest.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::pack::BUFFER_DOCS;
use crate::profile::{self, Corpus, Profile};

/// Everything in this program that decides what the prepared files hold. A manifest with another recipe
/// is stale.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // each is the constant of its name, documented there
pub struct Recipe {
    pub data_version: u32,
    pub bundled_sha256: Option<Vec<String>>,
    pub vocab: usize,
    pub specials: Vec<String>,
    pub split_pattern: String,
    pub tokenizer_doc_chars: usize,
    pub tokenizer_chars: u64,
    pub context: usize,
    pub pieces: bool,
    pub buffer_docs: usize,
    pub val_shard: u32,
    pub val_tokens: usize,
    pub audit_shard: u32,
    pub audit_tokens: usize,
}

impl Recipe {
    /// The recipe this program would prepare `profile` by.
    pub fn of(profile: Profile) -> Recipe {
        let spec = profile.spec();
        Recipe {
            data_version: profile::DATA_VERSION,
            bundled_sha256: (spec.corpus == Corpus::Bundled)
                .then(|| profile::BUNDLED_SHA256.map(String::from).to_vec()),
            vocab: spec.vocab,
            specials: profile::SPECIALS.map(String::from).to_vec(),
            split_pattern: profile::SPLIT_PATTERN.to_owned(),
            tokenizer_doc_chars: profile::TOKENIZER_DOC_CHARS,
            tokenizer_chars: profile::TOKENIZER_CHARS,
            context: spec.context,
            pieces: spec.pieces,
            buffer_docs: BUFFER_DOCS,
            val_shard: spec.val_shard,
            val_tokens: spec.val_tokens,
            audit_shard: spec.audit_shard,
            audit_tokens: spec.audit_tokens,
        }
    }
}

/// A shard of text that went in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shard {
    /// Number of the shard; its file is `shard_NNNNN.parquet`.
    pub shard: u32,
    /// Size of the parquet file.
    pub file_bytes: u64,
    /// SHA-256 of the parquet file, hexadecimal.
    pub sha256: String,
    /// Documents in it.
    pub documents: u64,
    /// Bytes of their text.
    pub text_bytes: u64,
    /// Tokens of their text, a BOS for each document included.
    pub tokens: u64,
}

/// The counts of an exam's rows. Tokens include each document's BOS.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Exam {
    /// Rows of context + 1 tokens.
    pub rows: u64,
    /// Target tokens: rows · context. Fewer than the recipe's where the shard holds no more.
    pub tokens: u64,
    /// Tokens cut off where a document was cropped to fill a row.
    pub cropped: u64,
}

/// A prepared file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Path below the profile's directory, with `/`.
    pub path: String,
    /// Size of the file.
    pub bytes: u64,
    /// SHA-256 of the file, hexadecimal.
    pub sha256: String,
}

/// What `manifest.json` says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The profile prepared.
    pub profile: Profile,
    /// What decided the content.
    pub recipe: Recipe,
    /// Training shards, in reading order.
    pub train: Vec<Shard>,
    /// The shard val rows come from.
    pub val_source: Shard,
    /// The shard audit rows come from.
    pub audit_source: Shard,
    /// Counts of `exam/val.u16`.
    pub val: Exam,
    /// Counts of `exam/audit.u16`.
    pub audit: Exam,
    /// Every prepared file.
    pub files: Vec<Entry>,
}

impl Manifest {
    /// SHA-256 of the manifest, hexadecimal: names the data in a trial's records.
    pub fn fingerprint(&self) -> String {
        hex(&Sha256::digest(self.to_json()))
    }

    /// Training documents, over all shards.
    pub fn train_documents(&self) -> u64 {
        self.train.iter().map(|s| s.documents).sum()
    }

    /// Training tokens, over all shards, a BOS for each document included.
    pub fn train_tokens(&self) -> u64 {
        self.train.iter().map(|s| s.tokens).sum()
    }

    /// The file's text.
    pub fn to_json(&self) -> String {
        let mut text = serde_json::to_string_pretty(self).expect("a manifest holds only strings and numbers");
        text.push('\n');
        text
    }
}

/// SHA-256 of a file's content, hexadecimal.
pub fn sha256_file(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hash = Sha256::new();
    let mut chunk = vec![0; 1 << 20];
    loop {
        match file.read(&mut chunk)? {
            0 => return Ok(hex(&hash.finalize())),
            n => hash.update(&chunk[..n]),
        }
    }
}

/// Lower-case hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
