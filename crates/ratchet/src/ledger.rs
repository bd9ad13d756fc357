//! `results.tsv`, a projection of the journal.
