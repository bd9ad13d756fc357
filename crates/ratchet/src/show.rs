//! Status, one trial, all trials, for people and tools.
