//! [`PurgeThread`]: purges in an interval, and when an administrator wants it.

use crate::purge::{PurgeOutcome, Purger};
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The thread that purges.
pub struct PurgeThread {
    purger: Arc<Purger>,
    begin: SyncSender<()>,
    last: Arc<Mutex<Option<PurgeOutcome>>>,
}

impl PurgeThread {
    /// Starts the thread, which purges at once and then in this interval.
    pub fn start(purger: Purger, interval: Duration) -> io::Result<Self> {
        let purger = Arc::new(purger);
        let last = Arc::new(Mutex::new(None));
        let (begin, begun) = sync_channel(1);
        let (worker, outcome) = (purger.clone(), last.clone());
        let work = move || {
            loop {
                let result = worker.purge();
                for export in &result.short {
                    tracing::warn!(
                        export = %export.shown(),
                        "the file system has too little free space, and no further file may be purged: \
                         scalla residency purge --dry-run names the reasons"
                    );
                }
                *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                if begun.recv_timeout(interval) == Err(RecvTimeoutError::Disconnected) {
                    return;
                }
            }
        };
        std::thread::Builder::new().name("purge".to_owned()).spawn(work)?;
        Ok(Self { purger, begin, last })
    }

    /// Returns what removes the files.
    #[must_use]
    pub fn purger(&self) -> &Arc<Purger> {
        &self.purger
    }

    /// Begins a purge now, or after the one that runs.
    pub fn begin(&self) {
        // A full channel has such a request already.
        self.begin.try_send(()).ok();
    }

    /// Returns the result of the last purge; `None` if none has ended.
    #[must_use]
    pub fn last(&self) -> Option<PurgeOutcome> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
