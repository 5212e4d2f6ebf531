//! Uploads to object stores: one PUT, or parts that become one object at the end.
//!
//! The object appears whole or not at all: it is completed only after all of the source has arrived and its
//! checksums are right. The parts of a failed upload are removed.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use digest::RunningChecksum;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tokio::time::timeout;
use wire::xroot::ErrorCode;

use super::checks::Checks;
use super::failure::CopyError;
use super::opening::{REMOVE_TIME, unless_stopped};
use super::options::CopyDone;
use super::source::SourceReader;
use super::upload_feed::UploadFeed;
use super::web_target::WebUpload;
use crate::failure::Error;
use crate::http::{OBJECT_PARTS_MAX as PARTS_MAX, ObjectUpload, PartsId, StoredPart, object_part_bytes};

/// Unit of the sizes of parts.
const MEBIBYTE: u64 = 1 << 20;
/// Size of the parts of a source whose size is not known. All parts have one size, because some stores need it.
const PART_BYTES: u64 = 64 * MEBIBYTE;
/// Maximum size of an object.
const OBJECT_BYTES_MAX: u64 = 5 << 40;
/// Maximum number of parts of one object that are sent at the same time.
const PARTS_AT_ONCE: usize = 4;
/// Memory for the parts of all copies, in MiB. A larger part takes all of it.
const MEMORY_MAX: u32 = 256;

/// Memory for parts that are read and sent.
#[derive(Clone)]
pub(super) struct ObjectPartMemory(Arc<Semaphore>);

impl Default for ObjectPartMemory {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MEMORY_MAX as usize)))
    }
}

impl ObjectPartMemory {
    /// Waits for the memory of a part. Parts that are being sent return theirs.
    async fn take(&self, bytes: u64) -> Result<OwnedSemaphorePermit, CopyError> {
        let count = u32::try_from(bytes.div_ceil(MEBIBYTE)).unwrap_or(MEMORY_MAX).min(MEMORY_MAX);
        self.0.clone().acquire_many_owned(count).await.map_err(|_| CopyError::Cancelled)
    }
}

/// Returns the size of the parts of an object; `None` if it is too large.
fn part_bytes(size: Option<u64>) -> Option<u64> {
    let Some(size) = size else { return Some(PART_BYTES) };
    (size <= OBJECT_BYTES_MAX).then(|| object_part_bytes(size))
}

/// A part in memory.
struct ObjectPart {
    data: Bytes,
    _memory: OwnedSemaphorePermit,
}

/// The pieces of the source, joined to parts.
struct ObjectPartReader {
    pieces: mpsc::Receiver<std::io::Result<Bytes>>,
    /// The beginning of the next part.
    rest: Bytes,
    part_bytes: usize,
    memory: ObjectPartMemory,
    /// Bytes that are not read yet, if the size is known.
    left: Option<u64>,
}

impl ObjectPartReader {
    /// Reads the next part. It is shorter than others only at the end of the source, and empty behind it.
    async fn next(&mut self) -> Result<ObjectPart, CopyError> {
        let expected = self.left.unwrap_or(u64::MAX).min(self.part_bytes as u64);
        let memory = self.memory.take(expected).await?;
        let mut data = BytesMut::with_capacity(usize::try_from(expected).unwrap_or(0));
        while data.len() < self.part_bytes {
            if self.rest.is_empty() {
                // After a failure of the source, these bytes are not stored.
                let Some(Ok(piece)) = self.pieces.recv().await else { break };
                self.rest = piece;
            }
            let taken = self.rest.len().min(self.part_bytes - data.len());
            data.extend_from_slice(&self.rest.split_to(taken));
        }
        self.left = self.left.map(|left| left.saturating_sub(data.len() as u64));
        Ok(ObjectPart { data: data.freeze(), _memory: memory })
    }
}

/// An object that is complete but for its last request.
enum SentObject {
    /// All of it is in memory.
    Small(ObjectPart),
    /// It is in parts in the store.
    Parts(PartsId, Vec<StoredPart>),
}

/// An upload to an object store.
pub(super) struct ObjectCopy<'a>(pub(super) WebUpload<'a>);

