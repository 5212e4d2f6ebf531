//! Options, progress and results of copies: the types that callers exchange with the copy engine.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use digest::Algorithm;
use tokio::sync::Notify;

use super::{Place, Rate};
use crate::answers::FileChecksum;
use crate::settings::Settings;

/// Size of a chunk unless `XRD_CPCHUNKSIZE` sets another. It fits into the cache of a processor
/// between socket and file.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;
/// Number of chunks in flight unless `XRD_CPPARALLELCHUNKS` sets another.
const CHUNKS: usize = 8;
/// Minimum number of chunks for each connection that carries data: one is in transfer while the
/// next is requested.
const CHUNKS_OF_STREAM: usize = 2;

/// A requested checksum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChecksumWish {
    /// Algorithm; `None` for the first one that the server supports.
    pub algorithm: Option<Algorithm>,
    /// Value to compare with.
    pub against: Against,
}

/// The value that a checksum is compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Against {
    /// Source and target must be equal.
    EachOther,
    /// The target must have this value, in hexadecimal.
    Value(String),
    /// No comparison: the checksum of the target is reported.
    PrintTarget,
    /// No comparison: the checksum of the source is reported.
    PrintSource,
}

/// The use of copies between servers.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ThirdParty {
    /// Never: the bytes pass through this client.
    #[default]
    Never,
    /// Use it where both servers support it.
    First,
    /// Fail if the servers do not support it.
    Only,
}

/// The use of delegated credentials in copies between servers: the server of the target logs in at the
/// source as the user.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum CopyDelegation {
    /// Never: the client arranges the copy with the source.
    #[default]
    Never,
    /// Use it where the server of the target supports it.
    Supported,
    /// Fail if the server of the target does not support it.
    Required,
}

/// Options of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// Overwrites an existing target.
    pub force: bool,
    /// Completes the part that an earlier copy left, and keeps the part of this copy if it fails.
    pub resume: bool,
    /// Set if only a part with a record is completed, and not a file that has its name. For retries,
    /// whose user has not asked to complete anything.
    pub recorded_only: bool,
    /// Writes the target under its final name from the start, instead of under a temporary name
    /// until it is complete.
    pub in_place: bool,
    /// Sets the times and permission bits of the source at the target, as far as the target
    /// supports them.
    pub preserve: bool,
    /// Sets the times of the source at the target, but not its permission bits.
    pub times: bool,
    /// Keeps the target at a server only if it is closed successfully.
    pub persist_on_successful_close: bool,
    /// Ignores locks of other readers and writers.
    pub coerce: bool,
    /// Transfers data with page checksums where the server supports them.
    pub pages: bool,
    /// Bytes of one request.
    pub chunk_bytes: usize,
    /// Number of requests in flight.
    pub chunks: usize,
    /// Requested checksums.
    pub checksums: Vec<ChecksumWish>,
    /// Maximum number of sources to read in parallel; 1 reads only the named source.
    pub sources: usize,
    /// Use of copies between servers.
    pub third_party: ThirdParty,
    /// Delegated credentials for copies between servers.
    pub delegation: CopyDelegation,
    /// Maximum number of retries of a copy.
    pub retries: u64,
    /// Copies only this member of the source, which is a ZIP archive. `xrdcl.unzip=NAME` in a URL
    /// has the same effect.
    pub zip_member: Option<String>,
    /// Adds the source as a member, under its own name, to the target, which is a ZIP archive.
    pub zip_append: bool,
    /// Treats sources whose names end with `.meta4` or `.metalink` as metalinks and copies the file
    /// that they describe.
    pub metalinks: bool,
    /// Applies the checksums of a metalink to the copied member instead of the archive.
    pub metalink_of_member: bool,
    /// Rate limit in bytes per second, shared by all copies with these options and clones of them.
    pub rate: Option<Rate>,
    /// Rate in bytes per second below which a copy fails.
    pub rate_min: Option<u64>,
    /// Copies the extended attributes of the source to the target.
    pub attributes: bool,
    /// Syncs the bytes and the name of a local target to disk before the copy is complete.
    pub sync: bool,
    /// Directory for the notes of uploads that can be continued. Without it, the part that an
    /// earlier copy left at a server is compared with the source as a whole.
    pub notes: Option<PathBuf>,
}

impl CopyOptions {
    /// Returns the options of the settings.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let set = |name, value: u64, default| {
            if settings.is_set(name) { usize::try_from(value.max(1)).unwrap_or(default) } else { default }
        };
        // With separate data streams the control connection carries no large data.
        let streams = usize::try_from(settings.sub_streams_per_channel.clamp(1, 16) - 1).unwrap_or(0);
        let chunks = CHUNKS.max(CHUNKS_OF_STREAM * streams);
        Self {
            force: false,
            resume: false,
            recorded_only: false,
            in_place: false,
            preserve: false,
            times: false,
            persist_on_successful_close: false,
            coerce: false,
            pages: settings.cp_use_pg_wrt_rd != 0,
            chunk_bytes: set("CPChunkSize", settings.cp_chunk_size, CHUNK_BYTES)
                .min(crate::READ_BYTES_MAX / 2),
            chunks: set("CPParallelChunks", settings.cp_parallel_chunks, chunks).min(1024),
            checksums: Vec::new(),
            sources: 1,
            third_party: ThirdParty::Never,
            delegation: CopyDelegation::Never,
            retries: settings.cp_retry,
            zip_member: None,
            zip_append: false,
            metalinks: false,
            metalink_of_member: settings.zip_mtln_cksum != 0,
            rate: None,
            rate_min: Some(settings.xrate_threshold).filter(|rate| *rate > 0),
            attributes: settings.preserve_xattrs != 0,
            sync: settings.cp_sync != 0,
            notes: None,
        }
    }
}

