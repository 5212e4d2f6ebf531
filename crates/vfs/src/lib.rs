//! The contract between a door and the logical file system.
