//! The checksum of a file that is being written: a file written from its first byte to its last in order has one when it
//! is closed, without being read again.

use digest::{Algorithm, Checksum, Running};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// A checksum in the making by one handle.
pub(crate) struct Growing {
    /// There is still hope; spares others the lock.
    alive: AtomicBool,
    state: Mutex<Option<(Running, u64)>>,
    /// Bytes that the storage has taken.
    written: AtomicU64,
}

impl Growing {
    /// Of a file that is empty now; `None` where nothing is to be computed.
    pub(crate) fn new(algorithm: Option<Algorithm>) -> Self {
        Self {
            alive: AtomicBool::new(algorithm.is_some()),
            state: Mutex::new(algorithm.map(|algorithm| (Running::new(algorithm), 0))),
            written: AtomicU64::new(0),
        }
    }

    fn state(&self) -> MutexGuard<'_, Option<(Running, u64)>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// These bytes are about to be written, or were. To be called in the order in which the client sent them. Bytes that
    /// do not follow on the last ones end it.
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

    /// So many bytes were written indeed.
    pub(crate) fn count(&self, bytes: u64) {
        self.written.fetch_add(bytes, Ordering::Release);
    }

    /// The file changes in another way.
    pub(crate) fn end(&self) {
        self.alive.store(false, Ordering::Relaxed);
        *self.state() = None;
    }

    /// The checksum of all that was written and the number of its bytes, if each was fed in order and taken.
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
        let growing = Growing::new(Some(Algorithm::Adler32));
        for (offset, bytes) in pieces {
            growing.feed(*offset, bytes);
        }
        growing.count(written);
        growing.finish().map(|(checksum, length)| (checksum.hex(), length))
    }

    #[test]
    fn only_what_was_written_in_order_and_in_full_counts() {
        let whole = Some(("091e01de".to_owned(), 9));
        assert_eq!(after(&[(0, b"1234"), (4, b"56789")], 9), whole);
        assert_eq!(after(&[(0, b"1234"), (4, b"56789")], 8), None, "a write failed");
        assert_eq!(after(&[(4, b"56789"), (0, b"1234")], 9), None);
        assert_eq!(after(&[(0, b"1234"), (3, b"456789")], 10), None);
        assert_eq!(after(&[(0, b"1234"), (5, b"6789")], 8), None);
        assert_eq!(after(&[], 0), None);
        let growing = Growing::new(Some(Algorithm::Md5));
        growing.feed(0, b"1");
        growing.count(1);
        growing.end();
        growing.feed(1, b"2");
        assert!(growing.finish().is_none());
        assert!(Growing::new(None).finish().is_none());
    }
}
