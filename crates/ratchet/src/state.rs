//! `.ratchet/`: paths, current tag, lock.
