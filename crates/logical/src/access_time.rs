//! Access times of files on exports that purge.
//!
//! A purge removes files that were not accessed for a time. Most file systems record a read once a day at
//! most, and some record none. So the server records its opens and the ends of long uses itself.

use base::{Clock, LogicalPath};
use std::time::{Duration, UNIX_EPOCH};
use storage::{Backend, Metadata};

/// Reports whether an access to a file is to be recorded, because the last one is at least this old.
pub(crate) fn is_old(metadata: &Metadata, clock: &dyn Clock, interval: Duration) -> bool {
    let now = clock.today().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
    let idle = now.saturating_sub(metadata.accessed);
    u64::try_from(idle).is_ok_and(|idle| idle >= interval.as_secs())
}

/// Records an access to the file at a path. A failure costs the file an early purge at most.
pub(crate) fn record(backend: &dyn Backend, path: &LogicalPath) {
    if let Err(error) = backend.renew_access(path) {
        tracing::debug!(path = %path.shown(), %error, "cannot set the access time of a file");
    }
}

/// The last access to an open file that was recorded.
pub(crate) struct RecordedAccess {
    interval: Duration,
    at: Duration,
}

impl RecordedAccess {
    /// Begins with an access now.
    pub(crate) fn now(interval: Duration, clock: &dyn Clock) -> Self {
        Self { interval, at: clock.now() }
    }

    /// Reports whether the end of the use is to be recorded.
    pub(crate) fn is_old(&self, clock: &dyn Clock) -> bool {
        clock.now().saturating_sub(self.at) >= self.interval
    }
}
