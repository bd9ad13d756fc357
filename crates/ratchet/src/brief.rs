//! What a proposer is shown.
