//! Builds a candidate in the worktree’s own target directory.
