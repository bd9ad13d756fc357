//! The private exchange between driver and scorer: rows in, nonce-tagged figures out.
