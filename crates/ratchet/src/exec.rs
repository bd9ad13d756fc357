//! Runs untrusted commands: own session, time limits, every descendant ended.
