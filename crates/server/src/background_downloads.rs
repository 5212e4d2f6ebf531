//! [`BackgroundDownloads`]: the thread that starts downloads of keys and revocation lists when they
//! are due, their backoff, and the threads that wait for servers.
//!
//! A server that answers late must not delay the lists and keys of others. Therefore each download has
//! a short time on the quick threads. One that needs longer is repeated on the slow threads with its
//! full time, and later downloads from the same source begin there, until one of them was quick.

use base::{Owner, Supervisor};
use std::collections::HashSet;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use storage::Pool;

/// Maximum number of threads that wait for servers which answer in [`QUICK_TIME`].
const QUICK_THREADS_MAX: usize = 3;
/// Maximum number of threads that wait for slow servers.
const SLOW_THREADS_MAX: usize = 2;
/// Maximum time of a download on the quick threads.
pub(crate) const QUICK_TIME: Duration = Duration::from_secs(8);
/// Maximum number of sources that are known to be slow. When it is reached, all are forgotten.
const SLOW_SOURCES_MAX: usize = 4096;
/// Maximum interval at which changed settings and the end of a download are noticed.
pub(crate) const LOOK_INTERVAL: Duration = Duration::from_secs(10);
/// Pause after the first failure; it doubles with each further one.
const FIRST_PAUSE: Duration = Duration::from_secs(60);

/// Returns the pause after a failure that follows this many others (backoff), at most `longest`.
pub(crate) fn pause_after(failures: u32, longest: Duration) -> Duration {
    FIRST_PAUSE.saturating_mul(1 << failures.min(16)).min(longest)
}

/// A thread that starts downloads. It ends when this is dropped.
pub(crate) struct BackgroundDownloads {
    schedule: Sender<ScheduleMessage>,
    /// A message to look is on its way.
    is_woken: Arc<AtomicBool>,
}

enum ScheduleMessage {
    Look,
    End,
}

/// Makes the thread look at its schedule at once. It never blocks.
pub(crate) struct ScheduleWaker {
    schedule: Sender<ScheduleMessage>,
    is_woken: Arc<AtomicBool>,
}

impl ScheduleWaker {
    pub(crate) fn wake(&self) {
        // At most one message waits, however often this is called.
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            drop(self.schedule.send(ScheduleMessage::Look));
        }
    }
}

impl BackgroundDownloads {
    /// Starts the thread `name`, whose purpose is `what`. `start_due` starts the downloads that are due,
    /// and returns the time until it must be called again.
    pub(crate) fn start(
        name: &'static str,
        what: &'static str,
        supervisor: &Supervisor,
        start_due: impl Fn(&Arc<DownloadThreads>) -> Duration + Send + 'static,
    ) -> io::Result<Self> {
        let (schedule, messages) = mpsc::channel();
        let is_woken = Arc::<AtomicBool>::default();
        let woken = is_woken.clone();
        let run = move || {
            let threads = DownloadThreads::new(name);
            loop {
                let pause = start_due(&threads);
                match messages.recv_timeout(pause) {
                    // Cleared before the schedule is examined, so that no later call is lost.
                    Ok(ScheduleMessage::Look) => woken.store(false, Ordering::Release),
                    Err(RecvTimeoutError::Timeout) => {}
                    Ok(ScheduleMessage::End) | Err(RecvTimeoutError::Disconnected) => return,
                }
            }
        };
        supervisor.spawn(name, what, run)?;
        Ok(Self { schedule, is_woken })
    }

    pub(crate) fn waker(&self) -> ScheduleWaker {
        ScheduleWaker { schedule: self.schedule.clone(), is_woken: self.is_woken.clone() }
    }
}

impl Drop for BackgroundDownloads {
    fn drop(&mut self) {
        drop(self.schedule.send(ScheduleMessage::End));
    }
}

/// The threads that wait for servers.
pub(crate) struct DownloadThreads {
    quick: Arc<Pool>,
    slow: Arc<Pool>,
    slow_sources: Mutex<HashSet<String>>,
}

/// A download from one source.
pub(crate) trait SourceDownload: Send + 'static {
    /// Returns the name of the source.
    fn source(&self) -> &str;

    /// Returns the maximum time of the download.
    fn time_max(&self) -> Duration;

    /// Downloads within a time. Returns whether it succeeded. Blocks.
    fn attempt(&mut self, limit: Duration) -> bool;

    /// Records the result of the last attempt, or that there was none.
    fn finish(self: Box<Self>);
}

/// The time that a download took.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum SourceSpeed {
    Quick,
    Slow,
    /// It failed for lack of time.
    NeedsLonger,
}

impl SourceSpeed {
    fn of(is_success: bool, time: Duration, limit: Duration) -> Self {
        match is_success {
            // A source with several addresses may have used up its time before the last of them.
            false if time >= limit / 2 => Self::NeedsLonger,
            _ if time >= QUICK_TIME => Self::Slow,
            _ => Self::Quick,
        }
    }
}

/// Records the result of a download also if no thread takes it, or if it panics.
struct UnfinishedDownload(Option<Box<dyn SourceDownload>>);

impl Drop for UnfinishedDownload {
    fn drop(&mut self) {
        if let Some(download) = self.0.take() {
            download.finish();
        }
    }
}

impl DownloadThreads {
    pub(crate) fn new(name: &str) -> Arc<Self> {
        Arc::new(Self {
            quick: Pool::new(name, QUICK_THREADS_MAX),
            slow: Pool::new(name, SLOW_THREADS_MAX),
            slow_sources: Mutex::default(),
        })
    }

