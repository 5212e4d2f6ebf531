//! [`MemoryCacheReader`]: a reader of a file in the memory cache.

use super::memory_file::MemoryFile;
use super::page_table::PageKey;
use super::{MemoryCache, fetch_units};
use crate::{CacheOrigin, CacheReadError, OriginVersion};
use bytes::Bytes;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::time::Instant;

/// A reader of a file. All readers of a version share its pages.
pub struct MemoryCacheReader<O: CacheOrigin> {
    cache: Arc<MemoryCache>,
    pub(super) file: Arc<MemoryFile>,
    origin: Arc<O>,
    /// The origin has moved to another server, whose bytes are not kept.
    has_moved: AtomicBool,
}

impl<O: CacheOrigin> Drop for MemoryCacheReader<O> {
    fn drop(&mut self) {
        self.cache.counters.closes.add(1);
    }
}

impl<O: CacheOrigin> MemoryCacheReader<O> {
    pub(super) fn new(cache: Arc<MemoryCache>, file: Arc<MemoryFile>, origin: Arc<O>) -> Self {
        Self { cache, file, origin, has_moved: AtomicBool::new(false) }
    }

    /// Returns the version of the file.
    #[must_use]
    pub fn version(&self) -> OriginVersion {
        self.file.version()
    }

    /// Reports whether the file may have been changed through this server since it was opened, or is being changed.
    fn is_suspect(&self) -> bool {
        self.file.is_suspect() || self.cache.changes.is_content_changing(&self.file.key)
    }

    fn may_keep(&self) -> bool {
        self.file.may_keep() && !self.has_moved.load(Ordering::Acquire)
    }

    fn key(&self, page: u64) -> PageKey {
        PageKey { file: self.file.number, page }
    }

    fn page_bytes(&self) -> u64 {
        self.cache.settings.page_bytes
    }

    /// Returns the bytes of the file that a read of this length gets.
    fn range(&self, offset: u64, length: usize) -> Range<u64> {
        let end = offset.saturating_add(length as u64).min(self.file.version().size);
        offset.min(end)..end
    }

    fn pages_of(&self, bytes: &Range<u64>) -> Range<u64> {
        bytes.start / self.page_bytes()..bytes.end.div_ceil(self.page_bytes())
    }

    /// Reads without a request at the origin. `None` if it needs one; `into` may be written partly then.
    pub fn read_now(&self, offset: u64, into: &mut [u8]) -> Option<usize> {
        let bytes = self.range(offset, into.len());
        if self.is_suspect() {
            return None;
        }
        for page in self.pages_of(&bytes) {
            let content = self.cache.pages.request(self.key(page))?;
            copy_part(&content, page * self.page_bytes(), &bytes, into)?;
        }
        let length = usize::try_from(bytes.end - bytes.start).ok()?;
        self.cache.counters.bytes_hit.add(length as u64);
        self.cache.counters.bytes_delivered.add(length as u64);
        Some(length)
    }

    /// Reads into `into` and returns the number of bytes. Fewer mean the end of the file.
    ///
    /// # Errors
    /// [`CacheReadError`] if bytes that are not in memory could not be fetched, or the file has changed.
    pub async fn read(&self, offset: u64, into: &mut [u8]) -> Result<usize, CacheReadError<O::Failure>> {
        if let Some(count) = self.read_now(offset, into) {
            return Ok(count);
        }
        if self.is_suspect() {
            self.check_version().await?;
        }
        let bytes = self.range(offset, into.len());
        let length = usize::try_from(bytes.end - bytes.start).map_err(|_| CacheReadError::Changed)?;
        if length == 0 {
            return Ok(0);
        }
        let counters = &self.cache.counters;
        if length as u64 > self.cache.settings.read_bytes_max || !self.may_keep() {
            self.bypass(bytes.clone(), &bytes, into).await?;
        } else {
            self.read_pages(&bytes, into).await?;
        }
        counters.bytes_delivered.add(length as u64);
        Ok(length)
    }

    /// Reads a part of the bytes of a read from the origin, and keeps nothing.
    async fn bypass(
        &self,
        part: Range<u64>,
        bytes: &Range<u64>,
        into: &mut [u8],
    ) -> Result<(), CacheReadError<O::Failure>> {
        let content = self.request(&part).await?;
        self.cache.counters.bypasses.add(1);
        self.cache.counters.bytes_bypassed.add(content.len() as u64);
        copy_part(&content, part.start, bytes, into).ok_or(CacheReadError::Ended)?;
        Ok(())
    }

