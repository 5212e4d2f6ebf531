//! [`ConnectionActivity`]: whether a connection is idle, so that its buffers can be freed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

/// What happens on a connection. Its stream and its requests report it; the task of the connection looks at it.
#[derive(Debug)]
pub(crate) struct ConnectionActivity {
    /// Requests whose reply has not been handed over.
    in_progress: AtomicUsize,
    /// Bytes have arrived for a next request. It is also set before the first one.
    head_arrives: AtomicBool,
    /// Bytes of a reply wait for the client.
    write_waits: AtomicBool,
    /// Bytes that were handed to the network so far.
    sent: AtomicU64,
    /// Number of reads, of writes that waited, and of ends of requests so far.
    events: AtomicU64,
}

impl ConnectionActivity {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            in_progress: AtomicUsize::new(0),
            head_arrives: AtomicBool::new(true),
            write_waits: AtomicBool::new(false),
            sent: AtomicU64::new(0),
            events: AtomicU64::new(0),
        })
    }

    /// Notes bytes of the client.
    pub(crate) fn read(&self) {
        if self.in_progress.load(Ordering::Relaxed) == 0 {
            self.head_arrives.store(true, Ordering::Relaxed);
        }
        self.event();
    }

    /// Notes that a number of bytes was sent, and whether further ones wait for the client. A flush without bytes is no
    /// event.
    pub(crate) fn write(&self, bytes: usize, waits: bool) {
        self.sent.fetch_add(u64::try_from(bytes).unwrap_or_default(), Ordering::Relaxed);
        let waited = self.write_waits.load(Ordering::Relaxed);
        if waits || waited {
            self.write_waits.store(waits, Ordering::Relaxed);
            self.event();
        }
    }

    fn event(&self) {
        self.events.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of bytes that were sent so far.
    pub(crate) fn sent_so_far(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Returns that number if no further byte waits for the client.
    pub(crate) fn sent(&self) -> Option<u64> {
        (!self.write_waits.load(Ordering::Relaxed)).then(|| self.sent_so_far())
    }

    /// Notes a request, until the value is dropped.
    pub(crate) fn request(self: &Arc<Self>) -> RequestInProgress {
        self.in_progress.fetch_add(1, Ordering::Relaxed);
        self.head_arrives.store(false, Ordering::Relaxed);
        RequestInProgress(self.clone())
    }

    /// Has the connection count as not idle until its next request has ended.
    pub(crate) fn stay(&self) {
        self.head_arrives.store(true, Ordering::Relaxed);
    }

    /// Reports whether nothing has happened since the last look, and nothing is under way.
    pub(crate) fn is_idle(&self, last_look: &mut u64) -> bool {
        let events = self.events.load(Ordering::Relaxed);
        let is_unchanged = std::mem::replace(last_look, events) == events;
        is_unchanged
            && self.in_progress.load(Ordering::Relaxed) == 0
            && !self.head_arrives.load(Ordering::Relaxed)
            && !self.write_waits.load(Ordering::Relaxed)
    }
}

/// A request whose reply has not been handed over yet.
#[must_use = "the request ends on drop"]
pub(crate) struct RequestInProgress(Arc<ConnectionActivity>);

impl Drop for RequestInProgress {
    fn drop(&mut self) {
        self.0.in_progress.fetch_sub(1, Ordering::Relaxed);
        self.0.event();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_idle_between_requests_only() {
        let activity = ConnectionActivity::new();
        let mut look = 0;
        let mut is_idle = || activity.is_idle(&mut look);
        assert!(![is_idle(), is_idle()].contains(&true), "no request has come yet");
        activity.read();
        let request = activity.request();
        activity.read();
        assert!(![is_idle(), is_idle()].contains(&true), "a request is in progress");
        activity.write(1, true);
        drop(request);
        assert!(![is_idle(), is_idle()].contains(&true), "its reply waits for the client");
        activity.write(2, false);
        assert_eq!([is_idle(), is_idle()], [false, true], "a look later nothing has happened");
        activity.read();
        assert!(![is_idle(), is_idle()].contains(&true), "the next request arrives");
        drop(activity.request());
        assert_eq!([is_idle(), is_idle()], [false, true]);
        activity.write(0, false);
        assert!(is_idle(), "a flush of nothing");
        activity.stay();
        assert!(!is_idle());
        drop(activity.request());
        assert_eq!([is_idle(), is_idle()], [false, true]);
    }
}
