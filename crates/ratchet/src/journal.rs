//! The append-only, fsynced record that is the truth.
