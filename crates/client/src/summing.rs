//! The timeout of a checksum query.
//!
//! A server that computes a checksum sends nothing until it has read the whole file. A server that
//! lost the query sends nothing either, so a fixed timeout cannot distinguish both.
//!
//! After [`LOOK_TIME`] the client requests the status of the path: a directory or a missing file
//! will never have a checksum. The timeout of a file covers its bytes and those of all other files
//! of the same server whose checksums this client waits for. Servers compute them one after the
//! other. Each checksum from that server restarts the timeout.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::ErrorCode;

use crate::answers::StatInfo;
use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;
use crate::url::Url;

/// Time without a reply after which the status of the path is requested.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Timeout of a file, in addition to the time for its bytes.
const FILE_TIME: Duration = Duration::from_secs(120);
/// Minimum rate at which a server computes checksums, in bytes per second.
const RATE: u64 = 32 * 1024 * 1024;

/// The checksums that a client waits for. Clones share them.
#[derive(Clone, Default, Debug)]
pub(crate) struct Summing(Arc<Mutex<State>>);

/// Pending work by server, `host:port`.
type State = HashMap<String, Work>;

/// The pending checksums of one server.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    /// Size of the pending files whose status is known.
    bytes: u64,
    /// Time of the last checksum that the server computed.
    answered: Option<Instant>,
}

impl Summing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the deadline of a query that was sent to a server at `begun`.
    fn end(&self, server: &str, begun: Instant) -> Instant {
        let work = self.state().get(server).copied().unwrap_or_default();
        let from = work.answered.map_or(begun, |answered| answered.max(begun));
        from + FILE_TIME + Duration::from_secs(work.bytes / RATE)
    }

    /// Records a checksum that a server computed.
    fn answered(&self, server: &str) {
        self.state().entry(server.to_owned()).or_default().answered = Some(Instant::now());
    }
}

/// Bytes of a pending checksum, subtracted on drop.
struct Share<'a>(&'a Summing, String, u64);

impl<'a> Share<'a> {
    fn new(summing: &'a Summing, server: String, bytes: u64) -> Self {
        let mut state = summing.state();
        let work = state.entry(server.clone()).or_default();
        work.bytes = work.bytes.saturating_add(bytes);
        drop(state);
        Self(summing, server, bytes)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        if let Some(work) = self.0.state().get_mut(&self.1) {
            work.bytes = work.bytes.saturating_sub(self.2);
        }
    }
}

/// The server that received the last query.
#[derive(Default, Debug)]
pub(crate) struct AskedAt(Mutex<String>);

impl AskedAt {
    /// Records the server of a query.
    pub(crate) fn note(&self, url: &Url) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = url.authority();
    }

    fn server(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Timeout of a reply if no other limit applies.
const FAR: Duration = Duration::from_secs(24 * 3600);

impl FileSystem {
    /// Returns the final deadline for a server that computes a checksum.
    pub(crate) fn end_of_summing(&self) -> Instant {
        let client = self.client();
        if client.settings().is_set("RequestTimeout") { client.end() } else { Instant::now() + FAR }
    }

    /// Waits for a checksum of a path as long as a reply can be expected.
    pub(crate) async fn summed<T>(
        &self,
        path: &str,
        at: &AskedAt,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (summing, begun) = (self.client().summing().clone(), Instant::now());
        tokio::select! {
            told = asked => {
                // An immediate refusal or a lost connection is not a sign of computed checksums.
                let worked = match &told {
                    Ok(_) => true,
                    Err(error) => error.code().is_some() && begun.elapsed() >= LOOK_TIME,
                };
                if worked {
                    summing.answered(&at.server());
                }
                told
            }
            error = Box::pin(self.overdue(path, at, &summing)) => Err(error),
        }
    }

    /// Returns the reason when a checksum of a path can no longer be expected.
    async fn overdue(&self, path: &str, at: &AskedAt, summing: &Summing) -> Error {
        let begun = Instant::now();
        tokio::time::sleep(LOOK_TIME).await;
        let fail = |cause| self.error("checksum", path, cause);
        let stat = match self.stat(path).await {
            Ok(stat) if stat.is_dir() => {
                let text = "it is a directory, which has no checksum".to_owned();
                return fail(Cause::Server { code: ErrorCode::IS_DIRECTORY, text });
            }
            Err(error) if error.is_not_found() || error.is_transient() => {
                return fail(error.cause().clone());
            }
            other => other.ok(),
        };
        // A timeout set by the user applies; a file on tape has the timeout of any operation.
        let settings = self.client().settings();
        if settings.is_set("RequestTimeout") {
            return std::future::pending().await;
        }
        let is_away = stat.as_ref().is_some_and(StatInfo::is_offline);
        let least = begun + if is_away { settings.operation_time() } else { FILE_TIME };
        let bytes = stat.map_or(0, |stat| stat.size);
        loop {
            // A redirect may have changed the server in the meantime.
            let server = at.server();
            let _share = Share::new(summing, server.clone(), bytes);
            let end = summing.end(&server, begun).max(least);
            if Instant::now() >= end {
                return fail(Cause::TimedOut(begun.elapsed().as_secs()));
            }
            tokio::time::sleep_until(end).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_timeout_covers_all_pending_bytes_and_restarts_with_each_reply() {
        let (summing, begun) = (Summing::default(), Instant::now());
        let share = |server: &str, bytes| Share::new(&summing, server.to_owned(), bytes);
        assert_eq!(summing.end("a", begun), begun + FILE_TIME);
        let one = share("a", 100 * RATE);
        let two = share("a", 20 * RATE);
        let _elsewhere = share("b", 1000 * RATE);
        assert_eq!(summing.end("a", begun), begun + FILE_TIME + Duration::from_secs(120));
        drop(one);
        tokio::time::advance(Duration::from_secs(50)).await;
        // Replies of other servers do not count.
        summing.answered("b");
        assert_eq!(summing.end("a", begun), begun + FILE_TIME + Duration::from_secs(20));
        summing.answered("a");
        assert_eq!(summing.end("a", begun), Instant::now() + FILE_TIME + Duration::from_secs(20));
        drop(two);
        // A reply before the query does not count.
        tokio::time::advance(Duration::from_secs(50)).await;
        let later = Instant::now();
        assert_eq!(summing.end("a", later), later + FILE_TIME);
    }
}
