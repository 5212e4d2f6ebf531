//! [`CachedFile`]: one version of a file that readers have open. It performs the actions of its
//! [`FileFill`](crate::FileFill).

mod direct;
mod parts;
mod periods;

use super::direct_access::DirectName;
use super::fetch_memory::FetchMemory;
use super::file_parts::{FileParts, ReaderParts};
use super::period::PeriodFigures;
use super::shared::CacheShared;
use super::{CacheOrigin, CacheReadError};
use crate::part_layout::PartLayout;
use crate::store::BlockStore;
use crate::{
    CacheAccess, CacheKey, FetchId, FileFill, FillAction, OriginVersion, ReadId, ReadPattern, ReaderId,
};
use base::Owner;
use bytes::Bytes;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, oneshot};

pub(super) use direct::DirectUse;
pub(super) use parts::{OpenFileParts, PartUse, TakenPart};

/// The bytes of a read, in parts that are in no order. They cover it without gaps.
pub(super) type ReadParts = Vec<(u64, Bytes)>;

/// The result of a read.
pub(super) type ReadResult<O> = Result<ReadParts, CacheReadError<<O as CacheOrigin>::Failure>>;

/// One version of a file.
pub(super) struct CachedFile<O: CacheOrigin> {
    pub(super) shared: Arc<CacheShared>,
    pub(super) key: CacheKey,
    pub(super) store: Arc<BlockStore>,
    state: Mutex<CachedFileState<O>>,
    /// The file at the origin is another version now.
    has_changed: AtomicBool,
    /// Nothing is stored any longer.
    is_retired: AtomicBool,
    /// The file may have been changed through this server, so each read compares the version first.
    is_suspect: AtomicBool,
    pub(super) is_flushing: AtomicBool,
    /// The name at which clients on this machine read it.
    pub(super) direct: DirectName,
    idle: Notify,
}

struct CachedFileState<O: CacheOrigin> {
    fill: FileFill,
    /// The memory of fetches: the offset of the first byte, and the bytes when they have arrived.
    fetched: HashMap<FetchId, (u64, Bytes)>,
    reads: HashMap<ReadId, PendingParts<O>>,
    readers: HashMap<ReaderId, ReaderState<O>>,
    next: u64,
    /// The reason for the failure that is being handled.
    failure: Option<CacheReadError<O::Failure>>,
    access: CacheAccess,
    period: PeriodFigures,
    parts: FileParts,
}

struct PendingParts<O: CacheOrigin> {
    parts: ReadParts,
    done: oneshot::Sender<ReadResult<O>>,
}

struct ReaderState<O: CacheOrigin> {
    origin: Arc<O>,
    /// The session of the reader, for the turns of sessions at the disk.
    owner: Owner,
    pattern: ReadPattern,
    parts: ReaderParts,
    attached: i64,
}

/// Work that is done without holding the lock.
pub(super) enum FileWork<O: CacheOrigin> {
    /// Request bytes at the origin for all that wait for them.
    Fetch { fetch: FetchId, origin: Arc<O>, bytes: Range<u64> },
    /// The reader of a fetch has left.
    Lost(FetchId),
    /// Request bytes at the origin for one read.
    Bypass { read: ReadId, origin: Option<Arc<O>>, bytes: Range<u64> },
    /// Write a block.
    Store { fetch: FetchId, block: u64, content: Bytes },
    /// Read from the disk.
    ReadStored { read: ReadId, owner: Owner, bytes: Range<u64> },
}

impl<O: CacheOrigin> CachedFile<O> {
    /// Creates the file of a store; `None` if the store does not fit.
    pub(super) fn new(shared: &Arc<CacheShared>, key: &CacheKey, store: BlockStore) -> Option<Arc<Self>> {
        let fill = FileFill::new(store.version().size, store.block_bytes(), store.blocks())?;
        let access = CacheAccess {
            attached: shared.now(),
            detached: 0,
            opens: 0,
            duration: 0,
            merged: 0,
            bytes_hit: 0,
            bytes_missed: 0,
            bytes_bypassed: 0,
        };
        let part_bytes = shared.context.part_bytes();
        let layout = PartLayout::new(store.version().size, part_bytes, store.block_bytes());
        let state = CachedFileState {
            fill,
            fetched: HashMap::new(),
            reads: HashMap::new(),
            readers: HashMap::new(),
            next: 0,
            failure: None,
            access,
            period: PeriodFigures::default(),
            parts: FileParts::new(layout),
        };
        Some(Arc::new(Self {
            shared: shared.clone(),
            key: key.clone(),
            store: Arc::new(store),
            state: Mutex::new(state),
            has_changed: AtomicBool::new(false),
            is_retired: AtomicBool::new(false),
            is_suspect: AtomicBool::new(false),
            is_flushing: AtomicBool::new(false),
            direct: DirectName::default(),
            idle: Notify::new(),
        }))
    }

