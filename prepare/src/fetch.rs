//! Downloads shards: resume, retries, length and footer check, atomic rename.
