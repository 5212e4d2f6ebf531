//! The work of a [`CachedFile`]: requests at the origin as tasks, and calls of the disk as jobs of a pool.

use super::cached_file::{CachedFile, FileWork};
use super::shared::is_about_disk;
use super::{CacheOrigin, CacheReadError};
use crate::{FetchId, OriginVersion, ReadId};
use base::Owner;
use bytes::Bytes;
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Number of bytes that are written before they are made durable.
const FLUSH_BYTES: u64 = 64 << 20;

/// A block whose bytes have arrived.
struct ArrivedBlock {
    fetch: FetchId,
    block: u64,
    content: Bytes,
}

/// Blocks that are to be written. Those that are left when it is dropped are not stored, so nothing waits for them.
struct ArrivedBlocks<O: CacheOrigin> {
    file: Arc<CachedFile<O>>,
    blocks: VecDeque<ArrivedBlock>,
}

impl<O: CacheOrigin> Drop for ArrivedBlocks<O> {
    fn drop(&mut self) {
        for left in std::mem::take(&mut self.blocks) {
            self.file.stored(left.fetch, left.block, false);
        }
    }
}

/// A fetch in progress. If its task ends without a result, the reads that wait for it learn of that.
struct FetchInProgress<O: CacheOrigin> {
    file: Arc<CachedFile<O>>,
    fetch: FetchId,
    bytes: Range<u64>,
    has_ended: bool,
}

impl<O: CacheOrigin> FetchInProgress<O> {
    fn end(&mut self, result: Result<Bytes, CacheReadError<O::Failure>>) {
        self.has_ended = true;
        self.file.fetched(self.fetch, &self.bytes, result);
    }
}

impl<O: CacheOrigin> Drop for FetchInProgress<O> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(CacheReadError::Ended));
        }
    }
}

/// A request for one read in progress. If its task ends without a result, the read learns of that.
struct BypassInProgress<O: CacheOrigin> {
    file: Arc<CachedFile<O>>,
    read: ReadId,
    bytes: Range<u64>,
    has_ended: bool,
}

impl<O: CacheOrigin> BypassInProgress<O> {
    fn end(&mut self, result: Result<Bytes, CacheReadError<O::Failure>>) {
        self.has_ended = true;
        self.file.bypassed(self.read, self.bytes.clone(), result);
    }
}

impl<O: CacheOrigin> Drop for BypassInProgress<O> {
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Err(CacheReadError::Ended));
        }
    }
}

impl<O: CacheOrigin> CachedFile<O> {
    /// Starts work. Nothing of it is waited for.
    pub(super) fn start(self: &Arc<Self>, work: Vec<FileWork<O>>) {
        let mut stores = Vec::new();
        for work in work {
            match work {
                FileWork::Fetch { fetch, origin, bytes } => self.fetch(fetch, origin, bytes),
                FileWork::Lost(fetch) => self.fetched(fetch, &(0..0), Err(CacheReadError::Ended)),
                FileWork::Bypass { read, origin, bytes } => self.bypass(read, origin, bytes),
                FileWork::Store { fetch, block, content } => {
                    stores.push(ArrivedBlock { fetch, block, content })
                }
                FileWork::ReadStored { read, owner, bytes } => {
                    let file = self.clone();
                    let job = move || {
                        let length = usize::try_from(bytes.end - bytes.start).unwrap_or(0);
                        let mut content = vec![0; length];
                        let damaged = file.store.read(bytes.start, &mut content);
                        if !damaged.is_empty() {
                            file.shared.note_damage(&file.key, &damaged);
                        }
                        file.read_stored(read, bytes, content, &damaged);
                    };
                    // Front ends limit the bytes that a session has requested.
                    self.shared.reads.run_surely(owner, Box::new(job));
                }
            }
        }
        if !stores.is_empty() {
            self.store_blocks(stores);
        }
    }

