//! [`BackgroundDownloads`]: the thread that starts downloads of keys and revocation lists when they
//! are due, and their backoff.

use base::Supervisor;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::time::Duration;
use storage::Pool;

/// Maximum number of threads that wait for servers.
const DOWNLOAD_THREADS_MAX: usize = 4;
/// Maximum interval at which changed settings and the end of a download are noticed.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after the first failure; it doubles with each further one.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// Returns the pause after a failure that follows this many others (backoff), at most `longest`.
pub(crate) fn pause_after(failures: u32, longest: Duration) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(longest)
}

/// A thread that starts downloads. It ends when this is dropped.
pub(crate) struct BackgroundDownloads {
    _end: Sender<()>,
}

impl BackgroundDownloads {
    /// Starts the thread `name`, whose purpose is `what`. `start_due` starts the downloads that are due
    /// on a pool, and returns the time until it must be called again.
    pub(crate) fn start(
        name: &'static str,
        what: &'static str,
        supervisor: &Supervisor,
        start_due: impl Fn(&Arc<Pool>) -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let (end, ended) = mpsc::channel();
        let run = move || {
            let pool = Pool::new(name, DOWNLOAD_THREADS_MAX);
            loop {
                let pause = start_due(&pool);
                if ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout) {
                    return;
                }
            }
        };
        supervisor.spawn(name, what, run)?;
        Ok(Self { _end: end })
    }
}
