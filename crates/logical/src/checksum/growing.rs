//! The running checksum of a file that is being written.
//!
//! A file that is written in order from its first byte to its last has its checksum at the close,
//! without another read.

use digest::{Algorithm, Checksum, RunningChecksum};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The running checksum of one open file.
pub(crate) struct GrowingChecksum {
    /// Set while the checksum can still succeed; avoids the lock otherwise.
    alive: AtomicBool,
    state: Mutex<Option<(RunningChecksum, u64)>>,
    /// Number of bytes that the storage has written.
    written: AtomicU64,
}

impl GrowingChecksum {
    /// Starts the checksum of an empty file; `None` if none is to be computed.
    pub(crate) fn new(algorithm: Option<Algorithm>) -> Self {
        Self {
            alive: AtomicBool::new(algorithm.is_some()),
            state: Mutex::new(algorithm.map(|algorithm| (RunningChecksum::new(algorithm), 0))),
            written: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<(RunningChecksum, u64)>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds bytes that are about to be written, or were written. To be called in the order in which
    /// the client sent them. A gap or overlap ends the running checksum.
    pub(crate) fn feed(&self, offset: u64, bytes: &[u8]) {
        if !self.alive.load(Ordering::Relaxed) {
            return;
        }
        let mut state = self.state();
        match state.as_mut() {
            Some((running, position)) if *position == offset => {
                running.update(bytes);
                *position += bytes.len() as u64;
            }
            _ => {
                *state = None;
                self.alive.store(false, Ordering::Relaxed);
            }
        }
    }

    /// Counts bytes that were written successfully.
    pub(crate) fn count(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Release);
    }

    /// Ends the running checksum, because the file changes in another way.
    pub(crate) fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
        *self.state() = None;
    }

    /// Returns the checksum of all bytes and their number, if all of them were fed in order and
    /// written.
    pub(crate) fn finish(&self) -> Option<(Checksum, u64)> {
        let (running, position) = self.state().take()?;
        let complete = position > 0 && position == self.written.load(Ordering::Acquire);
        complete.then(|| (running.finish(), position))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(pieces: &[(u64, &[u8])], written: u64) -> Option<(String, u64)> {
        let growing = GrowingChecksum::new(Some(Algorithm::Adler32));
        for (offset, bytes) in pieces {
            growing.feed(*offset, bytes);
        }
        growing.count(written);
        growing.finish().map(|(checksum, length)| (checksum.hex(), length))
    }

    #[test]
    fn only_complete_writes_in_order_yield_a_checksum() {
        let whole = Some(("091e01de".to_owned(), 9));
        assert_eq!(after(&[(0, b"1234"), (4, b"56789")], 9), whole);
        assert_eq!(after(&[(0, b"1234"), (4, b"56789")], 8), None, "a write failed");
        assert_eq!(after(&[(4, b"56789"), (0, b"1234")], 9), None);
        assert_eq!(after(&[(0, b"1234"), (3, b"456789")], 10), None);
        assert_eq!(after(&[(0, b"1234"), (5, b"6789")], 8), None);
        assert_eq!(after(&[], 0), None);
        let growing = GrowingChecksum::new(Some(Algorithm::Md5));
        growing.feed(0, b"1");
        growing.count(1);
        growing.end();
        growing.feed(1, b"2");
        assert!(growing.finish().is_none());
        assert!(GrowingChecksum::new(None).finish().is_none());
    }
}
