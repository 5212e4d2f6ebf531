//! [`Waits`]: the current waits of a client's operations, for programs that show them to a user.
//!
//! Nothing is recorded unless a program watches, so that other programs pay nothing for it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::url::Url;

/// Maximum number of recorded waits; the oldest one is shown.
const WAITS_MAX: usize = 1024;

/// The kind of a wait.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WaitFor {
    /// A connection, including its login.
    Connection,
    /// The reply to a request.
    Answer,
    /// A pause that the server requested before a retry.
    Pause {
        /// End of the pause.
        until: Instant,
        /// Reason sent by the server.
        text: String,
    },
}

/// A wait of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PendingWait {
    /// `host:port` of the server.
    pub server: String,
    /// Kind of the wait.
    pub what: WaitFor,
    /// Start of the wait.
    pub since: Instant,
}

/// The waits of a client.
#[derive(Clone, Default, Debug)]
pub struct Waits(Arc<WaitTable>);

#[derive(Default, Debug)]
struct WaitTable {
    is_watched: AtomicBool,
    waiting: Mutex<(u64, BTreeMap<u64, PendingWait>)>,
}

impl Waits {
    /// Starts to record waits.
    pub fn watch(&self) {
        self.0.is_watched.store(true, Ordering::Relaxed);
    }

    /// Returns the longest current wait.
    #[must_use]
    pub fn longest(&self) -> Option<PendingWait> {
        let waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.1.first_key_value().map(|(_, wait)| wait.clone())
    }

    /// Records a wait at a server; it ends when the returned value is dropped.
    pub(crate) fn begin(&self, server: &Url, what: WaitFor) -> Option<WaitGuard> {
        if !self.0.is_watched.load(Ordering::Relaxed) {
            return None;
        }
        let wait = PendingWait { server: server.authority(), what, since: Instant::now() };
        let mut waiting = self.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let (next, waits) = &mut *waiting;
        if waits.len() >= WAITS_MAX {
            return None;
        }
        let number = *next;
        *next += 1;
        waits.insert(number, wait);
        Some(WaitGuard { waits: self.clone(), number })
    }
}

/// A recorded wait that lasts as long as this value.
#[derive(Debug)]
pub(crate) struct WaitGuard {
    waits: Waits,
    number: u64,
}

impl Drop for WaitGuard {
    fn drop(&mut self) {
        let mut waiting = self.waits.0.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.1.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_wait_is_returned_and_their_number_is_bounded() {
        let (waits, url) = (Waits::default(), Url::parse("root://h//a").unwrap());
        assert!(waits.begin(&url, WaitFor::Answer).is_none(), "nobody watches");
        waits.watch();
        assert_eq!(waits.longest(), None);
        let first = waits.begin(&url, WaitFor::Connection);
        let mut others: Vec<_> = (0..WAITS_MAX).map(|_| waits.begin(&url, WaitFor::Answer)).collect();
        assert!(others.pop().is_some_and(|last| last.is_none()));
        assert_eq!(
            waits.longest().map(|wait| (wait.server, wait.what)),
            Some(("h:1094".into(), WaitFor::Connection))
        );
        drop(first);
        assert_eq!(waits.longest().map(|wait| wait.what), Some(WaitFor::Answer));
        drop(others);
        assert_eq!(waits.longest(), None);
    }
}