    fn slow_sources(&self) -> MutexGuard<'_, HashSet<String>> {
        self.slow_sources.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a download. Never blocks.
    pub(crate) fn start(self: &Arc<Self>, download: Box<dyn SourceDownload>) {
        let is_slow = self.slow_sources().contains(download.source());
        self.queue(UnfinishedDownload(Some(download)), is_slow);
    }

    fn queue(self: &Arc<Self>, unfinished: UnfinishedDownload, is_slow: bool) {
        let threads = self.clone();
        let pool = if is_slow { &self.slow } else { &self.quick };
        // A refused job is dropped, which records that there was no attempt.
        drop(pool.run(Owner::SERVER, Box::new(move || threads.run(unfinished, is_slow))));
    }

    fn run(self: &Arc<Self>, mut unfinished: UnfinishedDownload, is_slow: bool) {
        let Some(download) = &mut unfinished.0 else { return };
        let time_max = download.time_max();
        let limit = if is_slow { time_max } else { time_max.min(QUICK_TIME) };
        let begin = Instant::now();
        let is_success = download.attempt(limit);
        let speed = SourceSpeed::of(is_success, begin.elapsed(), limit);
        self.note_speed(download.source().to_owned(), speed == SourceSpeed::Quick);
        if speed == SourceSpeed::NeedsLonger && !is_slow && limit < time_max {
            self.queue(unfinished, true);
        }
    }

    fn note_speed(&self, source: String, is_quick: bool) {
        let mut slow = self.slow_sources();
        if is_quick {
            slow.remove(&source);
            return;
        }
        if slow.len() >= SLOW_SOURCES_MAX {
            slow.clear();
        }
        slow.insert(source);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::Receiver;

    /// Time after which a test that waits has failed.
    const PATIENCE: Duration = Duration::from_secs(300);
    const TIME: Duration = Duration::from_secs(600);

    /// A download that reports its attempts, each of which takes as long as the test wants.
    struct ControlledDownload {
        source: &'static str,
        attempts: Sender<Attempt>,
        results: Receiver<bool>,
        finished: Sender<&'static str>,
    }

    impl SourceDownload for ControlledDownload {
        fn source(&self) -> &str {
            self.source
        }

        fn time_max(&self) -> Duration {
            TIME
        }

        fn attempt(&mut self, limit: Duration) -> bool {
            self.attempts.send((self.source, limit)).unwrap();
            self.results.recv_timeout(PATIENCE).expect("a result")
        }

        fn finish(self: Box<Self>) {
            let _ = self.finished.send(self.source);
        }
    }

    /// The source and the time of an attempt.
    type Attempt = (&'static str, Duration);

    struct Site {
        threads: Arc<DownloadThreads>,
        attempts: (Sender<Attempt>, Receiver<Attempt>),
        finished: (Sender<&'static str>, Receiver<&'static str>),
    }

    impl Site {
        fn new() -> Self {
            let threads = DownloadThreads::new("test");
            Self { threads, attempts: mpsc::channel(), finished: mpsc::channel() }
        }

        /// Starts a download. The sender gives its results.
        fn start(&self, source: &'static str) -> Sender<bool> {
            let (result, results) = mpsc::channel();
            let (attempts, finished) = (self.attempts.0.clone(), self.finished.0.clone());
            self.threads.start(Box::new(ControlledDownload { source, attempts, results, finished }));
            result
        }
    }

    #[test]
    fn slow_sources_do_not_delay_others() {
        let site = Site::new();
        let slow = ["a", "b", "c", "d"];
        for source in slow {
            site.threads.note_speed(source.to_owned(), false);
        }
        let results: Vec<_> = slow.iter().map(|source| site.start(source)).collect();
        let running: Vec<_> =
            (0..SLOW_THREADS_MAX).map(|_| site.attempts.1.recv_timeout(PATIENCE).unwrap()).collect();
        assert!(running.iter().all(|(source, limit)| slow.contains(source) && *limit == TIME));
        // All slow threads wait, and another source is served.
        site.start("quick").send(true).unwrap();
        assert_eq!(site.attempts.1.recv_timeout(PATIENCE).unwrap(), ("quick", QUICK_TIME));
        assert_eq!(site.finished.1.recv_timeout(PATIENCE).unwrap(), "quick");
        // One that is quick again leaves the slow threads.
        for result in &results {
            result.send(true).unwrap();
        }
        let mut finished: Vec<_> =
            slow.iter().map(|_| site.finished.1.recv_timeout(PATIENCE).unwrap()).collect();
        finished.sort_unstable();
        assert_eq!(finished, slow);
        site.start("a").send(true).unwrap();
        while site.attempts.1.recv_timeout(PATIENCE).unwrap() != ("a", QUICK_TIME) {}
    }

    #[test]
    fn a_failure_for_lack_of_time_differs_from_an_error() {
        let of = SourceSpeed::of;
        assert_eq!(of(true, QUICK_TIME / 2, QUICK_TIME), SourceSpeed::Quick);
        assert_eq!(of(true, QUICK_TIME, TIME), SourceSpeed::Slow);
        assert_eq!(of(false, QUICK_TIME / 3, QUICK_TIME), SourceSpeed::Quick, "as by a refused connection");
        assert_eq!(of(false, QUICK_TIME / 2, QUICK_TIME), SourceSpeed::NeedsLonger);
        assert_eq!(of(false, QUICK_TIME, TIME), SourceSpeed::Slow);
        assert_eq!(of(false, TIME, TIME), SourceSpeed::NeedsLonger);
    }

    #[test]
    fn a_download_that_panics_is_finished() {
        let site = Site::new();
        drop(site.start("without a result"));
        assert_eq!(site.finished.1.recv_timeout(PATIENCE).unwrap(), "without a result");
    }
}
