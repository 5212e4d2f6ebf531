//! [`UploadFeed`]: the source of an upload over HTTP, in its order, as the body of requests.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use digest::{Algorithm, Checksum, RunningChecksum};
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

use super::failure::CopyError;
use super::options::Watch;
use super::rate::{Floor, Rate};
use super::source::{SourceKind, SourceReader};
use super::web_target::WebUpload;
use crate::abort_on_drop::AbortOnDrop;
use crate::failure::{Cause, Error};
use crate::http::UploadSource;

/// Bytes that are given to the connection at a time.
const PIECE_BYTES: usize = 128 * 1024;
/// Number of these that wait for it.
const PIECES: usize = 4;
/// Number of chunks of a local file that are read ahead.
const LOCAL_AHEAD: usize = 2;
/// Interval between checks of the rate.
const LOOK_TIME: Duration = Duration::from_secs(1);

/// The state of the source.
enum FeedState {
    Sending,
    Sent(Vec<Checksum>),
    Failed(CopyError),
}

/// The source as the body of requests.
pub(super) struct UploadFeed {
    source: SourceReader,
    /// Size in bytes; `None` if it is only known at the end.
    pub(super) size: Option<u64>,
    algorithms: Vec<Algorithm>,
    chunk_bytes: usize,
    ahead: usize,
    rate: Option<Rate>,
    rate_min: Option<u64>,
    /// Time in which the server must take a piece.
    pub(super) silence: Duration,
    /// Time for its reply after the last one.
    reply_time: Duration,
    /// The source and the target as they are displayed.
    places: (String, String),
    watch: Watch,
    state: watch::Sender<FeedState>,
    /// Bytes of this request, and at most of an earlier one.
    pub(super) copied: AtomicU64,
    pub(super) copied_before: AtomicU64,
    /// The number of requests. Only the last one counts.
    starts: AtomicUsize,
    /// The server has answered by a refusal.
    pub(super) is_refused: AtomicBool,
}

impl UploadFeed {
    pub(super) fn new(upload: &WebUpload<'_>, source: SourceReader, algorithms: Vec<Algorithm>) -> Self {
        let WebUpload { copier, options, watch, url: target, .. } = *upload;
        let size = source.size;
        let settings = copier.client.settings();
        let ahead = match &source.from {
            SourceKind::Local(_) | SourceKind::Memory(_) => LOCAL_AHEAD,
            _ => options.chunks.max(1),
        };
        let state = match size {
            Some(0) => FeedState::Sent(finished(&algorithms)),
            _ => FeedState::Sending,
        };
        watch.begin(0, size);
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
    pub(super) fn source(self: &Arc<Self>) -> UploadSource {
        let feed = self.clone();
        Arc::new(move || {
            let (into, pieces) = mpsc::channel(PIECES);
            let number = feed.starts.fetch_add(1, Ordering::Relaxed);
            if number > 0 && !feed.source.is_stream() {
                feed.state.send_replace(FeedState::Sending);
                feed.copied_before.fetch_max(feed.copied.swap(0, Ordering::Relaxed), Ordering::Relaxed);
                feed.watch.begin(0, feed.size);
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
        while self.size.is_none_or(|size| sent < size) {
            while !is_stream && self.size.is_none_or(|size| next < size) && reads.len() < self.ahead {
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
                let Some(size) = self.size else { break };
                let (place, at) = (self.places.0.clone(), sent);
                return Err(CopyError::Short { place, at, size });
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
        let rest = self.size.map_or(u64::MAX, |size| size - offset);
        usize::try_from(rest).unwrap_or(usize::MAX).min(self.chunk_bytes)
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
            self.watch.advance(length as u64, self.size);
        }
        Ok(true)
    }

    /// Returns the checksums, once all of the source is sent.
    pub(super) async fn sums(&self) -> Result<Vec<Checksum>, CopyError> {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| !matches!(state, FeedState::Sending)).await;
        match ended.as_deref() {
            Ok(FeedState::Sent(sums)) => Ok(sums.clone()),
            Ok(FeedState::Failed(error)) => Err(error.clone()),
            Ok(FeedState::Sending) | Err(_) => Err(CopyError::Cancelled),
        }
    }

    pub(super) fn is_sent(&self) -> bool {
        matches!(&*self.state.borrow(), FeedState::Sent(_))
    }

    /// Returns when the source has failed.
    pub(super) async fn failed(&self) -> CopyError {
        let mut state = self.state.subscribe();
        if let Ok(ended) = state.wait_for(|state| matches!(state, FeedState::Failed(_))).await
            && let FeedState::Failed(error) = &*ended
        {
            return error.clone();
        }
        std::future::pending().await
    }

    /// Returns when the server has not replied for too long after the last byte: with the seconds.
    pub(super) async fn overdue(&self) -> u64 {
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
    pub(super) async fn too_slow(&self) -> CopyError {
        let Some(least) = self.rate_min else { return std::future::pending().await };
        let mut floor = Floor::new(least, Instant::now());
        loop {
            tokio::time::sleep(LOOK_TIME).await;
            let copied = self.copied.load(Ordering::Relaxed);
            if self.size.is_none_or(|size| copied < size)
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