impl CopyOptions {
    /// Returns the name of the archive member to copy, if `place` has one.
    #[must_use]
    pub fn member_of(&self, place: &Place) -> Option<String> {
        let named = place.url().and_then(|url| url.cgi.get("xrdcl.unzip"));
        named.filter(|name| !name.is_empty()).or(self.zip_member.as_ref()).cloned()
    }
}

/// One file to copy.
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// Source.
    pub source: Place,
    /// Target: the file itself, not its directory.
    pub target: Place,
    /// Size of the source in bytes, if a listing contained it.
    pub size: Option<u64>,
}

/// The result of a copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyDone {
    /// Size of the file in bytes.
    pub size: u64,
    /// Number of its bytes that were transferred over the network or from file to file.
    pub copied: u64,
    /// Duration of the copy.
    pub time: Duration,
    /// Requested checksums: place and value.
    pub checksums: Vec<(Place, FileChecksum)>,
    /// Number of bytes from each source, if there were several.
    pub shares: Vec<Share>,
    /// Set if the servers copied from each other.
    pub third_party: bool,
}

impl CopyDone {
    /// Returns the result of a copy of `copied` of `size` bytes, without checksums and shares.
    pub(super) fn of(size: u64, copied: u64) -> Self {
        let time = Duration::ZERO;
        Self { size, copied, time, checksums: Vec::new(), shares: Vec::new(), third_party: false }
    }
}

/// The contribution of one of several sources.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// `host:port`.
    pub source: String,
    /// Bytes.
    pub bytes: u64,
    /// Error for which the source was given up, if any.
    pub failed: Option<String>,
}

/// The progress of a copy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Number of bytes written to the target.
    pub done: u64,
    /// Size of the file in bytes, if known.
    pub total: Option<u64>,
}

type Callback = dyn Fn(Progress) + Send + Sync;

/// A handle that receives the progress of a copy and can stop it. Clones share its state.
#[derive(Clone, Default)]
pub struct Watch(Arc<WatchState>);

#[derive(Default)]
struct WatchState {
    callback: Option<Box<Callback>>,
    done: AtomicU64,
    stop: Arc<Stop>,
}

#[derive(Default)]
struct Stop {
    cancelled: AtomicBool,
    told: Notify,
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Watch")
    }
}

impl Watch {
    /// Creates a handle that calls `callback` after each chunk, from any thread.
    pub fn new(callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(WatchState { callback: Some(Box::new(callback)), ..WatchState::default() }))
    }

    /// Creates a handle that is stopped together with this one and reports the progress of its own
    /// copy to `callback`.
    pub(super) fn child(&self, callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        let (callback, stop): (Option<Box<Callback>>, _) = (Some(Box::new(callback)), self.0.stop.clone());
        Self(Arc::new(WatchState { callback, done: AtomicU64::new(0), stop }))
    }

    /// Stops the copy. It cleans up and fails with
    /// [`CopyError::Cancelled`](super::CopyError::Cancelled).
    pub fn cancel(&self) {
        self.0.stop.cancelled.store(true, Ordering::Release);
        self.0.stop.told.notify_waiters();
    }

    /// Reports whether the copy was stopped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.stop.cancelled.load(Ordering::Acquire)
    }

    /// Returns when the copy is stopped.
    pub async fn cancelled(&self) {
        let mut stop = std::pin::pin!(self.0.stop.told.notified());
        stop.as_mut().enable();
        if !self.is_cancelled() {
            stop.await;
        }
    }

    pub(super) fn begin(&self, done: u64, total: Option<u64>) {
        self.0.done.store(done, Ordering::Relaxed);
        self.tell(done, total);
    }

    pub(super) fn advance(&self, bytes: u64, total: Option<u64>) {
        let done = self.0.done.fetch_add(bytes, Ordering::Relaxed) + bytes;
        self.tell(done, total);
    }

    pub(super) fn tell(&self, done: u64, total: Option<u64>) {
        if let Some(callback) = &self.0.callback {
            callback(Progress { done, total });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_override_the_defaults_of_copies() {
        let mut settings = Settings::default();
        let options = CopyOptions::of(&settings);
        assert_eq!((options.chunk_bytes, options.chunks), (CHUNK_BYTES, CHUNKS));
        settings.set("SubStreamsPerChannel", "16", crate::Source::Option).unwrap();
        assert_eq!(CopyOptions::of(&settings).chunks, 30);
        settings.set("CPChunkSize", "70001", crate::Source::Option).unwrap();
        settings.set("CPParallelChunks", "0", crate::Source::Option).unwrap();
        let options = CopyOptions::of(&settings);
        assert_eq!((options.chunk_bytes, options.chunks), (70_001, 1));
    }

    #[tokio::test]
    async fn cancellation_is_seen_by_early_and_late_waiters() {
        let watch = Watch::default();
        let other = watch.clone();
        let (stopped, ()) = tokio::join!(
            async {
                watch.cancelled().await;
                true
            },
            async { other.cancel() }
        );
        assert!(stopped && watch.is_cancelled());
        watch.cancelled().await;
    }
}
