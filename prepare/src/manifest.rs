//! What a prepared profile holds, each file with its SHA-256.
