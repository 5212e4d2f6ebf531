//! [`PurgeThread`]: purges in an interval, and when an administrator wants it.

use crate::purge::{PurgeOutcome, Purger};
use crate::work_claim::PurgeTurn;
use std::io;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Time after the start before the first purge. A server that ends again and again must not remove at
/// each start what a purge may remove in one interval.
const START_DELAY: Duration = Duration::from_secs(60);

/// Interval in which a thread that an administrator stopped looks whether it may go on.
const STOPPED_INTERVAL: Duration = Duration::from_secs(5);

/// Reports in the log that purges are stopped or go on, and file systems that stay full.
fn report(purger: &Purger, result: &PurgeOutcome, was_stopped: bool) {
    if let Some(file) = purger.stop_file.as_ref().filter(|_| result.is_stopped != was_stopped) {
        let file = file.display();
        match was_stopped {
            false => tracing::warn!(%file, "nothing is purged, because this file exists"),
            true => tracing::warn!(%file, "files are purged again, because this file is gone"),
        }
    }
    for export in &result.short {
        tracing::warn!(
            export = %export.shown(),
            "the file system has too little free space, and no further file may be purged: \
             scalla residency purge --dry-run names the reasons"
        );
    }
}

/// The number of purges that have ended, and whether one runs.
type PurgeProgress = Mutex<(u64, bool)>;

/// The thread that purges.
pub struct PurgeThread {
    purger: Arc<Purger>,
    progress: Arc<PurgeProgress>,
    begin: SyncSender<()>,
    last: Arc<Mutex<Option<PurgeOutcome>>>,
}

/// Returns the right to purge now; `None` while another process does that work.
pub type TakeTurn = Box<dyn Fn() -> Option<PurgeTurn> + Send>;

impl PurgeThread {
    /// Starts the thread, which purges in this interval, the first time after a minute at most.
    pub fn start(purger: Purger, interval: Duration, turn: TakeTurn) -> io::Result<Self> {
        let purger = Arc::new(purger);
        let last = Arc::new(Mutex::new(None));
        let (begin, begun) = sync_channel(1);
        let (worker, outcome) = (purger.clone(), last.clone());
        let progress = Arc::new(PurgeProgress::default());
        let shown = progress.clone();
        let work = move || {
            let (mut wait, mut was_stopped) = (START_DELAY.min(interval), false);
            while begun.recv_timeout(wait) != Err(RecvTimeoutError::Disconnected) {
                let Some(turn) = turn() else {
                    wait = STOPPED_INTERVAL.min(interval);
                    continue;
                };
                shown.lock().unwrap_or_else(PoisonError::into_inner).1 = true;
                let result = worker.purge();
                drop(turn);
                report(&worker, &result, was_stopped);
                was_stopped = result.is_stopped;
                // A purge that did not begin does not hide the one before.
                if !was_stopped || result.files > 0 {
                    *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
                }
                let mut progress = shown.lock().unwrap_or_else(PoisonError::into_inner);
                *progress = (progress.0 + 1, false);
                drop(progress);
                wait = if was_stopped { STOPPED_INTERVAL.min(interval) } else { interval };
            }
        };
        std::thread::Builder::new().name("purge".to_owned()).spawn(work)?;
        Ok(Self { purger, progress, begin, last })
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

    /// Returns the number of purges that have ended, and whether one runs.
    #[must_use]
    pub fn progress(&self) -> (u64, bool) {
        *self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the result of the last purge; `None` if none has ended.
    #[must_use]
    pub fn last(&self) -> Option<PurgeOutcome> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
