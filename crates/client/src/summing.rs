//! How long a checksum is waited for. A server that computes one says nothing until it has read all of the file, and
//! servers that forget to answer say nothing either.
//!
//! After [`LOOK_TIME`] it is looked what it is that takes so long: of a directory, or of what is not there, no checksum will
//! ever come. A file has the time that its bytes need, and those of all others of the same server that this client waits for,
//! because servers compute them one after the other; each checksum that comes from there begins the time anew.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use wire::xroot::ErrorCode;

use crate::answers::StatInfo;
use crate::failure::{Cause, Error};
use crate::filesystem::FileSystem;
use crate::url::Url;

/// Time without an answer after which it is looked what is waited for.
const LOOK_TIME: Duration = Duration::from_secs(5);
/// Time for a file, beside that for its bytes.
const FILE_TIME: Duration = Duration::from_secs(120);
/// Bytes that a server sums up in a second at least.
const RATE: u64 = 32 * 1024 * 1024;

/// The checksums that a client waits for. Clones are the same.
#[derive(Clone, Default, Debug)]
pub(crate) struct Summing(Arc<Mutex<State>>);

/// By server, `host:port`.
type State = HashMap<String, Work>;

/// What a server has to do for us.
#[derive(Clone, Copy, Default, Debug)]
struct Work {
    /// Bytes of the files that were looked at and are waited for.
    bytes: u64,
    /// When the last answer came that it had to work for.
    answered: Option<Instant>,
}

impl Summing {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When one that a server was asked for at `begun` is given up.
    fn end(&self, server: &str, begun: Instant) -> Instant {
        let work = self.state().get(server).copied().unwrap_or_default();
        let from = work.answered.map_or(begun, |answered| answered.max(begun));
        from + FILE_TIME + Duration::from_secs(work.bytes / RATE)
    }

    /// A server has done what it was asked for.
    fn answered(&self, server: &str) {
        self.state().entry(server.to_owned()).or_default().answered = Some(Instant::now());
    }
}

/// Bytes that a server is summing up, until it is dropped.
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

/// The server that was asked last.
#[derive(Default, Debug)]
pub(crate) struct AskedAt(Mutex<String>);

impl AskedAt {
    /// It was this one.
    pub(crate) fn note(&self, url: &Url) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = url.authority();
    }

    fn server(&self) -> String {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
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

    /// Waits for a checksum of a path, as long as one may come from where it is asked for.
    pub(crate) async fn summed<T>(
        &self,
        path: &str,
        at: &AskedAt,
        asked: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        let (summing, begun) = (self.client().summing().clone(), Instant::now());
        tokio::select! {
            told = asked => {
                // A server that says no at once has not worked for it, and one that is lost has not said anything.
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

    /// Ends when no checksum of a path is to be expected any more: why not.
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
        // Who has set a time gets it; what has to come from tape first has that of any operation.
        let settings = self.client().settings();
        if settings.is_set("RequestTimeout") {
            return std::future::pending().await;
        }
        let is_away = stat.as_ref().is_some_and(StatInfo::is_offline);
        let least = begun + if is_away { settings.operation_time() } else { FILE_TIME };
        let bytes = stat.map_or(0, |stat| stat.size);
        loop {
            // It may have been sent to another one meanwhile.
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
    async fn time_grows_with_what_is_summed_up_and_begins_anew_with_each_answer() {
        let (summing, begun) = (Summing::default(), Instant::now());
        let share = |server: &str, bytes| Share::new(&summing, server.to_owned(), bytes);
        assert_eq!(summing.end("a", begun), begun + FILE_TIME);
        let one = share("a", 100 * RATE);
        let two = share("a", 20 * RATE);
        let _elsewhere = share("b", 1000 * RATE);
        assert_eq!(summing.end("a", begun), begun + FILE_TIME + Duration::from_secs(120));
        drop(one);
        tokio::time::advance(Duration::from_secs(50)).await;
        // What others answer says nothing of this one.
        summing.answered("b");
        assert_eq!(summing.end("a", begun), begun + FILE_TIME + Duration::from_secs(20));
        summing.answered("a");
        assert_eq!(summing.end("a", begun), Instant::now() + FILE_TIME + Duration::from_secs(20));
        drop(two);
        // An answer to somebody before says nothing.
        tokio::time::advance(Duration::from_secs(50)).await;
        let later = Instant::now();
        assert_eq!(summing.end("a", later), later + FILE_TIME);
    }
}
