//! [`CacheShared`]: what all files of a cache share.

use super::cache_index::CacheIndex;
use super::clock::{CacheClock, FileUse};
use super::closing::FilesInUse;
use super::counters::CacheCounters;
use super::fetch_memory::FetchMemory;
use super::index_trust::IndexTrust;
use super::paused_removals::PausedRemovals;
use super::period::CacheObserver;
use super::pins::CachePins;
use crate::CacheKey;
use crate::store::{StoreContext, is_full};
use base::Owner;
use rustix::io::Errno;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use storage::Pool;
use tokio::runtime::Handle;
use tokio::sync::{Notify, oneshot};

/// Interval in seconds in which one line about the disk is written to the log.
const LOG_INTERVAL: i64 = 60;

/// Time in seconds after a failure of the disk in which nothing is stored.
const FAILURE_PAUSE: i64 = 10;

/// What all files of a cache share.
pub(super) struct CacheShared {
    pub(super) runtime: Handle,
    pub(super) context: Arc<StoreContext>,
    pub(super) memory: FetchMemory,
    pub(super) index: CacheIndex,
    pub(super) trust: IndexTrust,
    /// The threads for reads from the disk, and those for everything else.
    pub(super) reads: Arc<Pool>,
    pub(super) writes: Arc<Pool>,
    /// Maximum number of bytes that are fetched ahead of a reader.
    pub(super) prefetch_bytes: u64,
    /// Time that a reader waits for the fetch of another one.
    pub(super) patience: Duration,
    pub(super) clock: CacheClock,
    /// The disk has no room, so nothing is stored.
    is_full: AtomicBool,
    /// The number of bytes that can be stored before the next look at the disk.
    room: AtomicU64,
    /// The number of bytes that were stored since the start.
    stored: AtomicU64,
    /// The size of the file system.
    pub(super) total: AtomicU64,
    /// Its used bytes at the last look.
    pub(super) used: AtomicU64,
    /// The time of the last failure of the disk.
    failed: AtomicI64,
    logged: AtomicI64,
    /// Locked during a round of removals, because another one would count the same excess.
    pub(super) round: tokio::sync::Mutex<PausedRemovals>,
    /// Wakes the removal of files.
    pub(super) removal: Notify,
    /// Wakes the reduction of directories to their quotas.
    pub(super) quotas: Notify,
    pub(super) counters: CacheCounters,
    pub(super) pins: CachePins,
    pub(super) in_use: FilesInUse,
    /// Gets the ends of periods in which readers had a file open.
    pub(super) observer: OnceLock<Arc<dyn CacheObserver>>,
}

/// Reports whether an error is about the disk. All others are about one file, whose name a client has chosen.
pub(super) fn is_about_disk(error: &io::Error) -> bool {
    let disk = [Errno::DQUOT, Errno::IO, Errno::NODEV, Errno::NOSPC, Errno::ROFS, Errno::STALE];
    Errno::from_io_error(error).is_some_and(|errno| disk.contains(&errno))
}

/// Reports whether less than an interval has passed. If the clock was set back, it has passed.
fn is_within(now: i64, since: i64, interval: i64) -> bool {
    (0..interval).contains(&now.saturating_sub(since))
}

impl CacheShared {
    #[expect(clippy::too_many_arguments, reason = "each is a part of one value")]
    pub(super) fn new(
        runtime: Handle,
        context: Arc<StoreContext>,
        memory: FetchMemory,
        index: CacheIndex,
        reads: Arc<Pool>,
        writes: Arc<Pool>,
        (prefetch_bytes, patience): (u64, Duration),
        clock: CacheClock,
    ) -> Self {
        Self {
            runtime,
            context,
            memory,
            index,
            trust: IndexTrust::default(),
            reads,
            writes,
            prefetch_bytes,
            patience,
            clock,
            is_full: AtomicBool::new(false),
            room: AtomicU64::new(0),
            stored: AtomicU64::new(0),
            total: AtomicU64::new(0),
            used: AtomicU64::new(0),
            failed: AtomicI64::new(i64::MIN),
            logged: AtomicI64::new(i64::MIN),
            round: tokio::sync::Mutex::default(),
            removal: Notify::new(),
            quotas: Notify::new(),
            counters: CacheCounters::default(),
            pins: CachePins::default(),
            in_use: FilesInUse::default(),
            observer: OnceLock::new(),
        }
    }

