//! What a copy is asked to do, what it tells meanwhile, and what it says in the end.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use digest::Algorithm;
use tokio::sync::Notify;

use super::{Place, Rate};
use crate::answers::Checksum;
use crate::settings::Settings;

/// Bytes of a chunk unless `XRD_CPCHUNKSIZE` says another: they stay in the processor's cache between socket and file.
const CHUNK_BYTES: usize = 2 * 1024 * 1024;
/// Chunks in flight unless `XRD_CPPARALLELCHUNKS` says another.
const CHUNKS: usize = 8;
/// And at least so many for each connection that carries data: one is on its way while the next is asked for.
const CHUNKS_OF_STREAM: usize = 2;

/// What is wanted of checksums.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChecksumWish {
    /// Which; `None`: the first that the server has.
    pub algorithm: Option<Algorithm>,
    /// What to do with it.
    pub against: Against,
}

/// What a checksum is compared with.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Against {
    /// Source and target must agree.
    EachOther,
    /// The target must have this value, in hexadecimal.
    Value(String),
    /// Nothing: that of the target is told.
    PrintTarget,
    /// Nothing: that of the source is told.
    PrintSource,
}

/// Whether servers copy from each other.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum ThirdParty {
    /// The bytes pass through here.
    #[default]
    Never,
    /// Where both servers can.
    First,
    /// Else the copy fails.
    Only,
}

/// How to copy.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyOptions {
    /// An existing target is overwritten.
    pub force: bool,
    /// What an earlier copy left is completed, and what this one leaves when it fails is kept for the next.
    pub resume: bool,
    /// The target is written under its own name from the first byte on, not under another until it is whole.
    pub in_place: bool,
    /// The target gets the times and permission bits of the source, as far as its place has them.
    pub preserve: bool,
    /// The target gets the times of the source, and not its permission bits.
    pub times: bool,
    /// The target at a server stays only if it is closed successfully.
    pub persist_on_successful_close: bool,
    /// Locks of other readers and writers are ignored.
    pub coerce: bool,
    /// Data goes with page checksums where the server has them.
    pub pages: bool,
    /// Bytes of one request.
    pub chunk_bytes: usize,
    /// Requests in flight.
    pub chunks: usize,
    /// What is wanted of checksums.
    pub checksums: Vec<ChecksumWish>,
    /// Most sources to read from at once; 1: the one that is named.
    pub sources: usize,
    /// Whether servers copy from each other.
    pub third_party: ThirdParty,
    /// How often a copy is tried again.
    pub retries: u64,
    /// Only this member of the source, which is a ZIP archive. `xrdcl.unzip=NAME` in a URL says the same.
    pub zip_member: Option<String>,
    /// The target is a ZIP archive, to which the source is added as a member under its own name.
    pub zip_append: bool,
    /// Sources whose names end with `.meta4` or `.metalink` are metalinks: what they name is copied.
    pub metalinks: bool,
    /// Checksums of a metalink are those of the member that is copied, not of its archive.
    pub metalink_of_member: bool,
    /// Most bytes a second, of all copies with these options and clones of them together.
    pub rate: Option<Rate>,
    /// Bytes a second below which a copy fails.
    pub rate_min: Option<u64>,
    /// The target gets the extended attributes of the source.
    pub attributes: bool,
    /// Bytes and name of a target of this machine are on its disk before the copy counts as done.
    pub sync: bool,
    /// The directory with notes of uploads that can be continued. Without one, what an earlier copy left at a server is
    /// compared with the source as a whole.
    pub notes: Option<PathBuf>,
}

impl CopyOptions {
    /// As the settings say.
    #[must_use]
    pub fn of(settings: &Settings) -> Self {
        let set = |name, value: u64, default| {
            if settings.is_set(name) { usize::try_from(value.max(1)).unwrap_or(default) } else { default }
        };
        // With data streams of its own the control connection carries no large data.
        let streams = usize::try_from(settings.sub_streams_per_channel.clamp(1, 16) - 1).unwrap_or(0);
        let chunks = CHUNKS.max(CHUNKS_OF_STREAM * streams);
        Self {
            force: false,
            resume: false,
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
    /// The member of the archive at `place` that is to be copied, if it is that.
    #[must_use]
    pub fn member_of(&self, place: &Place) -> Option<String> {
        let named = place.url().and_then(|url| url.cgi.get("xrdcl.unzip"));
        named.filter(|name| !name.is_empty()).or(self.zip_member.as_ref()).cloned()
    }
}

/// One file to copy.
#[derive(Clone, Debug)]
pub struct CopyJob {
    /// From where.
    pub source: Place,
    /// To where: the file itself, not the folder it goes to.
    pub target: Place,
    /// Bytes of the source, if a listing told.
    pub size: Option<u64>,
}

/// What a copy did.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct CopyDone {
    /// Bytes of the file.
    pub size: u64,
    /// Bytes of it that went over the network, or from file to file.
    pub copied: u64,
    /// How long it took.
    pub time: Duration,
    /// Checksums that were asked for: of which place, and what they are.
    pub checksums: Vec<(Place, Checksum)>,
    /// Bytes that each source gave, when there were several.
    pub shares: Vec<Share>,
    /// The servers copied from each other.
    pub third_party: bool,
}

/// What one of several sources gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Share {
    /// `host:port`.
    pub source: String,
    /// Bytes.
    pub bytes: u64,
    /// Why it was given up, if it was.
    pub failed: Option<String>,
}

/// How far a copy is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Bytes that are where they belong.
    pub done: u64,
    /// Bytes of the file, if they are known.
    pub total: Option<u64>,
}

type Callback = dyn Fn(Progress) + Send + Sync;

/// Whoever looks after a copy: is told how far it is, and can stop it. Clones are the same.
#[derive(Clone, Default)]
pub struct Watch(Arc<Watched>);

#[derive(Default)]
struct Watched {
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
    /// Calls `callback` after each chunk, from any thread.
    pub fn new(callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        Self(Arc::new(Watched { callback: Some(Box::new(callback)), ..Watched::default() }))
    }

    /// One that is stopped with this one and tells `callback` how far its own copy is.
    pub(super) fn child(&self, callback: impl Fn(Progress) + Send + Sync + 'static) -> Self {
        let (callback, stop): (Option<Box<Callback>>, _) = (Some(Box::new(callback)), self.0.stop.clone());
        Self(Arc::new(Watched { callback, done: AtomicU64::new(0), stop }))
    }

    /// Stops the copy: it cleans up and ends with [`CopyError::Cancelled`](super::CopyError::Cancelled).
    pub fn cancel(&self) {
        self.0.stop.cancelled.store(true, Ordering::Release);
        self.0.stop.told.notify_waiters();
    }

    /// Whether it was stopped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.0.stop.cancelled.load(Ordering::Acquire)
    }

    /// Returns when it is stopped.
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
    fn what_is_set_counts_and_what_is_not_is_ours() {
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
    async fn a_copy_is_stopped_before_and_after_it_is_looked_at() {
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
