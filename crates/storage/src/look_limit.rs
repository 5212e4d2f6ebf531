//! Limits on the lookups that wait for one file system, so that those for a hung disk do not use up
//! memory and queue space.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of names that wait for one file system.
pub const LOOKS_MAX: usize = 16_384;

/// Maximum total length of these names, in bytes.
pub const LOOK_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Counts the names that wait for one file system.
#[derive(Default)]
pub struct LookLimit {
    waiting: Mutex<ReservedLooks>,
}

#[derive(Clone, Copy, Default)]
struct ReservedLooks {
    names: usize,
    bytes: usize,
}

/// A permit for a number of names; released when dropped.
pub struct LookPermit {
    limit: Arc<LookLimit>,
    taken: ReservedLooks,
}

impl LookLimit {
    /// Takes a permit for this number of names with this total length; `None` if that exceeds a
    /// limit.
    pub fn take(self: &Arc<Self>, names: usize, bytes: usize) -> Option<LookPermit> {
        let mut waiting = self.lock();
        let sum = ReservedLooks { names: waiting.names + names, bytes: waiting.bytes + bytes };
        if sum.names > LOOKS_MAX || sum.bytes > LOOK_BYTES_MAX {
            return None;
        }
        *waiting = sum;
        Some(LookPermit { limit: self.clone(), taken: ReservedLooks { names, bytes } })
    }

    fn lock(&self) -> MutexGuard<'_, ReservedLooks> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LookPermit {
    fn drop(&mut self) {
        let mut waiting = self.limit.lock();
        waiting.names -= self.taken.names;
        waiting.bytes -= self.taken.bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_limited_by_number_and_by_bytes() {
        for (names, bytes, fit) in [(16, 16, LOOKS_MAX / 16), (1, 4096, LOOK_BYTES_MAX / 4096)] {
            let limit = Arc::new(LookLimit::default());
            let mut permits: Vec<LookPermit> = std::iter::from_fn(|| limit.take(names, bytes)).collect();
            assert_eq!(permits.len(), fit);
            permits.pop();
            assert!(limit.take(names, bytes).is_some());
            drop(permits);
            let waiting = limit.lock();
            assert_eq!((waiting.names, waiting.bytes), (0, 0));
        }
    }
}
