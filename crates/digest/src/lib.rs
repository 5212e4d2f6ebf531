//! Checksums as running state, and page checksums.