    /// Returns the seconds since the epoch.
    pub(super) fn now(&self) -> i64 {
        self.clock.now().time_of_day
    }

    /// Returns a use of a file now.
    pub(super) fn used_now(&self) -> FileUse {
        FileUse::by_us(self.clock.now())
    }

    /// Reports whether the disk has room.
    pub(super) fn may_store(&self) -> bool {
        !self.is_full.load(Ordering::Acquire)
    }

    /// Sets whether the disk has room.
    pub(super) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Release);
    }

    /// Sets the number of bytes that can be stored before the next look at the disk.
    pub(super) fn set_room(&self, bytes: u64) {
        self.room.store(bytes, Ordering::Release);
    }

    /// Takes the size of bytes that were stored. If there is no more room, nothing is stored until files were
    /// removed.
    pub(super) fn take_room(&self, bytes: u64) {
        self.stored.fetch_add(bytes, Ordering::AcqRel);
        let taken = |room: u64| Some(room.saturating_sub(bytes));
        let before = self.room.fetch_update(Ordering::AcqRel, Ordering::Acquire, taken).unwrap_or(0);
        if before <= bytes {
            self.set_full(true);
            self.removal.notify_one();
        }
    }

    /// Returns the number of bytes that were stored since the start.
    pub(super) fn stored(&self) -> u64 {
        self.stored.load(Ordering::Acquire)
    }

    /// Reports whether the disk has failed lately.
    pub(super) fn has_failed(&self) -> bool {
        is_within(self.now(), self.failed.load(Ordering::Acquire), FAILURE_PAUSE)
    }

    /// Takes an error of the disk. Unless it is about one file, nothing is stored for a while.
    pub(super) fn note_disk_failure(&self, key: &CacheKey, error: &io::Error) {
        self.note_removal_failure(key, error);
        // A removal does not help against other failures.
        if is_full(error) {
            self.removal.notify_one();
        }
    }

    /// Takes an error of the disk during a removal, as [`CacheShared::note_disk_failure`] does. It does not cause another
    /// removal, which would fail in the same way at once.
    pub(super) fn note_removal_failure(&self, key: &CacheKey, error: &io::Error) {
        if error.kind() == io::ErrorKind::ResourceBusy {
            if self.may_log() {
                tracing::warn!(file = %key.data().shown(), %error, "the cache cannot free space of a file now");
            }
            return;
        }
        if !is_about_disk(error) {
            if self.may_log() {
                tracing::warn!(file = %key.data().shown(), %error, "the file is not cached");
            }
            return;
        }
        self.failed.store(self.now(), Ordering::Release);
        self.set_full(true);
        if self.may_log() {
            tracing::warn!(
                file = %key.data().shown(), %error,
                "the disk of the cache cannot be written; files are served from the origin"
            );
        }
    }

    /// Logs damaged blocks.
    pub(super) fn note_damage(&self, key: &CacheKey, blocks: &[u64]) {
        self.counters.damaged_blocks.add(blocks.len() as u64);
        if self.may_log() {
            tracing::warn!(
                file = %key.data().shown(), first = blocks.first(), number = blocks.len(),
                "blocks in the cache are damaged; they are fetched again"
            );
        }
    }

    /// Reports whether a line may be written to the log now.
    pub(super) fn may_log(&self) -> bool {
        let (now, last) = (self.now(), self.logged.load(Ordering::Acquire));
        !is_within(now, last, LOG_INTERVAL)
            && self.logged.compare_exchange(last, now, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Runs a job of the server that is not a read. `None` if it could not be run.
    pub(super) async fn on_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        self.on_disk_for(Owner::SERVER, job).await
    }

    /// Runs a job of this owner that is not a read. Owners take turns, and each has a share of the threads. `None` if
    /// the job could not be run.
    pub(super) async fn on_disk_for<T: Send + 'static>(
        &self,
        owner: Owner,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        Self::run_on(&self.writes, owner, job).await
    }

    /// Runs a job of the server that reads. `None` if it could not be run.
    pub(super) async fn read_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        Self::run_on(&self.reads, Owner::SERVER, job).await
    }

    async fn run_on<T: Send + 'static>(
        threads: &Arc<Pool>,
        owner: Owner,
        job: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let (done, result) = oneshot::channel();
        let job = move || {
            done.send(job()).ok();
        };
        threads.run_surely(owner, Box::new(job));
        result.await.ok()
    }
}
