//! One trial, from candidate to verdict.
