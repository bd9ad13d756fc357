//! What this machine can do, checked by trying.
