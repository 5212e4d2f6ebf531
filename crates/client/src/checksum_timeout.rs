//! The timeouts of the checksum queries of a client.
//!
//! A server that computes a checksum sends nothing until it has read the whole file. A server that
//! lost the query sends nothing either, so a fixed timeout cannot distinguish both.
//!
//! After a short time the client requests the status of the path: a directory or a missing file
//! will never have a checksum. The timeout of a file covers its bytes and those of all other files
//! of the same server whose checksums this client waits for. Servers compute them one after the
//! other. Each checksum from that server restarts the timeout.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::url::Url;

/// Timeout of a file, in addition to the time for its bytes.
pub(crate) const FILE_TIME: Duration = Duration::from_secs(120);
/// Minimum rate at which a server computes checksums, in bytes per second.
const RATE: u64 = 32 * 1024 * 1024;

/// The checksums that a client waits for. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct PendingChecksums(Arc<Mutex<State>>);

/// Pending work by server, `host:port`.
type State = HashMap<String, PendingChecksumWork>;

/// The pending checksums of one server.
#[derive(Clone, Copy, Default, Debug)]
struct PendingChecksumWork {
    /// Size of the pending files whose status is known.
    bytes: u64,
    /// Time of the last checksum that the server computed.
    answered: Option<Instant>,
}

impl PendingChecksums {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the deadline of a query that was sent to a server at `begun`.
    pub(crate) fn end(&self, server: &str, begun: Instant) -> Instant {
        let work = self.state().get(server).copied().unwrap_or_default();
        let from = work.answered.map_or(begun, |answered| answered.max(begun));
        from + FILE_TIME + Duration::from_secs(work.bytes / RATE)
    }

    /// Records a checksum that a server computed.
    pub(crate) fn answered(&self, server: &str) {
        self.state().entry(server.to_owned()).or_default().answered = Some(Instant::now());
    }
}

/// Bytes of a pending checksum, subtracted on drop.
pub(crate) struct PendingBytes<'a>(&'a PendingChecksums, String, u64);

impl<'a> PendingBytes<'a> {
    pub(crate) fn new(pending: &'a PendingChecksums, server: String, bytes: u64) -> Self {
        let mut state = pending.state();
        let work = state.entry(server.clone()).or_default();
        work.bytes = work.bytes.saturating_add(bytes);
        drop(state);
        Self(pending, server, bytes)
    }
}

impl Drop for PendingBytes<'_> {
    fn drop(&mut self) {
        if let Some(work) = self.0.state().get_mut(&self.1) {
            work.bytes = work.bytes.saturating_sub(self.2);
        }
    }
}

/// The server that received the last query.
#[derive(Default, Debug)]
pub(crate) struct QueriedServer(Mutex<String>);

impl QueriedServer {
    /// Records the server of a query.
    pub(crate) fn note(&self, url: &Url) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = url.authority();
    }

    pub(crate) fn server(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_timeout_covers_all_pending_bytes_and_restarts_with_each_reply() {
        let (pending, begun) = (PendingChecksums::default(), Instant::now());
        let share = |server: &str, bytes| PendingBytes::new(&pending, server.to_owned(), bytes);
        assert_eq!(pending.end("a", begun), begun + FILE_TIME);
        let one = share("a", 100 * RATE);
        let two = share("a", 20 * RATE);
        let _elsewhere = share("b", 1000 * RATE);
        assert_eq!(pending.end("a", begun), begun + FILE_TIME + Duration::from_secs(120));
        drop(one);
        tokio::time::advance(Duration::from_secs(50)).await;
        // Replies of other servers do not count.
        pending.answered("b");
        assert_eq!(pending.end("a", begun), begun + FILE_TIME + Duration::from_secs(20));
        pending.answered("a");
        assert_eq!(pending.end("a", begun), Instant::now() + FILE_TIME + Duration::from_secs(20));
        drop(two);
        // A reply before the query does not count.
        tokio::time::advance(Duration::from_secs(50)).await;
        let later = Instant::now();
        assert_eq!(pending.end("a", later), later + FILE_TIME);
    }
}
