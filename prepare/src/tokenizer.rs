//! Byte-level BPE: trained and stored through the `tokenizers` crate, split and cached here.
//!
//! `tokenizer.json` is the standard format and carries [`SPLIT_PATTERN`], whose look-ahead needs a
//! backtracking engine. The same splits come from a plain automaton and one correction, several times as
//! fast; words repeat, so their ids are remembered. Tests hold the ids against `tokenizers` itself.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Mutex;

use regex::Regex;
use tokenizers::models::bpe::{BPE, BpeTrainer};
use tokenizers::pre_tokenizers::byte_level::ByteLevel;
use tokenizers::pre_tokenizers::sequence::Sequence;
use tokenizers::pre_tokenizers::split::{Split, SplitPattern};
use tokenizers::tokenizer::SplitDelimiterBehavior;
use tokenizers::{AddedToken, Model, ModelWrapper, Tokenizer as Standard, Trainer};

use crate::profile::{SPECIALS, SPLIT_PATTERN, TOKENIZER_CHARS, TOKENIZER_DOC_CHARS, VOCAB};

/// [`SPLIT_PATTERN`] without possessive repeats, which change nothing here since neighbouring classes are
/// disjoint, and without `\s+(?!\S)`, which [`Splitter::words`] does by hand.
const AUTOMATON: &str = concat!(
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,2}| ?[^\s\p{L}\p{N}]+[\r\n]*",
    r"|\s*[\r\n]|\s+"
);

/// Longest token: its length must fit the byte in `token_bytes.u8`.
const MOST_TOKEN_BYTES: usize = u8::MAX as usize;

/// Words longer than this are rare and not remembered.
const CACHED_WORD_BYTES: usize = 48;

/// Words remembered by each thread, some 20 MB: enough for all but the rarest words of any corpus.
const CACHED_WORDS: usize = 1 << 18;

/// Why a tokenizer cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum TokenizerError {
    /// The text is too small for the vocabulary.
    #[error("the training text yields {found} tokens, {needed} are needed; use more shards")]
    TooLittleText {
        /// Tokens that training made.
        found: usize,
        /// Tokens that the vocabulary asks for.
        needed: usize,
    },
    /// A file that is no tokenizer of this project.
    #[error("{path} is not a tokenizer prepared here: {why}")]
    Foreign {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// The `tokenizers` crate refused.
    #[error("tokenizers: {0}")]
    Library(#[source] tokenizers::Error),
}

/// Cuts text into the words that merges stay inside of.
struct Splitter(Regex);

impl Splitter {
    fn new() -> Splitter {
        Splitter(Regex::new(AUTOMATON).expect("the pattern is a constant"))
    }

    /// The words of `text`, in order; together they are `text`.
    fn words<'t>(&self, text: &'t str) -> impl Iterator<Item = &'t str> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let word = self.0.find_at(text, at)?.as_str();
            let word = &word[..word.len() - given_back(word, at + word.len() == text.len())];
            at += word.len();
            Some(word)
        })
    }
}

/// Bytes of a blank run that belong to the next word: `\s+(?!\S)` leaves the last blank before a word to
/// it, unless it is the only one.
fn given_back(word: &str, at_end: bool) -> usize {
    // only the last two alternatives end in a blank, and only the very last in one that breaks no line
    let Some(last) = word.chars().next_back().filter(|c| c.is_whitespace() && !matches!(c, '\r' | '\n'))
    else {
        return 0;
    };
    if at_end || word.len() == last.len_utf8() { 0 } else { last.len_utf8() }
}

/// GPT-2's printable stand-in for each byte, as written in `tokenizer.json`.
fn stand_ins() -> [char; 256] {
    let printable = |b: u8| matches!(b, 33..=126 | 161..=172 | 174..=255);
    let mut spare = (256..).filter_map(char::from_u32);
    std::array::from_fn(|b| match b as u8 {
        b if printable(b) => char::from(b),
        _ => spare.next().expect("there are characters above 256"),
    })
}

/// Ids by a word's bytes.
type WordIds = HashMap<Box<[u8]>, Box<[u16]>>;

/// A trained tokenizer, shared by all threads.
pub struct Tokenizer {
    standard: Standard,
    splitter: Splitter,
    stand_ins: [char; 256],
    /// Raw bytes of each id; specials have none.
    raw: Vec<Vec<u8>>,
    /// Ids of words met before: one cache a thread, so that locks are never waited for.
    caches: Vec<Mutex<WordIds>>,
}

impl Tokenizer {
    /// Trains on documents in order until [`TOKENIZER_CHARS`], each cut at [`TOKENIZER_DOC_CHARS`].
    ///
    /// Equal documents give an equal `tokenizer.json`, whatever the number of threads.
    /// Errors: too little text for the vocabulary.
    pub fn train(documents: impl Iterator<Item = String> + Send) -> Result<Tokenizer, TokenizerError> {
        let (splitter, stand_ins) = (Splitter::new(), stand_ins());
        let trained = VOCAB - SPECIALS.len();
        let mut trainer = BpeTrainer::builder()
            .vocab_size(trained)
            .initial_alphabet(stand_ins.into_iter().collect())
            .max_token_length(Some(MOST_TOKEN_BYTES + 1)) // the library's bound is exclusive
            .show_progress(false)
            .build();
        let mut left = TOKENIZER_CHARS;
        let cut = documents.map_while(|mut text| {
            let most = left.min(TOKENIZER_DOC_CHARS as u64) as usize;
            let cut = text.char_indices().nth(most).map_or(text.len(), |(at, _)| at);
            text.truncate(cut);
            left -= text.chars().count() as u64;
            (most > 0).then_some(text)
        });
        let words = |text: &str| Ok(splitter.words(text).map(|w| spell(&stand_ins, w)).collect());
        trainer.feed(cut, words).map_err(TokenizerError::Library)?;
        let mut model = BPE::default();
        trainer.train(&mut model).map_err(TokenizerError::Library)?;
        let found = model.get_vocab_size();
        if found != trained {
            return Err(TokenizerError::TooLittleText { found, needed: trained });
        }
        Tokenizer::around(standard(model)?, "the trained tokenizer")
    }

