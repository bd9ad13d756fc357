//! Prepares a profile whole: fetch, tokenizer, tokens, exam rows, manifest.
