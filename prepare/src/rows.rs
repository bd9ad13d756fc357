//! Fixed exam rows: BOS-aligned, context + 1 tokens each.
