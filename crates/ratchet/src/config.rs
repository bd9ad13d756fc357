//! `ratchet.toml`: the task contract, parsed strictly.
