//! A source tree as tokens, so that comments and spacing do not count as a change.
