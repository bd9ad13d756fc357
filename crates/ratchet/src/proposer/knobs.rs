//! The built-in search: moves the tunables that the source marks as knobs.
