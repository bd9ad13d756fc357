//! Tokenizes shards once, in parallel, into memory-mapped u16 files.
