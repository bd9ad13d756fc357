//! Any command line as a proposer: prompt on stdin, its edits are the diff it leaves.
