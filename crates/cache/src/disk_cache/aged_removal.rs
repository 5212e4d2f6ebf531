//! Removal of the files that were not used for the longest time: of directories that have more than their quota, and of
//! files that are cold.

use super::cache_index::IndexedFile;
use super::clock::{CacheTime, ClockWatch, FileUse};
use super::removal::INTERVAL;
use super::removal_batch::{BATCH_FILES, RemovableFile, RemovalBatch};
use super::settings::excess_over;
use super::{CacheOrigin, ColdFiles, DirectoryQuota, DiskCache};
use crate::CacheKey;
use base::LogicalPath;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::{Arc, Weak};

/// Number of files that are looked at while the index is locked.
const PAGE_FILES: usize = 1024;

/// Maximum number of files that one look through a directory chooses. The next look chooses more.
const OLDEST_MAX: usize = 1 << 16;

/// The files that were not used for the longest time, as many as are needed for a number of bytes.
#[derive(Default)]
struct OldestFiles {
    /// By their age. The last used one is the first.
    files: BinaryHeap<(Reverse<i64>, CacheKey, u64, FileUse)>,
    bytes: u64,
}

impl OldestFiles {
    /// Adds a file, and leaves out those that are not needed for `wanted` bytes, and the later used ones of too many.
    fn add(&mut self, file: IndexedFile, wanted: u64, now: CacheTime) {
        self.bytes = self.bytes.saturating_add(file.bytes);
        self.files.push((Reverse(file.used.age(now)), file.key, file.bytes, file.used));
        while let Some((_, _, bytes, _)) = self.files.peek()
            && (self.bytes - bytes >= wanted || self.files.len() > OLDEST_MAX)
        {
            self.bytes -= bytes;
            self.files.pop();
        }
    }

    /// Returns the files, the oldest first.
    fn into_files(self) -> Vec<IndexedFile> {
        let files = self.files.into_sorted_vec().into_iter();
        files.map(|(_, key, bytes, used)| IndexedFile { key, bytes, used }).collect()
    }
}

/// The files and bytes that were removed.
#[derive(Default)]
struct RemovedFiles {
    files: usize,
    bytes: u64,
    /// The disk has failed.
    has_failed: bool,
}

/// The removal of files by their last use.
pub(super) struct AgedRemoval<'a, O: CacheOrigin>(pub(super) &'a Arc<DiskCache<O>>);

