//! Every op against its reference in f64, forward and backward, on odd sizes, strides and offsets.

mod adamw;
mod attention;
mod determinism;
mod elementwise;
mod embedding;
mod head;
mod linear;
mod muon;
mod oracle;
mod refusals;