    /// Reads a `tokenizer.json` written by [`Tokenizer::to_json`].
    pub fn read(path: &Path) -> Result<Tokenizer, TokenizerError> {
        let name = path.display().to_string();
        let standard = Standard::from_file(path)
            .map_err(|e| TokenizerError::Foreign { path: name.clone(), why: e.to_string() })?;
        Tokenizer::around(standard, &name)
    }

    fn around(standard: Standard, name: &str) -> Result<Tokenizer, TokenizerError> {
        let foreign = |why: String| TokenizerError::Foreign { path: name.to_owned(), why };
        let stand_ins = stand_ins();
        let bytes: HashMap<char, u8> = stand_ins.iter().enumerate().map(|(b, &c)| (c, b as u8)).collect();
        let size = standard.get_vocab_size(true);
        if size != VOCAB {
            return Err(foreign(format!("{size} ids, not {VOCAB}")));
        }
        let mut raw = Vec::with_capacity(VOCAB);
        for id in 0..VOCAB - SPECIALS.len() {
            let token = standard.id_to_token(id as u32).ok_or_else(|| foreign(format!("no id {id}")))?;
            let token: Option<Vec<u8>> = token.chars().map(|c| bytes.get(&c).copied()).collect();
            let token = token.filter(|t| !t.is_empty() && t.len() <= MOST_TOKEN_BYTES);
            let odd = || foreign(format!("id {id} is no run of 1 to {MOST_TOKEN_BYTES} bytes"));
            raw.push(token.ok_or_else(odd)?);
        }
        for special in SPECIALS {
            if standard.token_to_id(special) != Some(raw.len() as u32) {
                return Err(foreign(format!("`{special}` is not id {}", raw.len())));
            }
            raw.push(Vec::new());
        }
        let caches = (0..=rayon::current_num_threads()).map(|_| Mutex::default()).collect();
        Ok(Tokenizer { standard, splitter: Splitter::new(), stand_ins, raw, caches })
    }

    /// Appends the ids of `text` to `ids`. No BOS is added, and a special's name in the text is just text.
    pub fn encode(&self, text: &str, ids: &mut Vec<u16>) {
        // threads outside the pool share the last cache
        let own = rayon::current_thread_index().unwrap_or(usize::MAX).min(self.caches.len() - 1);
        let mut cache = self.caches[own].lock().expect("no holder panics");
        for word in self.splitter.words(text) {
            if let Some(known) = cache.get(word.as_bytes()) {
                ids.extend_from_slice(known);
                continue;
            }
            let fresh = self.merge(word);
            ids.extend_from_slice(&fresh);
            if word.len() <= CACHED_WORD_BYTES && cache.len() < CACHED_WORDS {
                cache.insert(word.as_bytes().into(), fresh.into());
            }
        }
    }

    /// The ids of one word, by the library's merges.
    fn merge(&self, word: &str) -> Vec<u16> {
        let tokens = self.standard.get_model().tokenize(&spell(&self.stand_ins, word));
        tokens.expect("every byte has a token").iter().map(|t| t.id as u16).collect()
    }

    /// The bytes that `ids` stand for; specials stand for none. Not always UTF-8: a token may end inside a
    /// character. Panics on an id outside the vocabulary.
    pub fn decode(&self, ids: &[u16]) -> Vec<u8> {
        ids.iter().flat_map(|&id| &self.raw[usize::from(id)]).copied().collect()
    }

    /// Byte length of each id's raw bytes, 0 for specials: (vocab).
    pub fn token_bytes(&self) -> Vec<u8> {
        self.raw.iter().map(|raw| raw.len() as u8).collect() // checked when the tokens were read
    }

    /// The standard `tokenizer.json`.
    pub fn to_json(&self) -> Result<String, TokenizerError> {
        self.standard.to_string(true).map_err(TokenizerError::Library)
    }
}

fn spell(stand_ins: &[char; 256], word: &str) -> String {
    word.bytes().map(|b| stand_ins[usize::from(b)]).collect()
}

/// The trained model as other programs load it: pattern, byte level, specials.
fn standard(model: BPE) -> Result<Standard, TokenizerError> {
    let mut standard = Standard::new(ModelWrapper::BPE(model));
    let split =
        Split::new(SplitPattern::Regex(SPLIT_PATTERN.into()), SplitDelimiterBehavior::Isolated, false)
            .map_err(TokenizerError::Library)?;
    let bytes = ByteLevel::new(false, false, false);
    standard.with_pre_tokenizer(Some(Sequence::new(vec![split.into(), bytes.into()])));
    standard.with_decoder(Some(bytes));
    let specials = SPECIALS.map(|name| AddedToken::from(name, true));
    standard.add_special_tokens(specials).map_err(TokenizerError::Library)?;
    Ok(standard)
}
