//! Best-fit packing of documents into rows, each fit found in O(log n).
