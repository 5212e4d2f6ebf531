//! [`OriginVersion`]: a version of a file at its origin.

/// Age in seconds of a version that can be recognised. Times of modification have whole seconds, so a file
/// that was modified a moment ago can change again without a new time. A clock of the origin that is
/// this much behind does no harm either.
pub const VERSION_AGE_MIN: i64 = 10;

/// A version of a file at its origin. Two versions of a file differ in one of these values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OriginVersion {
    /// Size in bytes.
    pub size: u64,
    /// Time of the last modification, in seconds since the epoch.
    pub modified: i64,
    /// Identity of the file at its server, such as its inode number; 0 if the server has none.
    pub id: u64,
}

impl OriginVersion {
    /// Reports whether a change of the file after `now` would be a version that differs.
    #[must_use]
    pub const fn is_recognisable(&self, now: i64) -> bool {
        self.modified <= now.saturating_sub(VERSION_AGE_MIN)
    }
}
