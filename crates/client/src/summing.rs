//! How long a checksum is waited for. A server that computes one says nothing until it has read all of the file, and
//! servers that forget to answer say nothing either.
//!
//! After [`LOOK_TIME`] it is looked what it is that takes so long: of a directory, or of what is not there, no checksum will
//! ever come. A file has the time that its bytes need, and those of all others that this client waits for, because servers
//! compute them one after the other; each answer that comes begins the time anew.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::ErrorCode;

use crate::answers::StatInfo;
use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;

/// Time without an answer after which it is looked what is waited for.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Time for a file, beside that for its bytes.
const FILE_TIME: Duration = Duration::from_secs(120);
/// Bytes that a server sums up in a second at least.
const RATE: u64 = 32 * 1024 * 1024;

/// The checksums that a client waits for. Clones are the same.
#[derive(Clone, Default, Debug)]
pub(crate) struct Summing(Arc<Mutex<State>>);

#[derive(Default, Debug)]
struct State {
    /// Bytes of the files that were looked at and are waited for.
    bytes: u64,
    /// When the last answer came.
    answered: Option<Instant>,
}

impl Summing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When one that was asked for at `begun` is given up.
    fn end(&self, begun: Instant) -> Instant {
        let state = self.state();
        let from = state.answered.map_or(begun, |answered| answered.max(begun));
        from + FILE_TIME + Duration::from_secs(state.bytes / RATE)
    }
}

/// Bytes that are being summed up, until it is dropped.
struct Share<'a>(&'a Summing, u64);

impl<'a> Share<'a> {
    fn new(summing: &'a Summing, bytes: u64) -> Self {
        let mut state = summing.state();
        state.bytes = state.bytes.saturating_add(bytes);
        drop(state);
        Self(summing, bytes)
    }
}

impl Drop for Share<'_> {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.bytes = state.bytes.saturating_sub(self.1);
    }
}

/// Time for an answer of which nobody else knows better when it is overdue.
const FAR: Duration = Duration::from_secs(24 * 3600);

impl FileSystem {
    /// When a server is given up that works on a checksum, if nothing else ends it before.
    pub(crate) fn end_of_summing(&self) -> Instant {
        let client = self.client();
        if client.settings().is_set("RequestTimeout") { client.end() } else { Instant::now() + FAR }
    }

    /// Waits for a checksum of a path, as long as one may come.
    pub(crate) async fn summed<T>(
        &self,
        path: &str,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let summing = self.client().summing().clone();
        tokio::select! {
            told = asked => {
                summing.state().answered = Some(Instant::now());
                told
            }
            error = Box::pin(self.overdue(path, &summing)) => Err(error),
        }
    }

    /// Ends when no checksum of a path is to be expected any more: why not.
    async fn overdue(&self, path: &str, summing: &Summing) -> Error {
        let begun = Instant::now();
        tokio::time::sleep(LOOK_TIME).await;
        let fail = |cause| Error::new("checksum", self.url().with_path(path), cause);
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
        // Who has set a time gets it; what has to come from tape first has that of any operation.
        let settings = self.client().settings();
        if settings.is_set("RequestTimeout") {
            return std::future::pending().await;
        }
        let is_away = stat.as_ref().is_some_and(StatInfo::is_offline);
        let least = begun + if is_away { settings.operation_time() } else { FILE_TIME };
        let _share = Share::new(summing, stat.map_or(0, |stat| stat.size));
        loop {
            let end = summing.end(begun).max(least);
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
    async fn time_grows_with_what_is_summed_up_and_begins_anew_with_each_answer() {
        let (summing, begun) = (Summing::default(), Instant::now());
        assert_eq!(summing.end(begun), begun + FILE_TIME);
        let one = Share::new(&summing, 100 * RATE);
        let two = Share::new(&summing, 20 * RATE);
        assert_eq!(summing.end(begun), begun + FILE_TIME + Duration::from_secs(120));
        drop(one);
        tokio::time::advance(Duration::from_secs(50)).await;
        summing.state().answered = Some(Instant::now());
        assert_eq!(summing.end(begun), Instant::now() + FILE_TIME + Duration::from_secs(20));
        drop(two);
        // An answer to somebody before says nothing.
        tokio::time::advance(Duration::from_secs(50)).await;
        let later = Instant::now();
        assert_eq!(summing.end(later), later + FILE_TIME);
    }
}
