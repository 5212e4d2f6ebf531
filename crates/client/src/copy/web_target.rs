//! Uploads to HTTP servers: one PUT, whose body is the source in its order.
//!
//! The file does not exist before (a HEAD, and `If-None-Match: *` for what appears afterwards), unless `--force`
//! overwrites it. The body is sent after `100 Continue`, so a server can refuse or redirect the upload before.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use digest::{Algorithm, Checksum, RunningChecksum};
use hyper::StatusCode;
use hyper::header::{self, HeaderMap, HeaderValue};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::Copier;
use super::checks::Checks;
use super::failure::{CopyError, Side};
use super::opening::{REMOVE_TIME, unless_stopped};
use super::options::{CopyDone, CopyJob, CopyOptions, Watch};
use super::rate::{Floor, Rate};
use super::source::{SourceKind, SourceReader};
use super::web_source::not_the_source;
use crate::abort_on_drop::AbortOnDrop;
use crate::answers::StatInfo;
use crate::failure::{Cause, Error};
use crate::http::{TransferFailure, UploadSource, UrlTransfer};
use crate::url::Url;

/// Bytes that are given to the connection at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// Number of these that wait for it.
const PIECES: usize = 4;
/// Number of chunks of a local file that are read ahead.
const LOCAL_AHEAD: usize = 2;
/// Interval between checks of the rate.
const LOOK_TIME: Duration = Duration::from_secs(1);
/// Time in which a part of a file does not change if nobody writes it.
const PART_TIME: Duration = Duration::from_secs(2);

/// An upload.
pub(super) struct WebUpload<'a> {
    pub(super) copier: &'a Copier,
    pub(super) job: &'a CopyJob,
    pub(super) options: &'a CopyOptions,
    pub(super) watch: &'a Watch,
    pub(super) url: &'a Url,
}

