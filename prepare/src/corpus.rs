//! Reads documents from parquet shards.
