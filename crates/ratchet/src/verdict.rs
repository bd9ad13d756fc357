//! The decision, a pure function.
