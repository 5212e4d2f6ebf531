//! [`ConnectionStreams`]: the streams of a connection of HTTP/2, and the pieces of replies that their client has not taken.

use crate::served_connection::ServedConnection;
use crate::{HTTP2_REQUESTS_MAX, HTTP2_RESETS_MAX, STALL_TIME_MAX};
use bytes::Bytes;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use tokio::time::Instant;

/// The requests of one connection.
#[derive(Default)]
pub(crate) struct ConnectionStreams {
    /// Requests that a task, a reply or one of its pieces still belongs to, and some that have ended.
    streams: Mutex<Vec<Weak<ServedConnection>>>,
    /// Requests so far, and their number at the last look.
    begun: AtomicU64,
    seen: AtomicU64,
    resets: AtomicUsize,
}

impl ConnectionStreams {
    fn streams(&self) -> MutexGuard<'_, Vec<Weak<ServedConnection>>> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the state of a new request; `None` if too many are in progress. Those whose client has reset them count until
    /// their operations have ended.
    pub(crate) fn begin(&self, connection: &ServedConnection) -> Option<Arc<ServedConnection>> {
        self.begun.fetch_add(1, Ordering::Relaxed);
        let mut streams = self.streams();
        if streams.len() >= HTTP2_REQUESTS_MAX {
            streams.retain(|stream| stream.strong_count() > 0);
        }
        if streams.len() >= HTTP2_REQUESTS_MAX {
            self.count_reset();
            return None;
        }
        let stream = connection.stream();
        streams.push(Arc::downgrade(&stream));
        Some(stream)
    }

    /// Reports whether a request has come since the last call, or is in progress.
    pub(crate) fn has_requests(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        let has_come = self.seen.swap(begun, Ordering::Relaxed) != begun;
        let mut streams = self.streams();
        streams.retain(|stream| stream.strong_count() > 0);
        has_come || !streams.is_empty()
    }

    /// Reports whether the client has not taken a piece for too long.
    pub(crate) fn is_stalled(&self, now: Instant) -> bool {
        let is_stalled =
            |stream: &ServedConnection| stream.stream_state().is_some_and(|state| state.is_stalled(now));
        self.streams().iter().filter_map(Weak::upgrade).any(|stream| is_stalled(&stream))
    }

    /// Reports whether the client resets many more requests than it lets end.
    pub(crate) fn has_too_many_resets(&self) -> bool {
        self.resets.load(Ordering::Relaxed) > HTTP2_RESETS_MAX
    }

    fn count_reset(&self) {
        self.resets.fetch_add(1, Ordering::Relaxed);
    }

    fn count_whole(&self) {
        // The error means that there is none.
        let _ = self.resets.try_update(Ordering::Relaxed, Ordering::Relaxed, |resets| resets.checked_sub(1));
    }
}

/// The state of a request on a stream, beyond that of one of HTTP/1.1: the number of pieces of its reply that the library has
/// not sent, and the time of the last change by which the client has made progress.
#[derive(Default)]
pub(crate) struct StreamState(Mutex<(usize, Option<Instant>)>);

impl StreamState {
    fn change(&self, change: impl FnOnce(usize) -> usize, restarts: impl FnOnce(usize) -> bool) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if restarts(state.0) {
            state.1 = Some(Instant::now());
        }
        state.0 = change(state.0);
    }

    fn add(&self) {
        self.change(|number| number.saturating_add(1), |number| number == 0);
    }

    fn remove(&self) {
        self.change(|number| number.saturating_sub(1), |_| true);
    }

    fn is_stalled(&self, now: Instant) -> bool {
        let (number, since) = *self.0.lock().unwrap_or_else(PoisonError::into_inner);
        number > 0 && since.is_some_and(|since| now.saturating_duration_since(since) >= STALL_TIME_MAX)
    }
}

/// A piece that the library has. The request is in progress, and has its memory, until it is sent.
struct HandedPiece {
    bytes: Bytes,
    stream: Arc<ServedConnection>,
}

impl AsRef<[u8]> for HandedPiece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for HandedPiece {
    fn drop(&mut self) {
        if let Some(state) = self.stream.stream_state() {
            state.remove();
        }
    }
}

/// The end of a request: its reply is whole, or the client has reset the stream. Then its operations end.
pub(crate) struct StreamEnd {
    streams: Arc<ConnectionStreams>,
    stream: Arc<ServedConnection>,
    is_whole: bool,
}

impl StreamEnd {
    pub(crate) fn new(streams: Arc<ConnectionStreams>, stream: Arc<ServedConnection>) -> Self {
        Self { streams, stream, is_whole: false }
    }

    /// Notes that the reply is whole.
    pub(crate) fn is_whole(&mut self) {
        self.is_whole = true;
    }

    /// Returns a piece for the library.
    pub(crate) fn hand_out(&self, bytes: Bytes) -> Bytes {
        if let Some(state) = self.stream.stream_state() {
            state.add();
        }
        Bytes::from_owner(HandedPiece { bytes, stream: self.stream.clone() })
    }
}

impl Drop for StreamEnd {
    fn drop(&mut self) {
        match self.is_whole {
            true => self.streams.count_whole(),
            false => self.streams.count_reset(),
        }
        self.stream.disconnect();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_client_stalls_if_it_takes_no_piece() {
        let pieces = StreamState::default();
        let pass = tokio::time::advance;
        pass(STALL_TIME_MAX).await;
        assert!(!pieces.is_stalled(Instant::now()), "there is none");
        pieces.add();
        pieces.add();
        pass(STALL_TIME_MAX - Duration::from_secs(1)).await;
        pieces.add();
        assert!(!pieces.is_stalled(Instant::now()));
        pass(Duration::from_secs(1)).await;
        assert!(pieces.is_stalled(Instant::now()), "a further piece is no progress");
        pieces.remove();
        assert!(!pieces.is_stalled(Instant::now()), "one was taken");
        pass(STALL_TIME_MAX).await;
        assert!(pieces.is_stalled(Instant::now()));
        pieces.remove();
        pieces.remove();
        pass(STALL_TIME_MAX).await;
        assert!(!pieces.is_stalled(Instant::now()), "all were taken");
    }

    #[test]
    fn replies_make_up_for_resets() {
        let streams = ConnectionStreams::default();
        for _ in 0..2 * HTTP2_RESETS_MAX {
            streams.count_whole();
            streams.count_reset();
        }
        assert!(!streams.has_too_many_resets());
        streams.count_whole();
        (0..HTTP2_RESETS_MAX).for_each(|_| streams.count_reset());
        assert!(!streams.has_too_many_resets());
        streams.count_reset();
        assert!(streams.has_too_many_resets());
    }
}