impl<O: CacheOrigin> AgedRemoval<'_, O> {
    /// Starts the removal of cold files, and the reduction of directories to their quotas. They end with the cache.
    pub(super) fn start(&self) {
        self.start_quotas();
        let Some(ColdFiles { age, interval }) = self.0.cold else { return };
        let cache = Arc::downgrade(self.0);
        let mut watch = ClockWatch::new(self.0.shared.clock.now());
        self.0.shared.runtime.spawn(async move {
            loop {
                tokio::time::sleep(interval).await;
                let Some(cache) = Weak::upgrade(&cache) else { return };
                AgedRemoval(&cache).remove_cold(age, &mut watch).await;
            }
        });
    }

    /// Starts the reduction of directories to their quotas. It is a task of its own, because it can take long, and
    /// nothing could be stored meanwhile on a full disk.
    fn start_quotas(&self) {
        if self.0.quotas.is_empty() {
            return;
        }
        let (cache, shared) = (Arc::downgrade(self.0), self.0.shared.clone());
        self.0.shared.runtime.spawn(async move {
            loop {
                tokio::select! {
                    () = shared.quotas.notified() => {}
                    () = tokio::time::sleep(INTERVAL) => {}
                }
                let Some(cache) = Weak::upgrade(&cache) else { return };
                AgedRemoval(&cache).keep_quotas().await;
            }
        });
    }

    /// Removes files that were not used for more than this number of seconds. Those that are open or pinned stay. For a
    /// day after the clock was set, only the time in which this process has not seen a use counts.
    pub(super) async fn remove_cold(&self, age: i64, watch: &mut ClockWatch) {
        // A clock that is set while files are looked at has no effect.
        let now = self.0.shared.clock.now();
        let believes = watch.believes(now);
        let (mut removed, mut after) = (RemovedFiles::default(), None);
        let mut pinned = self.0.shared.kept_paths();
        while let Some(page) = self.page(&LogicalPath::root(), &mut after) {
            let is_cold = |file: &IndexedFile| {
                let seconds = if believes { file.used.age(now) } else { file.used.unused(now) };
                seconds > age && !pinned.contain(&file.key)
            };
            let mut cold: Vec<IndexedFile> = page.into_iter().filter(is_cold).collect();
            let by_record = cold.extract_if(.., |file| file.used.unused(now) <= age).collect();
            cold.extend(self.with_old_records(by_record, (age, now)).await);
            // A pin that was ordered since the begin counts.
            pinned = self.0.shared.kept_paths();
            cold.retain(|file| !pinned.contain(&file.key));
            self.remove_unused(cold, &mut removed).await;
            if removed.has_failed {
                break;
            }
            tokio::task::yield_now().await;
        }
        if removed.files > 0 {
            let RemovedFiles { files, bytes, .. } = removed;
            tracing::info!(files, bytes, "cached files were removed because nobody has used them for long");
        }
    }

    /// Returns those of these files whose state on disk has no later use. The index can have an earlier time than
    /// the state, for example after a failed removal.
    async fn with_old_records(
        &self,
        files: Vec<IndexedFile>,
        (age, now): (i64, CacheTime),
    ) -> Vec<IndexedFile> {
        let mut old = Vec::new();
        for files in files.chunks(BATCH_FILES) {
            let (context, looked) = (self.0.shared.context.clone(), files.to_vec());
            let uses = move || looked.iter().map(|file| context.last_use(&file.key)).collect::<Vec<_>>();
            let Some(uses) = self.0.shared.on_disk(uses).await else { break };
            for (file, last_use) in files.iter().zip(uses) {
                let used = match last_use {
                    // Without a valid state, the file is of no use.
                    Ok(None) => file.used,
                    Ok(Some(time_of_day)) => file.used.corrected(time_of_day),
                    Err(_) => continue,
                };
                self.0.shared.index.correct(file, used);
                if used.age(now) > age {
                    old.push(IndexedFile { used, ..file.clone() });
                }
            }
        }
        old
    }

    /// Reduces directories to their quotas. Files that are open or pinned stay.
    pub(super) async fn keep_quotas(&self) {
        if self.0.shared.trust.holds_removals() {
            return;
        }
        for DirectoryQuota { directory, bytes: limit } in &self.0.quotas {
            let excess = excess_over(self.0.shared.index.bytes_below(directory), *limit, 0);
            if excess == 0 {
                continue;
            }
            let (mut oldest, mut after) = (OldestFiles::default(), None);
            let now = self.0.shared.clock.now();
            let pinned = self.0.shared.kept_paths();
            while let Some(page) = self.page(directory, &mut after) {
                let removable = page.into_iter().filter(|file| !pinned.contain(&file.key));
                removable.for_each(|file| oldest.add(file, excess, now));
                tokio::task::yield_now().await;
            }
            let mut removed = RemovedFiles::default();
            self.remove_unused(oldest.into_files(), &mut removed).await;
            if removed.files > 0 {
                let RemovedFiles { files, bytes, .. } = removed;
                // There is more room now.
                self.0.shared.removal.notify_one();
                tracing::info!(
                    directory = %directory.shown(), limit, files, bytes,
                    "cached files were removed because their directory has more than its quota"
                );
            }
            if removed.has_failed {
                break;
            }
        }
    }

    /// Returns the next files below a path that can be removed; `None` behind the last one.
    fn page(&self, path: &LogicalPath, after: &mut Option<CacheKey>) -> Option<Vec<IndexedFile>> {
        let mut page = self.0.shared.index.page(path, after.as_ref(), PAGE_FILES);
        *after = Some(page.last()?.key.clone());
        page.retain(|file| !self.0.table.is_used(&file.key));
        Some(page)
    }

    /// Removes files, unless they are open or were used meanwhile.
    async fn remove_unused(&self, files: Vec<IndexedFile>, removed: &mut RemovedFiles) {
        for files in files.chunks(BATCH_FILES) {
            let batch: Vec<_> = files.iter().filter_map(|file| self.take_unused(file)).collect();
            let result = RemovalBatch::from(batch).remove(self.0).await;
            removed.files += result.files;
            removed.bytes = removed.bytes.saturating_add(result.bytes);
            for (key, bytes) in result.failed {
                self.0.shared.index.put_again(&key, Some(bytes), self.0.shared.clock.now());
            }
            if result.has_failed {
                removed.has_failed = true;
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Takes a file out of the index, unless it is open or was used since it was looked at.
    fn take_unused(&self, file: &IndexedFile) -> Option<RemovableFile<O>> {
        let slot = self.0.table.slot(&file.key);
        let locked = slot.lock_closed()?;
        let bytes = self.0.shared.index.evict_unused(&file.key, file.used)?;
        Some(RemovableFile::new(locked, slot, file.key.clone(), bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_of_the_oldest_files_as_needed_are_chosen() {
        let now = CacheTime { time_of_day: 10, uptime: 0 };
        let file = |number: i64, bytes: u64| {
            let path = LogicalPath::parse(format!("/{number}").as_bytes()).unwrap();
            let used = FileUse::recorded(number * 7 % 10, now);
            IndexedFile { key: CacheKey::new(&path).unwrap(), bytes, used }
        };
        for (wanted, expected) in
            [(0, vec![]), (1, vec![0]), (10, vec![0]), (11, vec![0, 1]), (500, (0..10).collect())]
        {
            let mut oldest = OldestFiles::default();
            (0..10).for_each(|number| oldest.add(file(number, 10), wanted, now));
            let chosen: Vec<i64> = oldest.into_files().iter().map(|file| file.used.time_of_day).collect();
            assert_eq!(chosen, expected, "{wanted}");
        }
        let mut oldest = OldestFiles::default();
        (0..OLDEST_MAX as i64 + 10).for_each(|number| oldest.add(file(number, 1), u64::MAX, now));
        assert_eq!((oldest.files.len(), oldest.bytes), (OLDEST_MAX, OLDEST_MAX as u64));
    }
}
