//! [`RecordedIndex`]: what earlier processes have recorded about the files of a cache.

use super::format::{HEAD_BYTES, IndexHead, JournalRecord, RECORD_BYTES};
use super::snapshot::SnapshotReader;
use super::{IndexFileKind, RecordedFile, list, path};
use crate::CacheKey;
use crate::store::{CacheDisk, CacheDiskFile};
use std::collections::{HashMap, HashSet};
use std::io;

/// Number of bytes of a journal that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A snapshot, and the journals that follow it without a gap.
pub(crate) struct RecordedIndex {
    disk: u64,
    mounted: Option<u64>,
    /// The generation of the snapshot, and of the last journal.
    first: u64,
    last: u64,
    /// The size of the snapshot.
    snapshot_bytes: u64,
    /// The used bytes of the file system that were not those of cached files.
    others: u64,
}

/// The changes that journals have recorded.
#[derive(Default)]
pub(crate) struct RecordedChanges {
    /// Files with the bytes that are stored of them and their last use; `None` if nothing is.
    files: HashMap<CacheKey, Option<(u64, i64)>>,
    /// Files whose last change has no known result.
    pub(crate) unresolved: HashSet<CacheKey>,
    /// No change of an earlier process of the cache is missing.
    pub(crate) is_complete: bool,
}

/// The error of an index whose content is wrong.
fn damaged() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

/// Opens a file of an index. `None` if its head is not that of this disk.
pub(super) fn open(
    disk: &dyn CacheDisk,
    (generation, kind): (u64, IndexFileKind),
    identity: u64,
) -> io::Result<Option<(IndexHead, std::sync::Arc<dyn CacheDiskFile>)>> {
    let file = disk.open(&path(generation, kind)?)?;
    let mut bytes = [0; HEAD_BYTES];
    let count = file.read_at(0, &mut bytes)?;
    let head = IndexHead::decode(kind, &bytes).filter(|_| count == HEAD_BYTES);
    let is_own = |head: &IndexHead| head.generation == generation && head.disk == identity;
    Ok(head.filter(is_own).map(|head| (head, file)))
}

impl RecordedIndex {
    /// Returns the last index of a disk that can be used, and the generation that follows all others.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn find(disk: &dyn CacheDisk, identity: u64) -> io::Result<(Option<Self>, u64)> {
        let files: HashSet<_> = list(disk)?.into_iter().collect();
        let next = files.iter().map(|(generation, _)| generation + 1).max().unwrap_or(1);
        let has_journal = |generation: &u64| {
            let journal = (*generation, IndexFileKind::Journal);
            files.contains(&journal) && matches!(open(disk, journal, identity), Ok(Some(_)))
        };
        let mut snapshots: Vec<u64> = files
            .iter()
            .filter(|(_, kind)| *kind == IndexFileKind::Snapshot)
            .map(|(found, _)| *found)
            .collect();
        snapshots.sort_unstable();
        for first in snapshots.into_iter().rev() {
            let last = (first..next).take_while(has_journal).last();
            // A journal after a gap has changes that others before it do not explain.
            let is_last = |last: &u64| {
                files.iter().all(|(found, kind)| *kind != IndexFileKind::Journal || found <= last)
            };
            let Some(last) = last.filter(is_last) else { continue };
            if let Ok(Some((head, file))) = open(disk, (first, IndexFileKind::Snapshot), identity) {
                let (mounted, snapshot_bytes) = (disk.mounted(), file.status()?.size);
                return Ok((
                    Some(Self { disk: identity, mounted, first, last, snapshot_bytes, others: head.others }),
                    next,
                ));
            }
        }
        Ok((None, next))
    }

    /// Returns the size of the snapshot.
    pub(crate) const fn snapshot_bytes(&self) -> u64 {
        self.snapshot_bytes
    }

    /// Returns the number of bytes that other files than cached ones used at the time of the snapshot.
    pub(crate) const fn others(&self) -> u64 {
        self.others
    }

    /// Returns the number of journals.
    pub(crate) const fn journals(&self) -> u64 {
        self.last - self.first + 1
    }

    /// Reads the journals.
    ///
    /// # Errors
    /// Errors of the disk.
    pub(crate) fn changes(&self, disk: &dyn CacheDisk) -> io::Result<RecordedChanges> {
        let mut changes = RecordedChanges { is_complete: true, ..RecordedChanges::default() };
        for generation in self.first..=self.last {
            let opened = open(disk, (generation, IndexFileKind::Journal), self.disk)?;
            let (head, file) = opened.ok_or_else(damaged)?;
            changes.is_complete &= self.mounted == Some(head.mounted);
            changes.is_complete &= changes.add_journal(&*file)?;
        }
        Ok(changes)
    }

    /// Passes all files with their last recorded changes to `take`, many at a time, until it returns false.
    ///
    /// # Errors
    /// Errors of the disk, and `InvalidData` for a damaged snapshot. The files before the damage were passed.
    pub(crate) fn files(
        &self,
        disk: &dyn CacheDisk,
        changes: &mut RecordedChanges,
        mut take: impl FnMut(Vec<RecordedFile>) -> bool,
    ) -> io::Result<()> {
        let opened = open(disk, (self.first, IndexFileKind::Snapshot), self.disk)?;
        let (_, file) = opened.ok_or_else(damaged)?;
        let mut reader = SnapshotReader::new(file)?;
        while let Some(mut files) = reader.next_block()? {
            files.retain_mut(|file| match changes.files.remove(&file.key) {
                Some(Some((bytes, used))) => {
                    (file.bytes, file.used) = (bytes, used);
                    true
                }
                Some(None) => false,
                None => true,
            });
            if !take(files) {
                return Ok(());
            }
        }
        let new = changes.files.drain().filter_map(|(key, stored)| {
            stored.map(|(bytes, used)| RecordedFile { key, bytes, used, rank: 0 })
        });
        take(new.collect());
        Ok(())
    }
}

impl RecordedChanges {
    /// Adds the changes of a journal. Returns whether all of it could be read.
    fn add_journal(&mut self, file: &dyn CacheDiskFile) -> io::Result<bool> {
        let (size, mut at) = (file.status()?.size, HEAD_BYTES as u64);
        let mut content = Vec::new();
        loop {
            let known = content.len();
            // One more than is left shows the end.
            let left = usize::try_from(size.saturating_sub(at)).unwrap_or(PIECE_BYTES);
            content.resize(known + PIECE_BYTES.min(left + 1), 0);
            let count = file.read_at(at, content.get_mut(known..).unwrap_or_default())?;
            at += count as u64;
            content.truncate(known + count);
            let mut done = 0;
            while let Some((key, record, length)) =
                JournalRecord::decode(content.get(done..).unwrap_or_default())
            {
                self.add(key, &record);
                done += length;
            }
            content.drain(..done);
            let is_record_cut = content.len() <= RECORD_BYTES + base::PATH_BYTES_MAX;
            if count == 0 || !is_record_cut {
                return Ok(content.is_empty() && at >= size);
            }
        }
    }

    fn add(&mut self, key: CacheKey, record: &JournalRecord) {
        let stored = match *record {
            JournalRecord::Started => {
                self.unresolved.insert(key);
                return;
            }
            JournalRecord::Stored(bytes, used) => Some((bytes, used)),
            JournalRecord::Removed => None,
        };
        self.unresolved.remove(&key);
        self.files.insert(key, stored);
    }
}
