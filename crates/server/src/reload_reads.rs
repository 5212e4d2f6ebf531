//! [`PartReader`]: reads one part of the files of a reload (keys, rules, ...) within a limit.
//!
//! A file can be on a file system that hangs. Each part is read on a thread of its own, so that a part
//! that hangs blocks neither the others nor the answer of the reload. One thread at a time reads a
//! part, so that repeated reloads do not collect threads.

use base::Supervisor;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Maximum time for which a reload waits for its files.
pub(crate) const READ_TIME_MAX: Duration = Duration::from_secs(10);

/// The reader of one part.
pub(crate) struct PartReader {
    /// Names the part in messages.
    what: &'static str,
    is_reading: Mutex<bool>,
    ended: Condvar,
}

/// A part that is being read.
pub(crate) struct PartRead<T> {
    what: &'static str,
    until: Instant,
    /// `None` if there is no thread.
    result: Option<Receiver<T>>,
}

/// The readers of all parts.
pub(crate) struct ReloadReaders {
    pub(crate) keys: Arc<PartReader>,
    pub(crate) cluster_key: Arc<PartReader>,
    pub(crate) certificate: Arc<PartReader>,
    pub(crate) rules: Arc<PartReader>,
    pub(crate) issuers: Arc<PartReader>,
    pub(crate) macaroons: Arc<PartReader>,
}

impl Default for ReloadReaders {
    fn default() -> Self {
        Self {
            keys: PartReader::new("the keys of clients"),
            cluster_key: PartReader::new("scalla.clusterkey"),
            certificate: PartReader::new("the certificate"),
            rules: PartReader::new("acc.authdb"),
            issuers: PartReader::new("token issuers"),
            macaroons: PartReader::new("the secret of macaroons"),
        }
    }
}

/// The right to read a part, until it is dropped.
struct ReadTurn(Arc<PartReader>);

impl PartReader {
    pub(crate) fn new(what: &'static str) -> Arc<Self> {
        Arc::new(Self { what, is_reading: Mutex::new(false), ended: Condvar::new() })
    }

    /// Starts to read the part, after the end of an earlier read. It is not read if that does not end
    /// until `until`.
    pub(crate) fn start<T: Send + 'static>(
        self: &Arc<Self>,
        supervisor: &Supervisor,
        until: Instant,
        read: impl FnOnce() -> T + Send + 'static,
    ) -> PartRead<T> {
        let (send, result) = mpsc::channel();
        let (reader, what) = (self.clone(), self.what);
        let run = move || {
            let Some(turn) = reader.turn(until) else { return };
            let read = read();
            drop(turn);
            if send.send(read).is_err() {
                tracing::info!("{what}: read now, after the reload that asked for it");
            }
        };
        let spawned = supervisor.spawn("reload-read", "the reading of files for a reload", run);
        PartRead { what, until, result: spawned.is_ok().then_some(result) }
    }

    /// Waits until no other thread reads the part.
    fn turn(self: Arc<Self>, until: Instant) -> Option<ReadTurn> {
        let reading = self.is_reading.lock().unwrap_or_else(PoisonError::into_inner);
        let rest = until.saturating_duration_since(Instant::now());
        let waited = self.ended.wait_timeout_while(reading, rest, |is_reading| *is_reading);
        let (mut reading, _) = waited.unwrap_or_else(PoisonError::into_inner);
        if *reading {
            return None;
        }
        *reading = true;
        drop(reading);
        Some(ReadTurn(self))
    }
}

impl Drop for ReadTurn {
    fn drop(&mut self) {
        *self.0.is_reading.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.ended.notify_one();
    }
}

impl<T> PartRead<T> {
    /// Waits for the result.
    ///
    /// # Errors
    /// The part is not read yet, or cannot be read.
    pub(crate) fn wait(self) -> Result<T, String> {
        let what = self.what;
        let Some(result) = self.result else {
            return Err(format!("{what}: not read again, for want of a thread; try again"));
        };
        let rest = self.until.saturating_duration_since(Instant::now());
        result.recv_timeout(rest).map_err(|error| match error {
            RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected => format!(
                "{what}: not read yet, because a file system does not answer; what was read earlier \
                 stays in force until then"
            ),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_hangs_blocks_neither_the_others_nor_the_reload() {
        let supervisor = Supervisor::default();
        let (hanging, healthy) = (PartReader::new("token issuers"), PartReader::new("keys"));
        let (begun, begins) = mpsc::channel();
        let (go_on, goes_on) = mpsc::channel::<()>();
        let now = Instant::now();
        let later = now + Duration::from_secs(600);
        let hung = hanging.start(&supervisor, later, move || {
            begun.send(()).unwrap();
            goes_on.recv().unwrap();
            1
        });
        begins.recv().unwrap();
        let late = PartRead { until: now, ..hung }.wait().unwrap_err();
        assert!(late.starts_with("token issuers: not read yet, "), "{late}");
        assert_eq!(healthy.start(&supervisor, later, || 2).wait(), Ok(2));
        // No second thread waits in the file system.
        let read = || -> u8 { panic!("two threads read the same part") };
        let second = hanging.start(&supervisor, now, read);
        assert!(second.result.unwrap().recv().is_err());
        let next = hanging.start(&supervisor, later, || 3);
        go_on.send(()).unwrap();
        assert_eq!(next.wait(), Ok(3), "it is read again after the end of the earlier read");
        assert!(supervisor.fault().is_none());
    }
}
