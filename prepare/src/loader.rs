//! Training batches of any B and T from the token file.