    fn state(&self) -> MutexGuard<'_, CachedFileState<O>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn version(&self) -> OriginVersion {
        self.store.version()
    }

    pub(super) fn memory(&self) -> &FetchMemory {
        &self.shared.memory
    }

    pub(super) fn has_changed(&self) -> bool {
        self.has_changed.load(Ordering::Acquire)
    }

    /// Records that the file at the origin is another version.
    pub(super) fn set_changed(&self) {
        self.has_changed.store(true, Ordering::Release);
    }

    pub(super) fn is_suspect(&self) -> bool {
        self.is_suspect.load(Ordering::Acquire)
    }

    /// Stops all storing. With `is_suspect`, reads compare the version at the origin from now on.
    pub(super) fn retire(&self, is_suspect: bool) {
        self.is_retired.store(true, Ordering::Release);
        if is_suspect {
            self.is_suspect.store(true, Ordering::Release);
        }
    }

    /// Reports whether blocks can be stored.
    pub(super) fn may_store(&self) -> bool {
        self.is_current() && self.shared.may_store()
    }

    /// Reports whether the file is that of the name in the cache, and the version at the origin as far as it is known.
    pub(super) fn is_current(&self) -> bool {
        !self.is_retired.load(Ordering::Acquire) && !self.has_changed()
    }

    /// Adds a reader.
    pub(super) fn attach(&self, origin: Arc<O>, owner: Owner) -> ReaderId {
        let mut state = self.state();
        let id = ReaderId(state.next());
        let attached = self.shared.now();
        let (pattern, parts) = (ReadPattern::default(), ReaderParts::default());
        state.readers.insert(id, ReaderState { origin, owner, pattern, parts, attached });
        state.access.opens = state.access.opens.saturating_add(1);
        id
    }

    /// Removes a reader. Returns whether it was the last one.
    pub(super) fn detach(&self, reader: ReaderId) -> bool {
        let mut state = self.state();
        if let Some(gone) = state.readers.remove(&reader) {
            let seconds = self.shared.now().saturating_sub(gone.attached);
            let seconds = i32::try_from(seconds).unwrap_or(i32::MAX);
            state.access.duration = state.access.duration.saturating_add(seconds);
            if self.shared.observer.get().is_some() {
                state.period.add_remote(gone.origin.remote());
            }
        }
        state.readers.is_empty()
    }

    /// Reports whether clients read the file, by this server or directly.
    pub(super) fn has_readers(&self) -> bool {
        !self.state().readers.is_empty() || self.direct.is_used()
    }

    /// Waits until nothing is read, fetched or stored.
    pub(super) async fn wait_idle(&self) {
        loop {
            let notified = self.idle.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if self.is_idle() {
                return;
            }
            notified.await;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state().fill.is_idle()
    }

    /// Returns the number of stored bytes.
    pub(super) fn stored_bytes(&self) -> u64 {
        let version = self.store.version();
        crate::store::stored_bytes(self.state().fill.stored(), self.store.block_bytes(), version.size)
    }

    /// Returns the number of bytes of the blocks of a range.
    fn bytes_of_blocks(&self, bytes: &Range<u64>) -> u64 {
        let block = self.store.block_bytes();
        let end = bytes.end.min(self.version().size);
        let blocks = end.div_ceil(block).saturating_sub(bytes.start / block);
        blocks.saturating_mul(block)
    }

    /// Begins a read. The result arrives at the receiver.
    pub(super) fn begin_read(
        self: &Arc<Self>,
        reader: ReaderId,
        bytes: Range<u64>,
    ) -> (ReadId, oneshot::Receiver<ReadResult<O>>) {
        let (done, receiver) = oneshot::channel();
        let may_store = self.may_store();
        let memory = if may_store { self.memory().take(self.bytes_of_blocks(&bytes)) } else { 0 };
        let mut state = self.state();
        let read = ReadId(state.next());
        state.reads.insert(read, PendingParts { parts: Vec::new(), done });
        let actions = state.fill.read(read, reader, bytes.clone(), memory);
        let mut work = self.apply_reserved(&mut state, actions, memory);
        let next = state.note_read(reader, &bytes);
        let limit = self.shared.prefetch_bytes;
        if let Some(next) = next.filter(|next| may_store && limit > 0 && !next.is_empty()) {
            let next = next.start..next.end.min(next.start.saturating_add(limit));
            let memory = self.memory().take_ahead(self.bytes_of_blocks(&next));
            let actions = state.fill.prefetch(reader, next, memory);
            let ahead = fetched_bytes(&actions);
            self.shared.counters.bytes_ahead.add(ahead);
            state.period.ahead += ahead;
            work.extend(self.apply_reserved(&mut state, actions, memory));
        }
        drop(state);
        self.start(work);
        (read, receiver)
    }

    /// Counts a read of stored bytes that waits for nothing. Returns `false` if blocks ahead of the reader are not there,
    /// so the read has to be one that fetches them.
    pub(super) fn note_read_now(&self, reader: ReaderId, bytes: &Range<u64>) -> bool {
        let limit = if self.may_store() { self.shared.prefetch_bytes } else { 0 };
        let mut state = self.state();
        let Some(mut pattern) = state.readers.get(&reader).map(|reader| reader.pattern.clone()) else {
            return false;
        };
        let next = pattern.next(bytes);
        let end = next.end.min(next.start.saturating_add(limit)).min(self.version().size);
        let block = self.store.block_bytes();
        let mut ahead = next.start / block..end.div_ceil(block);
        if next.start < end && !ahead.all(|block| state.fill.stored().contains(block)) {
            return false;
        }
        let CachedFileState { readers, parts, .. } = &mut *state;
        if let Some(reader) = readers.get_mut(&reader) {
            reader.pattern = pattern;
            parts.read(&mut reader.parts, bytes);
        }
        let length = bytes.end - bytes.start;
        state.access.bytes_hit = added(state.access.bytes_hit, length);
        self.shared.counters.bytes_hit.add(length);
        self.shared.counters.bytes_delivered.add(length);
        true
    }

    /// Reports whether a read waits for the disk.
    pub(super) fn waits_for_disk(&self, read: ReadId) -> bool {
        self.state().fill.waits_for_disk(read)
    }

    /// Reports whether a read waits for the connection of another reader.
    pub(super) fn waits_for_another(&self, read: ReadId) -> bool {
        self.state().fill.waits_for_another(read)
    }

    /// Forgets a read whose client has left.
    pub(super) fn cancel(&self, read: ReadId) {
        let mut state = self.state();
        state.fill.cancel(read);
        state.reads.remove(&read);
        self.note_idle(&state);
    }

    /// Takes the result of a fetch.
    pub(super) fn fetched(
        self: &Arc<Self>,
        fetch: FetchId,
        bytes: &Range<u64>,
        result: Result<Bytes, CacheReadError<O::Failure>>,
    ) {
        let mut state = self.state();
        let work = match result {
            Ok(content) => {
                let end = bytes.start.saturating_add(content.len() as u64);
                if let Some(place) = state.fetched.get_mut(&fetch) {
                    *place = (bytes.start, content);
                }
                let actions = state.fill.arrived(fetch, end);
                self.apply(&mut state, actions)
            }
            Err(failure) => {
                state.failure = Some(failure);
                let memory = if self.may_store() { self.memory().take(bytes.end - bytes.start) } else { 0 };
                let actions = state.fill.failed(fetch, memory);
                self.apply_reserved(&mut state, actions, memory)
            }
        };
        drop(state);
        self.start(work);
    }

    /// Takes the result of a request for one read.
    pub(super) fn bypassed(
        self: &Arc<Self>,
        read: ReadId,
        bytes: Range<u64>,
        result: Result<Bytes, CacheReadError<O::Failure>>,
    ) {
        let mut state = self.state();
        let is_complete = result.is_ok();
        match result {
            Ok(content) => {
                self.shared.counters.bypasses.add(1);
                self.shared.counters.bytes_bypassed.add(content.len() as u64);
                state.access.bytes_bypassed = added(state.access.bytes_bypassed, content.len() as u64);
                state.give(read, bytes.start, content);
            }
            Err(failure) => state.failure = Some(failure),
        }
        let actions = state.fill.bypassed(read, bytes, is_complete);
        let work = self.apply(&mut state, actions);
        drop(state);
        self.start(work);
    }

    /// Takes the end of a write.
    pub(super) fn stored(self: &Arc<Self>, fetch: FetchId, block: u64, is_written: bool) {
        let mut state = self.state();
        if is_written {
            self.count_stored(&mut state, block);
        }
        let actions = state.fill.stored_block(fetch, block, is_written);
        let work = self.apply(&mut state, actions);
        drop(state);
        self.start(work);
    }

    /// Counts a block that was written.
    fn count_stored(&self, state: &mut CachedFileState<O>, block: u64) {
        let bytes = state.fill.bytes_of(block);
        state.period.stored += bytes.end - bytes.start;
        let (part, length) = (state.part_of(bytes.start), bytes.end - bytes.start);
        let is_begin = self.shared.index.grow(&self.key, (part, length), &self.is_retired);
        if let Some(part) = part.filter(|_| is_begin) {
            state.parts.begun(part);
        }
        self.shared.take_room(length);
    }

    #[cfg(test)]
    pub(super) fn stored_late(&self, block: u64) {
        self.count_stored(&mut self.state(), block);
    }

    /// Takes bytes from the disk, and the blocks of them that are damaged.
    pub(super) fn read_stored(
        self: &Arc<Self>,
        read: ReadId,
        bytes: Range<u64>,
        content: Vec<u8>,
        damaged: &[u64],
    ) {
        let memory = if damaged.is_empty() || !self.may_store() {
            0
        } else {
            self.memory().take((damaged.len() as u64).saturating_mul(self.store.block_bytes()))
        };
        let content = Bytes::from(content);
        let mut state = self.state();
        state.period.damaged += damaged.len() as u64;
        let mut good = bytes.start;
        for &block in damaged {
            let bad = state.fill.bytes_of(block);
            // Another read may have found it before.
            if state.fill.stored().contains(block) {
                let part = state.part_of(bad.start);
                self.shared.index.shrink(&self.key, (part, bad.end - bad.start), &self.is_retired);
            }
            state.give_part(read, good..bad.start.max(good), &bytes, &content);
            good = bad.end.clamp(good, bytes.end);
        }
        state.give_part(read, good..bytes.end, &bytes, &content);
        let actions = state.fill.read_stored(read, bytes, damaged, memory);
        let work = self.apply_reserved(&mut state, actions, memory);
        drop(state);
        self.start(work);
    }

    /// Applies actions whose fetches may use this much memory, and returns the rest of it.
    fn apply_reserved(
        &self,
        state: &mut CachedFileState<O>,
        actions: Vec<FillAction>,
        memory: u64,
    ) -> Vec<FileWork<O>> {
        self.memory().give(memory.saturating_sub(fetched_bytes(&actions)));
        self.apply(state, actions)
    }

    /// Applies actions to the state. Returns the work that must not hold the lock.
    fn apply(&self, state: &mut CachedFileState<O>, actions: Vec<FillAction>) -> Vec<FileWork<O>> {
        let mut work = Vec::new();
        for action in actions {
            match action {
                FillAction::Fetch { fetch, reader, bytes } => {
                    self.shared.counters.bytes_missed.add(bytes.end - bytes.start);
                    state.access.bytes_missed = added(state.access.bytes_missed, bytes.end - bytes.start);
                    state.fetched.insert(fetch, (bytes.start, Bytes::new()));
                    work.push(match state.readers.get(&reader) {
                        Some(reader) => FileWork::Fetch { fetch, origin: reader.origin.clone(), bytes },
                        None => FileWork::Lost(fetch),
                    });
                }
                FillAction::Bypass { read, bytes } => {
                    let origin = state.reader_of(read).map(|reader| reader.origin.clone());
                    work.push(FileWork::Bypass { read, origin, bytes });
                }
                FillAction::ReadStored { read, bytes } => {
                    self.shared.counters.bytes_hit.add(bytes.end - bytes.start);
                    state.access.bytes_hit = added(state.access.bytes_hit, bytes.end - bytes.start);
                    let owner = state.reader_of(read).map_or(Owner::SERVER, |reader| reader.owner);
                    work.push(FileWork::ReadStored { read, owner, bytes });
                }
                FillAction::Copy { read, fetch, bytes } => {
                    if let Some(content) = state.part(fetch, &bytes) {
                        self.shared.counters.bytes_shared.add(content.len() as u64);
                        state.give(read, bytes.start, content);
                    }
                }
                FillAction::Store { fetch, block } => {
                    let bytes = state.fill.bytes_of(block);
                    let content = state.content(fetch, &bytes).unwrap_or_default();
                    work.push(FileWork::Store { fetch, block, content });
                }
                FillAction::Release { fetch, bytes } => {
                    state.fetched.remove(&fetch);
                    self.memory().give(bytes);
                }
                FillAction::Done { read, is_complete } => state.finish(read, is_complete),
            }
        }
        state.failure = None;
        self.note_idle(state);
        work
    }

    fn note_idle(&self, state: &CachedFileState<O>) {
        if state.fill.is_idle() {
            self.idle.notify_waiters();
        }
    }

    /// Makes written blocks durable, and frees the space of parts that were given up.
    pub(super) fn flush(&self) -> io::Result<()> {
        let flushed = self.store.flush(self.shared.now()).and_then(|()| OpenFileParts(self).free());
        if let Err(error) = &flushed {
            self.shared.note_disk_failure(&self.key, error);
        }
        flushed
    }
}

