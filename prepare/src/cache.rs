//! Where prepared data lies, and opening it verified.