impl ObjectCopy<'_> {
    pub(super) async fn run(&self, source: SourceReader) -> Result<CopyDone, CopyError> {
        let WebUpload { copier, job, options, watch, url } = self.0;
        let Some(part_bytes) = part_bytes(source.size) else {
            let text = format!("{url}: an object has at most {} TiB", OBJECT_BYTES_MAX >> 40);
            return Err(CopyError::Usage(text));
        };
        let begin = Box::pin(Checks::begin(copier, &source, &job.target, options));
        let mut checks = unless_stopped(watch, begin).await?;
        // The object is replaced after all of the source was read, so that it may be the source under another name.
        let opened = async {
            let opened = copier.client.create_object(url, !options.force).await;
            opened.map_err(|error| self.refused(error))
        };
        let upload = unless_stopped(watch, Box::pin(opened)).await?;
        let algorithms = checks.sums().iter().map(RunningChecksum::algorithm).collect();
        let mut feed = UploadFeed::new(&self.0, source, algorithms);
        // Each part has a limit of time of its own.
        feed.silence = copier.client.settings().operation_time();
        let feed = Arc::new(feed);
        let reader = self.reader(&feed, part_bytes);
        let mut sending = ObjectParts { upload: &upload, id: None, sent: JoinSet::new(), count: 0, size: 0 };
        let sent = tokio::select! {
            biased;
            () = watch.cancelled() => Err(CopyError::Cancelled),
            error = feed.failed() => Err(error),
            error = feed.too_slow() => Err(error),
            sent = sending.send(reader) => sent,
        };
        let completed = async {
            let sent = sent?;
            let sums = feed.sums().await?;
            let heard = async {
                checks.hear().await?;
                checks.verify_source(&job.source, &sums)
            };
            let checksums = unless_stopped(watch, Box::pin(heard)).await?;
            // An interrupted request would leave the user without knowing whether the object is there.
            let done = match sent {
                SentObject::Small(part) => upload.put(part.data).await,
                SentObject::Parts(id, parts) => upload.complete(&id, &parts).await,
            };
            done.map_err(|error| self.refused(error))?;
            Ok((checksums, sums))
        };
        let (mut checksums, sums) = match Box::pin(completed).await {
            Ok(done) => done,
            Err(error) => {
                sending.abort().await;
                return Err(error);
            }
        };
        let own = self.0.own(sending.size).await;
        let verified = Box::pin(checks.verify_target(copier, &job.target, Some(url), &sums));
        match unless_stopped(watch, verified).await {
            Ok(of_target) => checksums.extend(of_target),
            Err(error) => {
                if matches!(error, CopyError::Checksum { .. }) {
                    self.0.remove(own).await;
                }
                return Err(error);
            }
        }
        Ok(CopyDone { checksums, ..CopyDone::of(sending.size, sending.size) })
    }

    /// Begins to read the source.
    fn reader(&self, feed: &Arc<UploadFeed>, part_bytes: u64) -> ObjectPartReader {
        ObjectPartReader {
            pieces: feed.source()(),
            rest: Bytes::new(),
            part_bytes: usize::try_from(part_bytes).unwrap_or(usize::MAX),
            memory: self.0.copier.part_memory.clone(),
            left: feed.size,
        }
    }

    /// Returns the error of a request.
    fn refused(&self, error: Error) -> CopyError {
        match error.code() {
            Some(ErrorCode::IS_DIRECTORY) => CopyError::IsDirectory(self.0.url.to_string()),
            Some(ErrorCode::IT_EXISTS) if !error.is_uncertain() => CopyError::Exists(self.0.url.to_string()),
            _ => CopyError::target(error),
        }
    }
}

/// The parts of an object that are sent.
struct ObjectParts<'a> {
    upload: &'a ObjectUpload,
    /// The upload in parts, from the first part on.
    id: Option<PartsId>,
    sent: JoinSet<Result<(usize, StoredPart), Error>>,
    /// Number of parts.
    count: usize,
    /// Number of bytes that were read.
    size: u64,
}

