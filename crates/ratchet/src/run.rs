//! The overnight loop and its stop rules.
