//! Bits per byte from nats and raw byte lengths.
