//! The only room that touches git.
