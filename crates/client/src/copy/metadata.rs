//! Metadata of a file that a copy preserves.

/// Times and permission bits that a copy preserves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct PreservedMetadata {
    /// Seconds since the epoch, and nanoseconds if the source has them.
    pub(super) modified: (i64, u32),
    pub(super) accessed: (i64, u32),
    pub(super) mode: Option<u32>,
}