impl WebUpload<'_> {
    pub(super) async fn run(&self, source: SourceReader) -> Result<CopyDone, CopyError> {
        let Self { copier, job, options, watch, url } = *self;
        let Some(size) = source.size else {
            let text = format!(
                "{}: an upload over HTTP needs the size of the file at its beginning; copy it to a file first",
                job.source
            );
            return Err(CopyError::Usage(text));
        };
        let begin = Box::pin(Checks::begin(copier, &source, &job.target, options));
        let mut checks = unless_stopped(watch, begin).await?;
        unless_stopped(watch, Box::pin(self.check_target(&source))).await?;
        let algorithms = checks.sums().iter().map(RunningChecksum::algorithm).collect();
        let feed = Arc::new(Feed::new(self, source, size, algorithms));
        let sums = match self.send(&feed).await {
            Ok(sums) => sums,
            Err(error) => {
                // After a reply of the server nothing is removed: the file may be that of another client.
                if leaves_part(&error) && !feed.is_refused.load(Ordering::Relaxed) {
                    self.remove_part(&feed).await;
                }
                return Err(error);
            }
        };
        let own = self.own(size).await;
        let heard = async {
            checks.hear().await?;
            checks.verify_source(&job.source, &sums)
        };
        let mut checksums = match unless_stopped(watch, Box::pin(heard)).await {
            Ok(checksums) => checksums,
            Err(error) => {
                self.remove(own).await;
                return Err(error);
            }
        };
        let verified = Box::pin(checks.verify_target(copier, &job.target, Some(url), &sums));
        match unless_stopped(watch, verified).await {
            Ok(of_target) => checksums.extend(of_target),
            Err(error) => {
                if matches!(error, CopyError::Checksum { .. }) {
                    self.remove(own).await;
                }
                return Err(error);
            }
        }
        Ok(CopyDone { checksums, ..CopyDone::of(size, size) })
    }

    /// Removes what a failed upload has left of a new file. Some servers keep it. It is smaller than the file and not
    /// larger than what was sent. One that changes is written by another client.
    async fn remove_part(&self, feed: &Feed) {
        let copied = feed.copied.load(Ordering::Relaxed).max(feed.copied_before.load(Ordering::Relaxed));
        if self.options.force || copied == 0 {
            return;
        }
        let files = self.copier.client.file_system(self.url);
        let find = async || {
            let found = files.find(&self.url.path).await.ok().flatten()?;
            (!found.is_dir() && found.size < feed.size && found.size <= copied).then_some(found)
        };
        let look = async {
            let Some(first) = find().await else { return };
            tokio::time::sleep(PART_TIME).await;
            if find().await.is_some_and(|second| is_unchanged(&first, &second)) {
                files.rm(&self.url.path).await.ok();
            }
        };
        // An unresponsive server is abandoned.
        timeout(REMOVE_TIME, look).await.ok();
    }

    /// Returns the status of a new file that was uploaded just now. Nothing that `--force` replaces is removed, because
    /// its name may have other copies, and nothing else would be left.
    async fn own(&self, size: u64) -> Option<StatInfo> {
        // Without a checksum nothing is found to be wrong.
        if self.options.force || self.options.checksums.is_empty() {
            return None;
        }
        let files = self.copier.client.file_system(self.url);
        let found = timeout(REMOVE_TIME, files.find(&self.url.path)).await.ok()?.ok()??;
        (found.size == size).then_some(found)
    }

    /// Removes the file, which is not what it should be, if it is still that of the upload.
    async fn remove(&self, own: Option<StatInfo>) {
        let Some(own) = own else { return };
        let files = self.copier.client.file_system(self.url);
        let look = async {
            let found = files.find(&self.url.path).await.ok().flatten();
            if found.is_some_and(|found| is_unchanged(&own, &found)) {
                files.rm(&self.url.path).await.ok();
            }
        };
        // An unresponsive server is abandoned.
        timeout(REMOVE_TIME, look).await.ok();
    }

    /// Checks that nothing is overwritten that should not be.
    async fn check_target(&self, source: &SourceReader) -> Result<(), CopyError> {
        let Self { copier, options, url, .. } = *self;
        let found = copier.client.file_system(url).find(&url.path).await.map_err(CopyError::target)?;
        match found {
            Some(found) if found.is_dir() => Err(CopyError::IsDirectory(url.to_string())),
            Some(_) if !options.force => Err(CopyError::Exists(url.to_string())),
            Some(_) => not_the_source(copier, source, url).await,
            None => Ok(()),
        }
    }

    /// Sends the file. If the directory is missing, it is created.
    async fn send(&self, feed: &Arc<Feed>) -> Result<Vec<Checksum>, CopyError> {
        let Self { copier, watch, url, .. } = *self;
        let transfer = UrlTransfer::new(&copier.client, url, "write").await.map_err(CopyError::target)?;
        let is_conflict = |failure: &TransferFailure| {
            matches!(failure, TransferFailure::Status { status: StatusCode::CONFLICT, .. })
        };
        let failure = match self.put(&transfer, feed).await? {
            Ok(()) => return feed.sums().await,
            Err(failure) => failure,
        };
        let parent = url.path.trim_end_matches('/').rsplit_once('/').map_or("", |(parent, _)| parent);
        if !is_conflict(&failure) || parent.is_empty() {
            return Err(self.failed(&transfer, feed, failure));
        }
        let files = copier.client.file_system(url);
        let made = async { files.mkdir_all(parent, 0o755).await.map_err(CopyError::target) };
        unless_stopped(watch, made).await?;
        match self.put(&transfer, feed).await? {
            Ok(()) => feed.sums().await,
            Err(failure) => Err(self.failed(&transfer, feed, failure)),
        }
    }

    /// Makes the request, and ends it if the source fails or nothing moves.
    async fn put(
        &self,
        transfer: &UrlTransfer,
        feed: &Arc<Feed>,
    ) -> Result<Result<(), TransferFailure>, CopyError> {
        let mut headers = HeaderMap::new();
        if !self.options.force {
            headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("*"));
        }
        let source = feed.source();
        tokio::select! {
            biased;
            () = self.watch.cancelled() => Err(CopyError::Cancelled),
            error = feed.failed() => Err(error),
            error = feed.too_slow() => Err(error),
            done = transfer.transfer().put(headers, feed.size, &source) => Ok(done),
            seconds = feed.overdue() => {
                let error = transfer.error_of(Cause::TimedOut(seconds)).uncertain(true);
                Err(CopyError::target(error))
            }
        }
    }

    fn failed(&self, transfer: &UrlTransfer, feed: &Feed, failure: TransferFailure) -> CopyError {
        match failure {
            TransferFailure::Status { status: StatusCode::PRECONDITION_FAILED, .. }
                if !self.options.force =>
            {
                CopyError::Exists(self.url.to_string())
            }
            failure => {
                let is_refused = matches!(failure, TransferFailure::Status { .. });
                feed.is_refused.store(is_refused, Ordering::Relaxed);
                // The server may have stored a file of which it has all bytes.
                let is_lost = matches!(failure, TransferFailure::Cause(Cause::Lost(_)));
                CopyError::target(transfer.error(failure).uncertain(is_lost && feed.is_sent()))
            }
        }
    }
}

