//! A candidate change: what it touches, and why it may be refused.
