//! Byte-level BPE of 8,192 ids: training, tokenizer.json, encoding.
