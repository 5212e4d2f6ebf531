//! The body of the reply to COPY: markers about the progress, and the line with the result.

use super::{RemotePeer, ReplySender};
use bytes::Bytes;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use tokio::task::JoinHandle;

/// Interval between markers.
const MARKER_TIME: Duration = Duration::from_secs(5);

/// Maximum length of the text of a failure.
const TEXT_CHARS_MAX: usize = 2000;

/// The progress of a copy.
#[derive(Default)]
pub(super) struct CopyProgress {
    bytes: Mutex<ByteCounter>,
    peer: RemotePeer,
}

/// The bytes of one attempt to copy the file.
#[derive(Clone, Default)]
pub(super) struct ByteCounter(Arc<AtomicU64>);

impl ByteCounter {
    pub(super) fn add(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl CopyProgress {
    fn counter(&self) -> MutexGuard<'_, ByteCounter> {
        self.bytes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.counter().0.load(Ordering::Relaxed)
    }

    pub(super) fn add(&self, bytes: u64) {
        self.counter().add(bytes);
    }

    /// Begins at the first byte again. Bytes that the earlier attempt still counts do not count for this one.
    pub(super) fn restart(&self) -> ByteCounter {
        let new = ByteCounter::default();
        *self.counter() = new.clone();
        new
    }

    /// Returns the address of the remote server, which is recorded there.
    pub(super) fn peer(&self) -> RemotePeer {
        self.peer.clone()
    }

    fn marker(&self) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        marker(now.as_secs(), self.bytes(), self.peer.get())
    }

    /// Returns the last marker and the line with the result.
    pub(super) fn end(&self, result: Result<(), String>) -> String {
        let marker = self.marker();
        match result {
            Ok(()) => format!("{marker}success: Created\n"),
            Err(text) => format!("{marker}failure: {}\n", one_line(&text)),
        }
    }
}

/// The task that sends markers. It ends on drop.
pub(super) struct Markers(JoinHandle<()>);

impl Markers {
    /// Sends markers at intervals.
    pub(super) fn start(progress: Arc<CopyProgress>, to: ReplySender) -> Self {
        Self(tokio::spawn(async move {
            loop {
                tokio::time::sleep(MARKER_TIME).await;
                if to.send(Ok(Bytes::from(progress.marker()))).await.is_err() {
                    return;
                }
            }
        }))
    }

    /// Waits until no marker is sent any longer.
    pub(super) async fn stop(mut self) {
        self.0.abort();
        // It was aborted, or had ended before.
        let _ = (&mut self.0).await;
    }
}

impl Drop for Markers {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns a marker. Source: protocol/http.md, section 7.
fn marker(seconds: u64, bytes: u64, peer: Option<SocketAddr>) -> String {
    let connections = peer.map(|peer| match peer.ip().to_canonical() {
        IpAddr::V4(address) => format!("RemoteConnections: tcp:{address}:{}\n", peer.port()),
        IpAddr::V6(address) => format!("RemoteConnections: tcp:[{address}]:{}\n", peer.port()),
    });
    format!(
        "Perf Marker\nTimestamp: {seconds}\nStripe Index: 0\nStripe Bytes Transferred: {bytes}\n\
         Total Stripe Count: 1\n{}End\n",
        connections.unwrap_or_default()
    )
}

/// Returns a text as one line. A remote server must not add lines to the reply, of which the last one tells
/// the result.
pub(super) fn one_line(text: &str) -> String {
    let shown = |c: char| if c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') { ' ' } else { c };
    text.chars().take(TEXT_CHARS_MAX).map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markers_have_the_documented_lines() {
        let head = "Perf Marker\nTimestamp: 1795189756\nStripe Index: 0\nStripe Bytes Transferred: 5000000\n\
                    Total Stripe Count: 1\n";
        assert_eq!(marker(1_795_189_756, 5_000_000, None), format!("{head}End\n"));
        for (peer, shown) in [
            ("127.0.0.1:24011", "tcp:127.0.0.1:24011"),
            ("[::ffff:127.0.0.1]:24011", "tcp:127.0.0.1:24011"),
            ("[2001:db8::1]:443", "tcp:[2001:db8::1]:443"),
        ] {
            let text = marker(1_795_189_756, 5_000_000, Some(peer.parse().unwrap()));
            assert_eq!(text, format!("{head}RemoteConnections: {shown}\nEnd\n"));
        }
    }

    #[test]
    fn an_earlier_attempt_does_not_count() {
        let progress = CopyProgress::default();
        let first = progress.restart();
        first.add(5);
        assert_eq!(progress.bytes(), 5);
        let second = progress.restart();
        first.add(5);
        assert_eq!(progress.bytes(), 0);
        second.add(7);
        assert_eq!(progress.bytes(), 7);
    }

    #[test]
    fn a_failure_is_one_line() {
        let progress = CopyProgress::default();
        progress.add(7);
        assert!(
            progress
                .end(Ok(()))
                .ends_with("Stripe Bytes Transferred: 7\nTotal Stripe Count: 1\nEnd\nsuccess: Created\n")
        );
        let failed = progress.end(Err("no\r\nsuccess: Created\u{2028}".to_owned()));
        assert_eq!(failed.lines().last(), Some("failure: no  success: Created "));
        assert_eq!(one_line(&"a".repeat(3000)).len(), TEXT_CHARS_MAX);
    }
}
