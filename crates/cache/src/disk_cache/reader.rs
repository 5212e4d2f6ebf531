//! [`CacheReader`]: a reader of a cached file.

use super::cached_file::{CachedFile, ReadResult};
use super::closing::{FileClosing, FileInUse};
use super::{CacheOrigin, CacheReadError, DiskCache};
use crate::{OriginVersion, ReadId, ReaderId};
use std::ops::Range;
use std::sync::Arc;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

/// A reader of a cached file. All readers of a version share what is fetched.
pub struct CacheReader<O: CacheOrigin> {
    pub(super) cache: Arc<DiskCache<O>>,
    pub(super) file: Arc<CachedFile<O>>,
    id: ReaderId,
    origin: Arc<O>,
    /// Taken at its end.
    in_use: Option<FileInUse>,
}

/// A read in progress. It is forgotten if its caller leaves.
#[must_use]
pub struct CacheRead<'a, O: CacheOrigin> {
    file: &'a CachedFile<O>,
    /// The read and its result; `None` for a read behind the end.
    pending: Option<(ReadId, oneshot::Receiver<ReadResult<O>>)>,
    bytes: Range<u64>,
    origin: &'a O,
    began: Instant,
}

impl<O: CacheOrigin> Drop for CacheRead<'_, O> {
    fn drop(&mut self) {
        if let Some((read, _)) = &self.pending {
            self.file.cancel(*read);
        }
    }
}

impl<O: CacheOrigin> CacheRead<'_, O> {
    /// Waits for the bytes, writes them into `into` and returns their number. Fewer than requested mean the end of
    /// the file.
    ///
    /// # Errors
    /// [`CacheReadError`] if bytes that are not stored could not be fetched, or the file has changed.
    pub async fn finish(mut self, into: &mut [u8]) -> Result<usize, CacheReadError<O::Failure>> {
        let Some((read, result)) = &mut self.pending else { return Ok(0) };
        let parts = match timeout_at(self.began + self.file.shared.patience, &mut *result).await {
            Ok(parts) => parts.unwrap_or(Err(CacheReadError::Ended))?,
            Err(_) => wait_longer(self.file, *read, (self.origin, &self.bytes), result).await?,
        };
        let mut count = 0;
        for (at, content) in parts {
            let begin = at.checked_sub(self.bytes.start).and_then(|begin| usize::try_from(begin).ok());
            let place = begin.and_then(|begin| into.get_mut(begin..begin.checked_add(content.len())?));
            let Some(place) = place else { return Err(CacheReadError::Ended) };
            place.copy_from_slice(&content);
            count += content.len();
        }
        self.file.shared.counters.bytes_delivered.add(count as u64);
        // Each byte arrives once.
        if count as u64 == self.bytes.end - self.bytes.start { Ok(count) } else { Err(CacheReadError::Ended) }
    }
}

/// Waits for a read that takes long. If it waits for the connection of another reader, which may hang, or for the disk,
/// the bytes are requested by its own connection.
async fn wait_longer<O: CacheOrigin>(
    file: &CachedFile<O>,
    read: ReadId,
    (origin, bytes): (&O, &Range<u64>),
    result: &mut oneshot::Receiver<ReadResult<O>>,
) -> ReadResult<O> {
    while !file.waits_for_another(read) && !file.waits_for_disk(read) {
        if let Ok(parts) = timeout(file.shared.patience, &mut *result).await {
            return parts.unwrap_or(Err(CacheReadError::Ended));
        }
    }
    tokio::select! {
        parts = &mut *result => return parts.unwrap_or(Err(CacheReadError::Ended)),
        content = file.request(origin, bytes) => match content {
            Ok(content) => return Ok(vec![(bytes.start, content)]),
            Err(failure) if file.waits_for_another(read) => return Err(failure),
            // A slow disk may still have them.
            Err(_) => {}
        }
    }
    result.await.unwrap_or(Err(CacheReadError::Ended))
}

/// Reports whether a file is as it was when it was opened, as far as this server knows.
pub(super) fn is_settled<O: CacheOrigin>(cache: &DiskCache<O>, file: &CachedFile<O>) -> bool {
    !file.is_suspect() && !cache.changes.is_content_changing(&file.key)
}

impl<O: CacheOrigin> CacheReader<O> {
    pub(super) fn new(
        cache: Arc<DiskCache<O>>,
        file: Arc<CachedFile<O>>,
        id: ReaderId,
        origin: Arc<O>,
    ) -> Self {
        let in_use = Some(FileInUse::new(&file.shared));
        Self { cache, file, id, origin, in_use }
    }

    /// Returns the version of the file.
    #[must_use]
    pub fn version(&self) -> OriginVersion {
        self.file.version()
    }

    /// Fails if the file may have been changed through this server since it was opened, or is being changed, and is
    /// another version at the origin. To be called before each read.
    ///
    /// # Errors
    /// [`CacheReadError`].
    pub async fn check(&self) -> Result<(), CacheReadError<O::Failure>> {
        if self.is_settled() { Ok(()) } else { self.file.check_version(&*self.origin).await }
    }

    /// Reports whether reads may take stored bytes without a comparison of the version.
    fn is_settled(&self) -> bool {
        is_settled(&self.cache, &self.file)
    }

    /// Returns the bytes of the file that a read of this length gets.
    fn range(&self, offset: u64, length: usize) -> Range<u64> {
        let end = offset.saturating_add(length as u64).min(self.file.version().size);
        offset.min(end)..end
    }

    /// Reads stored bytes that are in memory, without waiting, and verifies their blocks. Returns their number, or `None` if that is not possible;
    /// `into` may be written partly then. Fewer mean the end of the file.
    pub fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let bytes = self.range(offset, into.len());
        let place = into.get_mut(..usize::try_from(bytes.end - bytes.start).ok()?)?;
        let length = place.len();
        let is_read = length > 0
            && self.is_settled()
            && self.file.store.read_now(offset, place)
            && self.file.note_read_now(self.id, &bytes);
        is_read.then_some(length)
    }

    /// Counts a block as if it had been written.
    #[cfg(test)]
    pub(super) fn count_stored(&self, block: u64) {
        self.file.stored_late(block);
    }

    /// Begins to read. Several reads can be in progress at once.
    pub fn begin(&self, offset: u64, length: usize) -> CacheRead<'_, O> {
        let bytes = self.range(offset, length);
        let pending = (!bytes.is_empty()).then(|| self.file.begin_read(self.id, bytes.clone()));
        CacheRead { file: &self.file, pending, bytes, origin: &self.origin, began: Instant::now() }
    }

    /// Reads into `into` and returns the number of bytes. Fewer mean the end of the file.
    ///
    /// # Errors
    /// [`CacheReadError`] if bytes that are not stored could not be fetched, or the file has changed.
    pub async fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, CacheReadError<O::Failure>> {
        self.check().await?;
        self.begin(offset, into.len()).finish(into).await
    }
}

impl<O: CacheOrigin> Drop for CacheReader<O> {
    fn drop(&mut self) {
        self.file.shared.counters.closes.add(1);
        if self.file.detach(self.id)
            && let Some(in_use) = self.in_use.take()
        {
            FileClosing(self.cache.clone()).begin(&self.file, in_use);
        }
    }
}
