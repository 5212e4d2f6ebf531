//! [`IndexTrust`]: how far the index agrees with the disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Notify;

/// How far the index agrees with the disk.
#[derive(Default)]
pub(super) struct IndexTrust {
    /// The disk was looked through since the start.
    is_compared: AtomicBool,
    /// No files are removed to make room, because recorded files are not known yet, or differ much from the disk.
    holds_removals: AtomicBool,
    /// The comparison does not rest.
    is_urgent: AtomicBool,
    hurry: Notify,
}

impl IndexTrust {
    pub(super) fn is_compared(&self) -> bool {
        self.is_compared.load(Ordering::Acquire)
    }

    /// Records that the disk was looked through.
    pub(super) fn set_compared(&self) {
        self.is_compared.store(true, Ordering::Release);
        self.hold_removals(false);
    }

    pub(super) fn holds_removals(&self) -> bool {
        self.holds_removals.load(Ordering::Acquire)
    }

    /// Sets whether files are removed to make room.
    pub(super) fn hold_removals(&self, holds: bool) {
        self.holds_removals.store(holds, Ordering::Release);
    }

    /// Lets the comparison go on at full speed.
    pub(super) fn hurry(&self) {
        self.is_urgent.store(true, Ordering::Release);
        self.hurry.notify_one();
    }

    /// Rests, unless the comparison is urgent.
    pub(super) async fn rest(&self, time: Duration) {
        if !self.is_urgent.load(Ordering::Acquire) {
            tokio::time::timeout(time, self.hurry.notified()).await.ok();
        }
    }
}