impl<O: CacheOrigin> CachedFileState<O> {
    fn next(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Returns the part of a byte; `None` if the file has no parts.
    fn part_of(&self, offset: u64) -> Option<u32> {
        self.parts.layout().map(|layout| layout.of(offset))
    }

    /// Notes a read. Returns what its reader will probably read next.
    fn note_read(&mut self, reader: ReaderId, bytes: &Range<u64>) -> Option<Range<u64>> {
        let reader = self.readers.get_mut(&reader)?;
        self.parts.read(&mut reader.parts, bytes);
        Some(reader.pattern.next(bytes))
    }

    fn reader_of(&self, read: ReadId) -> Option<&ReaderState<O>> {
        self.readers.get(&self.fill.reader_of(read)?)
    }

    /// Returns bytes in the memory of a fetch.
    fn content(&self, fetch: FetchId, bytes: &Range<u64>) -> Option<Bytes> {
        let (begin, content) = self.fetched.get(&fetch)?;
        let place = usize::try_from(bytes.start.checked_sub(*begin)?).ok()?
            ..usize::try_from(bytes.end.checked_sub(*begin)?).ok()?;
        (place.start <= place.end && place.end <= content.len()).then(|| content.slice(place))
    }

    /// Returns bytes in the memory of a fetch, for a read.
    fn part(&self, fetch: FetchId, bytes: &Range<u64>) -> Option<Bytes> {
        let whole = self.fetched.get(&fetch).map_or(0, |(_, content)| content.len());
        Some(without_rest(self.content(fetch, bytes)?, whole))
    }

    fn give(&mut self, read: ReadId, offset: u64, content: Bytes) {
        if let Some(pending) = self.reads.get_mut(&read) {
            pending.parts.push((offset, content));
        }
    }

    /// Gives a part of bytes that were read from the disk.
    fn give_part(&mut self, read: ReadId, part: Range<u64>, whole: &Range<u64>, content: &Bytes) {
        let (begin, end) = (part.start.saturating_sub(whole.start), part.end.saturating_sub(whole.start));
        let (begin, end) = (begin as usize, (end as usize).min(content.len()));
        if begin < end {
            self.give(read, part.start, content.slice(begin..end));
        }
    }

    fn finish(&mut self, read: ReadId, is_complete: bool) {
        let Some(pending) = self.reads.remove(&read) else { return };
        let failure = || self.failure.clone().unwrap_or(CacheReadError::Ended);
        let result = if is_complete { Ok(pending.parts) } else { Err(failure()) };
        // The client may have left.
        pending.done.send(result).ok();
    }
}

/// Returns the number of bytes that actions fetch.
fn fetched_bytes(actions: &[FillAction]) -> u64 {
    let of_action = |action: &FillAction| match action {
        FillAction::Fetch { bytes, .. } => bytes.end - bytes.start,
        _ => 0,
    };
    actions.iter().map(of_action).sum()
}

/// Copies a small part of memory, because a part keeps all of it until its read ends, and the memory is counted only
/// until the blocks are stored.
fn without_rest(part: Bytes, whole: usize) -> Bytes {
    if part.len() < whole / 2 { Bytes::copy_from_slice(&part) } else { part }
}

fn added(count: i64, bytes: u64) -> i64 {
    count.saturating_add(i64::try_from(bytes).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_part_does_not_keep_the_memory_of_a_fetch() {
        let whole = Bytes::from(vec![7; 1000]);
        let is_inside = |part: &Bytes| whole.as_ptr_range().contains(&part.as_ptr());
        let small = without_rest(whole.slice(10..26), whole.len());
        assert!(!is_inside(&small) && small == whole.slice(10..26));
        assert!(is_inside(&without_rest(whole.slice(10..900), whole.len())));
    }
}
