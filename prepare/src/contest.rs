//! The contest protocol: `fit` and `score` as separate processes.
