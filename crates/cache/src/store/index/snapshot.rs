//! [`SnapshotWriter`] and [`SnapshotReader`]: the file with all files of a cache.

use super::format::{
    BLOCK_BYTES, BLOCK_HEAD_BYTES, HEAD_BYTES, IndexHead, add_entry, block, block_length, decode_entries,
    decode_totals, is_whole, totals_block,
};
use super::{IndexFileKind, RecordedFile, path, remove_before};
use crate::store::{CacheDiskFile, StoreContext};
use base::LogicalPath;
use std::io;
use std::sync::Arc;

/// Number of bytes that are written at once.
const PIECE_BYTES: usize = 1 << 20;

/// A snapshot that is being written. It is not used before [`SnapshotWriter::finish`].
pub(crate) struct SnapshotWriter {
    generation: u64,
    temporary: LogicalPath,
    file: Arc<dyn CacheDiskFile>,
    /// Number of bytes on disk.
    length: u64,
    /// Blocks that are not on disk yet.
    blocks: Vec<u8>,
    /// The entries of the next block.
    entries: Vec<u8>,
    /// The name before the next entry.
    name: Vec<u8>,
    files: u64,
    bytes: u64,
}

impl SnapshotWriter {
    /// Begins a snapshot. Of the file system, `others` bytes are used by other files than cached ones.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn new(
        context: &StoreContext,
        (generation, disk): (u64, u64),
        others: u64,
    ) -> io::Result<Self> {
        let temporary = path(generation, IndexFileKind::Unfinished)?;
        let file = context.disk.create(&temporary)?;
        let mounted = context.disk.mounted().unwrap_or(0);
        let blocks = IndexHead { kind: IndexFileKind::Snapshot, generation, disk, mounted, others }.encode();
        let (entries, name) = (Vec::new(), Vec::new());
        Ok(Self { generation, temporary, file, length: 0, blocks, entries, name, files: 0, bytes: 0 })
    }

    /// Adds a file.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn add(&mut self, file: &RecordedFile) -> io::Result<()> {
        add_entry(file, &self.name, &mut self.entries);
        self.name.clear();
        self.name.extend(file.key.data().as_bytes());
        self.files += 1;
        self.bytes = self.bytes.wrapping_add(file.bytes);
        if self.entries.len() >= BLOCK_BYTES {
            self.end_block();
        }
        if self.blocks.len() >= PIECE_BYTES { self.flush() } else { Ok(()) }
    }

    fn end_block(&mut self) {
        if !self.entries.is_empty() {
            self.blocks.extend(block(&self.entries));
            self.entries.clear();
            self.name.clear();
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.write_at(self.length, &self.blocks)?;
        self.length += self.blocks.len() as u64;
        self.blocks.clear();
        Ok(())
    }

    /// Makes the snapshot durable and removes all earlier ones with their journals. Returns its size.
    ///
    /// # Errors
    /// Errors of the disk. The earlier snapshot and the journals since it are there then, or the new one.
    pub(crate) fn finish(&mut self, context: &StoreContext) -> io::Result<u64> {
        self.end_block();
        self.blocks.extend(totals_block(self.files, self.bytes));
        self.flush()?;
        self.file.sync()?;
        let to = path(self.generation, IndexFileKind::Snapshot)?;
        context.disk.rename(&self.temporary, &to)?;
        // Together with the name of its journal.
        context.sync_names(&to.parent().unwrap_or_else(LogicalPath::root))?;
        remove_before(&*context.disk, self.generation)?;
        Ok(self.length)
    }

    /// Removes what was written.
    pub(crate) fn cancel(&self, context: &StoreContext) {
        context.disk.remove(&self.temporary).ok();
    }
}

/// A snapshot that is being read.
pub(super) struct SnapshotReader {
    file: Arc<dyn CacheDiskFile>,
    /// The offset of the next byte that is not in memory, and the number of bytes from there.
    at: u64,
    left: u64,
    content: Vec<u8>,
    /// Number of bytes in memory that were used.
    done: usize,
    files: u64,
    bytes: u64,
}

impl SnapshotReader {
    pub(super) fn new(file: Arc<dyn CacheDiskFile>) -> io::Result<Self> {
        let left = file.status()?.size.saturating_sub(HEAD_BYTES as u64);
        Ok(Self { file, at: HEAD_BYTES as u64, left, content: Vec::new(), done: 0, files: 0, bytes: 0 })
    }

    /// Returns the next bytes.
    fn take(&mut self, count: usize) -> io::Result<&[u8]> {
        if self.content.len() - self.done < count {
            self.content.drain(..self.done);
            self.done = 0;
            let known = self.content.len();
            let size = PIECE_BYTES.min(usize::try_from(self.left).unwrap_or(PIECE_BYTES)).max(count);
            self.content.resize(known + size, 0);
            let read = self.file.read_at(self.at, self.content.get_mut(known..).unwrap_or_default())?;
            self.at += read as u64;
            self.left = self.left.saturating_sub(read as u64);
            self.content.truncate(known + read);
        }
        let bytes = self.content.get(self.done..self.done + count).ok_or(io::ErrorKind::InvalidData)?;
        self.done += count;
        Ok(bytes)
    }

    /// Returns the next files; `None` after the last ones.
    ///
    /// # Errors
    /// Errors of the disk, and `InvalidData` for a damaged snapshot.
    pub(super) fn next_block(&mut self) -> io::Result<Option<Vec<RecordedFile>>> {
        let damaged = || io::Error::from(io::ErrorKind::InvalidData);
        let head: [u8; BLOCK_HEAD_BYTES] =
            self.take(BLOCK_HEAD_BYTES)?.try_into().map_err(|_| io::ErrorKind::InvalidData)?;
        let length = block_length(&head).ok_or_else(damaged)?;
        // The head is part of what the checksum covers.
        self.done -= BLOCK_HEAD_BYTES;
        let block = self.take(BLOCK_HEAD_BYTES + length)?;
        if !is_whole(block) {
            return Err(damaged());
        }
        let content = block.get(BLOCK_HEAD_BYTES..).unwrap_or_default();
        if let Some(totals) = decode_totals(content) {
            return if totals == (self.files, self.bytes) { Ok(None) } else { Err(damaged()) };
        }
        let files = decode_entries(content).ok_or_else(damaged)?;
        self.files += files.len() as u64;
        self.bytes = files.iter().fold(self.bytes, |sum, file| sum.wrapping_add(file.bytes));
        Ok(Some(files))
    }
}