/// Reports whether two looks have found the same version of a file.
fn is_unchanged(one: &StatInfo, other: &StatInfo) -> bool {
    (one.size, one.mtime, one.id) == (other.size, other.mtime, other.id)
}

/// Reports whether an upload that has failed in this way can have left a part of the file.
fn leaves_part(error: &CopyError) -> bool {
    match error {
        CopyError::Exists(_) => false,
        CopyError::Remote { side: Side::Target, error } => {
            let is_broken_off = match error.cause() {
                // The latter is also a success before the end of the file.
                Cause::Lost(_) | Cause::TimedOut(_) | Cause::BadAnswer(_) => true,
                _ => false,
            };
            is_broken_off && !error.is_uncertain()
        }
        _ => true,
    }
}

/// The state of the source.
enum FeedState {
    Sending,
    Sent(Vec<Checksum>),
    Failed(CopyError),
}

/// The source as the body of requests.
struct Feed {
    source: SourceReader,
    size: u64,
    algorithms: Vec<Algorithm>,
    chunk_bytes: usize,
    ahead: usize,
    rate: Option<Rate>,
    rate_min: Option<u64>,
    /// Time in which the server must take a piece.
    silence: Duration,
    /// Time for its reply after the last one.
    reply_time: Duration,
    /// The source and the target as they are displayed.
    places: (String, String),
    watch: Watch,
    state: watch::Sender<FeedState>,
    /// Bytes of this request, and at most of an earlier one.
    copied: AtomicU64,
    copied_before: AtomicU64,
    /// The number of requests. Only the last one counts.
    starts: AtomicUsize,
    /// The server has answered by a refusal.
    is_refused: AtomicBool,
}

