//! The summary block, MFU and peak memory.
