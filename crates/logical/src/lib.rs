//! Logical files: handles, locks, persist on successful close, checkpoints, checksums.