    /// Reads from memory, and fetches the pages that are not there.
    async fn read_pages(
        &self,
        bytes: &Range<u64>,
        into: &mut [u8],
    ) -> Result<(), CacheReadError<O::Failure>> {
        let (pages, until) = (self.pages_of(bytes), Instant::now() + self.cache.settings.patience);
        let mut page = pages.start;
        while page < pages.end {
            let at = page * self.page_bytes();
            if let Some(content) = self.cache.pages.request(self.key(page)) {
                let count = copy_part(&content, at, bytes, into).ok_or(CacheReadError::Ended)?;
                self.cache.counters.bytes_hit.add(count);
                page += 1;
                continue;
            }
            let is_missing = |next: &u64| !self.cache.pages.contains(self.key(*next));
            let missing_to = |end| page + (page..end).take_while(is_missing).count() as u64;
            let wanted = missing_to(pages.end);
            let _turn = self.file.turn(page..wanted, until).await;
            // Other readers may have fetched some while this one has waited.
            let end = missing_to(wanted);
            if end == page {
                continue;
            }
            let fetched = at..(end * self.page_bytes()).min(self.file.version().size);
            let units = u32::try_from(fetch_units(fetched.end - at)).unwrap_or(u32::MAX);
            if let Ok(_room) = self.cache.fetches.try_acquire_many(units) {
                let content = self.fetch(fetched).await?;
                let count = copy_part(&content, at, bytes, into).ok_or(CacheReadError::Ended)?;
                self.cache.counters.bytes_shared.add(count);
            } else {
                // Too much is on its way already, so this read holds no more than its own bytes.
                self.bypass(at.max(bytes.start)..fetched.end.min(bytes.end), bytes, into).await?;
            }
            page = end;
        }
        Ok(())
    }

    /// Requests the bytes of whole pages at the origin and keeps them.
    async fn fetch(&self, bytes: Range<u64>) -> Result<Bytes, CacheReadError<O::Failure>> {
        let page_bytes = self.page_bytes();
        let content = self.request(&bytes).await?;
        self.cache.counters.bytes_missed.add(content.len() as u64);
        if self.may_keep() {
            let length = usize::try_from(page_bytes).unwrap_or(usize::MAX);
            for (page, part) in (bytes.start / page_bytes..).zip(content.chunks(length)) {
                // A part of the memory of a reply would keep all of it.
                self.cache.pages.insert(self.key(page), Bytes::copy_from_slice(part));
            }
        }
        Ok(content)
    }

    /// Requests bytes at the origin. The version is compared after they have arrived, so they are those of the version
    /// of this file.
    async fn request(&self, bytes: &Range<u64>) -> Result<Bytes, CacheReadError<O::Failure>> {
        if self.file.has_changed() {
            return Err(CacheReadError::Changed);
        }
        let length = usize::try_from(bytes.end - bytes.start).map_err(|_| CacheReadError::Changed)?;
        let content = self.origin.read(bytes.start, length).await.map_err(CacheReadError::Origin)?;
        let version = self.origin.version().await.map_err(CacheReadError::Origin)?;
        if version != self.file.version() {
            // The identity of a copy is that of its own server.
            let copy = OriginVersion { id: version.id, ..self.file.version() };
            if !self.origin.has_moved() || version != copy || self.file.is_suspect() {
                self.file.set_changed();
                return Err(CacheReadError::Changed);
            }
            // The origin has other servers with the file. Their bytes are delivered and not kept.
            self.has_moved.store(true, Ordering::Release);
        }
        if content.len() != length {
            return Err(CacheReadError::Changed);
        }
        Ok(content)
    }

    /// Fails if the file at the origin is another version.
    async fn check_version(&self) -> Result<(), CacheReadError<O::Failure>> {
        let version = self.origin.version().await.map_err(CacheReadError::Origin)?;
        if version != self.file.version() {
            self.file.set_changed();
            return Err(CacheReadError::Changed);
        }
        Ok(())
    }
}

/// Copies what `content`, which begins at `at`, has of the bytes of a read. Returns the number of bytes; `None` if they
/// have no place.
fn copy_part(content: &[u8], at: u64, bytes: &Range<u64>, into: &mut [u8]) -> Option<u64> {
    let end = at.checked_add(content.len() as u64)?.min(bytes.end);
    let begin = at.max(bytes.start).min(end);
    let index = |position: u64, base: u64| usize::try_from(position.checked_sub(base)?).ok();
    let from = content.get(index(begin, at)?..index(end, at)?)?;
    into.get_mut(index(begin, bytes.start)?..index(end, bytes.start)?)?.copy_from_slice(from);
    Some(from.len() as u64)
}