impl Feed {
    fn new(upload: &WebUpload<'_>, source: SourceReader, size: u64, algorithms: Vec<Algorithm>) -> Self {
        let WebUpload { copier, options, watch, url: target, .. } = *upload;
        let settings = copier.client.settings();
        let ahead = match &source.from {
            SourceKind::Local(_) | SourceKind::Memory(_) => LOCAL_AHEAD,
            _ => options.chunks.max(1),
        };
        let state = match size {
            0 => FeedState::Sent(finished(&algorithms)),
            _ => FeedState::Sending,
        };
        watch.begin(0, Some(size));
        Self {
            places: (source.place.to_string(), target.to_string()),
            source,
            size,
            algorithms,
            chunk_bytes: options.chunk_bytes.max(1),
            ahead,
            rate: options.rate.clone(),
            rate_min: options.rate_min,
            silence: settings.silence(),
            reply_time: settings.operation_time(),
            watch: watch.clone(),
            state: watch::Sender::new(state),
            copied: AtomicU64::new(0),
            copied_before: AtomicU64::new(0),
            starts: AtomicUsize::new(0),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Returns the source of a request, which starts at its beginning.
    fn source(self: &Arc<Self>) -> UploadSource {
        let feed = self.clone();
        Arc::new(move || {
            let (into, pieces) = mpsc::channel(PIECES);
            let number = feed.starts.fetch_add(1, Ordering::Relaxed);
            if number > 0 && !feed.source.is_stream() {
                feed.state.send_replace(FeedState::Sending);
                feed.copied_before.fetch_max(feed.copied.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                feed.watch.begin(0, Some(feed.size));
            }
            tokio::spawn(feed.clone().run(number, into));
            pieces
        })
    }

    async fn run(self: Arc<Self>, number: usize, into: mpsc::Sender<io::Result<Bytes>>) {
        let fed = self.feed(number, &into).await;
        match fed {
            // Another request has begun.
            _ if self.starts.load(Ordering::Relaxed) > number + 1 => {}
            Ok(Some(sums)) => drop(self.state.send_replace(FeedState::Sent(sums))),
            // The request has ended.
            Ok(None) => {}
            Err(error) => {
                self.state.send_replace(FeedState::Failed(error));
                // The body must not look complete. Its reader may be gone.
                let _ = into.try_send(Err(io::Error::other("the source failed")));
            }
        }
    }

    /// Sends the source in its order. Returns its checksums; `None` if nobody takes it.
    async fn feed(
        self: &Arc<Self>,
        number: usize,
        into: &mpsc::Sender<io::Result<Bytes>>,
    ) -> Result<Option<Vec<Checksum>>, CopyError> {
        let is_stream = self.source.is_stream();
        if number > 0 && is_stream {
            let text = format!("{} can be read only once, and the server asks for it again", self.places.0);
            return Err(CopyError::Usage(text));
        }
        let mut sums: Vec<RunningChecksum> =
            self.algorithms.iter().copied().map(RunningChecksum::new).collect();
        let mut reads = VecDeque::new();
        let (mut next, mut sent) = (0, 0);
        while sent < self.size {
            while !is_stream && next < self.size && reads.len() < self.ahead {
                let length = self.chunk_at(next);
                let (feed, at) = (self.clone(), next);
                reads.push_back(AbortOnDrop::spawn(async move { feed.source.read(at, length).await }));
                next += length as u64;
            }
            let data = match reads.pop_front() {
                Some(read) => read.join().await.unwrap_or(Err(CopyError::Cancelled))?,
                None => self.source.read_next(self.chunk_at(sent)).await?,
            };
            if data.is_empty() {
                let (place, at) = (self.places.0.clone(), sent);
                return Err(CopyError::Short { place, at, size: self.size });
            }
            sent += data.len() as u64;
            if !sums.is_empty() {
                let summed = data.clone();
                let add = move || {
                    sums.iter_mut().for_each(|sum| sum.update(&summed));
                    sums
                };
                sums = self.source.disk.run(add).await.ok_or(CopyError::Cancelled)?;
            }
            if !self.pass(data, into).await? {
                return Ok(None);
            }
        }
        Ok(Some(sums.into_iter().map(RunningChecksum::finish).collect()))
    }

    /// Returns the size of the chunk at an offset.
    fn chunk_at(&self, offset: u64) -> usize {
        usize::try_from(self.size - offset).unwrap_or(usize::MAX).min(self.chunk_bytes)
    }

    /// Gives data to the connection. Returns `false` if the request has ended.
    async fn pass(&self, mut data: Bytes, into: &mpsc::Sender<io::Result<Bytes>>) -> Result<bool, CopyError> {
        while !data.is_empty() {
            let piece = data.split_to(data.len().min(PIECE_BYTES));
            let length = piece.len();
            if let Some(rate) = &self.rate {
                rate.take(length).await;
            }
            match timeout(self.silence, into.send(Ok(piece))).await {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ok(false),
                Err(_) => {
                    let late = Cause::TimedOut(self.silence.as_secs());
                    return Err(CopyError::target(Error::new("write", &self.places.1, late)));
                }
            }
            self.copied.fetch_add(length as u64, Ordering::Relaxed);
            self.watch.advance(length as u64, Some(self.size));
        }
        Ok(true)
    }

    /// Returns the checksums, once all of the source is sent.
    async fn sums(&self) -> Result<Vec<Checksum>, CopyError> {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| !matches!(state, FeedState::Sending)).await;
        match ended.as_deref() {
            Ok(FeedState::Sent(sums)) => Ok(sums.clone()),
            Ok(FeedState::Failed(error)) => Err(error.clone()),
            Ok(FeedState::Sending) | Err(_) => Err(CopyError::Cancelled),
        }
    }

    fn is_sent(&self) -> bool {
        matches!(&*self.state.borrow(), FeedState::Sent(_))
    }

    /// Returns when the source has failed.
    async fn failed(&self) -> CopyError {
        let mut state = self.state.subscribe();
        if let Ok(ended) = state.wait_for(|state| matches!(state, FeedState::Failed(_))).await
            && let FeedState::Failed(error) = &*ended
        {
            return error.clone();
        }
        std::future::pending().await
    }

    /// Returns when the server has not replied for too long after the last byte: with the seconds.
    async fn overdue(&self) -> u64 {
        let mut state = self.state.subscribe();
        loop {
            if state.wait_for(|state| matches!(state, FeedState::Sent(_))).await.is_err() {
                std::future::pending::<()>().await;
            }
            // A redirect may make the server ask for it again.
            let again = state.wait_for(|state| !matches!(state, FeedState::Sent(_)));
            if timeout(self.reply_time, again).await.is_err() {
                return self.reply_time.as_secs();
            }
        }
    }

    /// Returns when the rate is below the minimum.
    async fn too_slow(&self) -> CopyError {
        let Some(least) = self.rate_min else { return std::future::pending().await };
        let mut floor = Floor::new(least, Instant::now());
        loop {
            tokio::time::sleep(LOOK_TIME).await;
            let copied = self.copied.load(Ordering::Relaxed);
            if copied < self.size
                && let Some(rate) = floor.look(copied, Instant::now())
            {
                return CopyError::Slow { place: self.places.0.clone(), rate, least };
            }
        }
    }
}

fn finished(algorithms: &[Algorithm]) -> Vec<Checksum> {
    algorithms.iter().map(|algorithm| RunningChecksum::new(*algorithm).finish()).collect()
}