    fn fetch(self: &Arc<Self>, fetch: FetchId, origin: Arc<O>, bytes: Range<u64>) {
        let mut progress =
            FetchInProgress { file: self.clone(), fetch, bytes: bytes.clone(), has_ended: false };
        self.shared.runtime.spawn(async move {
            let result = progress.file.request(&*origin, &bytes).await;
            progress.end(result);
        });
    }

    fn bypass(self: &Arc<Self>, read: ReadId, origin: Option<Arc<O>>, bytes: Range<u64>) {
        let mut progress = BypassInProgress { file: self.clone(), read, bytes, has_ended: false };
        self.shared.runtime.spawn(async move {
            let result = match origin {
                Some(origin) => progress.file.request(&*origin, &progress.bytes).await,
                None => Err(CacheReadError::Ended),
            };
            progress.end(result);
        });
    }

    /// Requests bytes at the origin. The version is compared after they have arrived, so they are those of the
    /// version of this file.
    pub(super) async fn request(
        &self,
        origin: &O,
        bytes: &Range<u64>,
    ) -> Result<Bytes, CacheReadError<O::Failure>> {
        if self.has_changed() {
            return Err(CacheReadError::Changed);
        }
        let length = usize::try_from(bytes.end - bytes.start).map_err(|_| CacheReadError::Changed)?;
        let content = origin.read(bytes.start, length).await.map_err(CacheReadError::Origin)?;
        let version = origin.version().await.map_err(CacheReadError::Origin)?;
        if version != self.version() {
            // The identity of a copy is that of its own server.
            let copy = OriginVersion { id: version.id, ..self.version() };
            let is_copy = origin.has_moved() && version == copy && !self.is_suspect();
            if !is_copy {
                self.set_changed();
                return Err(CacheReadError::Changed);
            }
            // The origin has other servers with the file. What they send is delivered and not stored.
            self.retire(false);
        }
        if content.len() != length {
            return Err(CacheReadError::Changed);
        }
        Ok(content)
    }

    /// Fails if the file at the origin is another version.
    pub(super) async fn check_version(&self, origin: &O) -> Result<(), CacheReadError<O::Failure>> {
        let version = origin.version().await.map_err(CacheReadError::Origin)?;
        if version != self.version() {
            self.set_changed();
            return Err(CacheReadError::Changed);
        }
        Ok(())
    }

    /// Writes blocks that have arrived together, one after the other: writes of several threads to one file would wait
    /// for each other.
    fn store_blocks(self: &Arc<Self>, blocks: Vec<ArrivedBlock>) {
        let mut arrived = ArrivedBlocks { file: self.clone(), blocks: blocks.into() };
        let job = move || {
            while let Some(block) = arrived.blocks.pop_front() {
                arrived.file.store_block(block);
            }
            arrived.file.flush_if_much();
        };
        if self.may_store() {
            // Blocks of a job that does not run are not stored.
            self.shared.writes.run(Owner::SERVER, Box::new(job)).ok();
        }
    }

    fn store_block(self: &Arc<Self>, ArrivedBlock { fetch, block, content }: ArrivedBlock) {
        let written = match self.may_store() {
            true => self.store.write(block, &content, self.shared.now()),
            false => Err(std::io::ErrorKind::StorageFull.into()),
        };
        drop(content);
        // The space of an earlier block at its place is being freed, so it is stored when it is fetched again.
        let is_early = |error: &std::io::Error| error.kind() == std::io::ErrorKind::ResourceBusy;
        if let Err(error) = &written
            && self.may_store()
            && !is_early(error)
        {
            self.shared.note_disk_failure(&self.key, error);
            if !is_about_disk(error) {
                // Something else has its place now.
                self.retire(false);
            }
        }
        self.stored(fetch, block, written.is_ok());
    }

    /// Makes written blocks durable if there are many.
    fn flush_if_much(&self) {
        if self.store.unclaimed_bytes() >= FLUSH_BYTES && !self.is_flushing.swap(true, Ordering::AcqRel) {
            self.flush().ok();
            self.is_flushing.store(false, Ordering::Release);
        }
    }
}