impl ObjectParts<'_> {
    /// Sends the source, unless it fits into one part.
    async fn send(&mut self, mut reader: ObjectPartReader) -> Result<SentObject, CopyError> {
        let first = reader.next().await?;
        self.size += first.data.len() as u64;
        if first.data.len() < reader.part_bytes || reader.left == Some(0) {
            return Ok(SentObject::Small(first));
        }
        let id = self.upload.begin().await.map_err(CopyError::target)?;
        self.id = Some(id.clone());
        let (mut part, mut stored) = (first, Vec::new());
        while !part.data.is_empty() {
            if self.count as u64 == PARTS_MAX {
                let text = format!(
                    "{}: more than {} GiB cannot be stored without a known size; copy it to a file first",
                    self.upload.url(),
                    (PARTS_MAX * PART_BYTES) >> 30
                );
                return Err(CopyError::Usage(text));
            }
            while self.sent.len() >= PARTS_AT_ONCE {
                stored.extend(self.next_stored().await?);
            }
            self.begin_part(&id, part);
            part = reader.next().await?;
            self.size += part.data.len() as u64;
        }
        while let Some(next) = self.next_stored().await? {
            stored.push(next);
        }
        stored.sort_unstable_by_key(|(number, _)| *number);
        Ok(SentObject::Parts(id, stored.into_iter().map(|(_, part)| part).collect()))
    }

    fn begin_part(&mut self, id: &PartsId, part: ObjectPart) {
        self.count += 1;
        let (upload, id, number) = (self.upload.clone(), id.clone(), self.count);
        self.sent.spawn(async move {
            let stored = upload.put_part(&id, number, part.data.clone()).await;
            drop(part);
            Ok((number, stored?))
        });
    }

    /// Waits for one part; `None` if none is being sent.
    async fn next_stored(&mut self) -> Result<Option<(usize, StoredPart)>, CopyError> {
        match self.sent.join_next().await {
            None => Ok(None),
            Some(Ok(stored)) => stored.map(Some).map_err(CopyError::target),
            Some(Err(_)) => Err(CopyError::Cancelled),
        }
    }

    /// Removes the parts from the store. An unresponsive one is abandoned.
    async fn abort(&mut self) {
        self.sent.shutdown().await;
        let Some(id) = self.id.take() else { return };
        match timeout(REMOVE_TIME, self.upload.abort(&id)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the parts of an upload may remain in the store"),
            Err(_) => {
                tracing::warn!(url = %self.upload.url(), "the parts of an upload may remain in the store");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::OBJECT_PART_BYTES_MIN as PART_BYTES_MIN;

    #[test]
    fn parts_follow_the_size() {
        assert_eq!(part_bytes(None), Some(PART_BYTES));
        assert_eq!(part_bytes(Some(0)), Some(PART_BYTES_MIN));
        assert_eq!(part_bytes(Some(PART_BYTES_MIN * PARTS_MAX)), Some(PART_BYTES_MIN));
        assert_eq!(part_bytes(Some(PART_BYTES_MIN * PARTS_MAX + 1)), Some(PART_BYTES_MIN + MEBIBYTE));
        for size in [1 << 40, OBJECT_BYTES_MAX] {
            assert!(size.div_ceil(part_bytes(Some(size)).unwrap()) <= PARTS_MAX);
        }
        assert_eq!(part_bytes(Some(OBJECT_BYTES_MAX + 1)), None);
    }

    #[tokio::test]
    async fn pieces_become_parts_of_one_size() {
        let (into, pieces) = mpsc::channel(16);
        for length in [3, 9, 1, 7] {
            into.send(Ok(Bytes::from(vec![b'x'; length]))).await.unwrap();
        }
        drop(into);
        let memory = ObjectPartMemory::default();
        let mut reader = ObjectPartReader { pieces, rest: Bytes::new(), part_bytes: 8, memory, left: None };
        let mut sizes = Vec::new();
        loop {
            let part = reader.next().await.unwrap();
            if part.data.is_empty() {
                break;
            }
            sizes.push(part.data.len());
        }
        assert_eq!(sizes, [8, 8, 4]);
    }
}
