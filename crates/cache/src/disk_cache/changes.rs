//! [`ChangeTable`]: files that are being changed through this server. They are not cached meanwhile, and a reader
//! that asked the origin before a change does not use the cache after it.

use super::{CacheOrigin, DISK_TIME, DiskCache};
use crate::CacheKey;
use base::LogicalPath;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::task::JoinHandle;

/// Number of counters that files share by their hash. A change of another file with the same counter costs a
/// reader the cache for one open.
const COUNTERS: usize = 4096;

/// The count of changes of a file at the time of an open. See [`super::DiskCache::ticket`].
///
/// It is the sum of the counters of the file and of all directories above it. Counters only grow, so equal sums
/// mean that none of them was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenTicket(u64);

/// The changes in progress.
pub(crate) struct ChangeTable {
    hasher: RandomState,
    state: Mutex<ChangeState>,
    /// The number of changes of contents in progress.
    contents: AtomicUsize,
}

struct ChangeState {
    /// Files and directories that are being changed, and how often.
    active: HashMap<LogicalPath, ActiveChanges>,
    /// Numbers of changes that were made, by the hash of the name.
    counters: Vec<u64>,
}

#[derive(Clone, Copy, Default)]
struct ActiveChanges {
    of_name: usize,
    of_content: usize,
}

impl ChangeTable {
    pub(crate) fn new() -> Arc<Self> {
        let state = ChangeState { active: HashMap::new(), counters: vec![0; COUNTERS] };
        let (hasher, state) = (RandomState::new(), Mutex::new(state));
        Arc::new(Self { hasher, state, contents: AtomicUsize::new(0) })
    }

    fn state(&self) -> MutexGuard<'_, ChangeState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn counter(&self, path: &LogicalPath) -> usize {
        (self.hasher.hash_one(path) % COUNTERS as u64) as usize
    }

    /// Returns the ticket of a file; `None` while it is being changed.
    pub(crate) fn ticket(&self, key: &CacheKey) -> Option<OpenTicket> {
        let state = self.state();
        let mut sum = 0_u64;
        for path in std::iter::successors(Some(key.data().clone()), LogicalPath::parent) {
            if state.active.contains_key(&path) {
                return None;
            }
            sum = sum.wrapping_add(state.counters.get(self.counter(&path)).copied()?);
        }
        Some(OpenTicket(sum))
    }

    /// Reports whether the content of a file is being changed.
    pub(crate) fn is_content_changing(&self, key: &CacheKey) -> bool {
        self.contents.load(Ordering::SeqCst) > 0
            && self.state().active.get(key.data()).is_some_and(|active| active.of_content > 0)
    }

    /// Begins a change of the content of a file, or of a file or directory of this name.
    pub(crate) fn begin(self: &Arc<Self>, path: &LogicalPath, is_content: bool) -> ChangeGuard {
        let path = path.without_slash();
        let mut state = self.state();
        let active = state.active.entry(path.clone()).or_default();
        match is_content {
            true => active.of_content += 1,
            false => active.of_name += 1,
        }
        self.contents.fetch_add(usize::from(is_content), Ordering::SeqCst);
        drop(state);
        ChangeGuard { table: self.clone(), path, is_content }
    }
}

/// A change in progress, until it is dropped.
#[must_use]
pub(crate) struct ChangeGuard {
    table: Arc<ChangeTable>,
    path: LogicalPath,
    is_content: bool,
}

impl ChangeGuard {
    /// Returns the file or directory.
    pub(crate) fn path(&self) -> &LogicalPath {
        &self.path
    }

    /// Reports whether only the content of a file is changed.
    pub(crate) fn is_content(&self) -> bool {
        self.is_content
    }

    /// Records that the change was made, so earlier tickets are no longer valid.
    pub(crate) fn record(&self) {
        let counter = self.table.counter(&self.path);
        if let Some(counter) = self.table.state().counters.get_mut(counter) {
            *counter += 1;
        }
    }
}

impl Drop for ChangeGuard {
    fn drop(&mut self) {
        let mut state = self.table.state();
        self.table.contents.fetch_sub(usize::from(self.is_content), Ordering::SeqCst);
        if let Some(active) = state.active.get_mut(&self.path) {
            match self.is_content {
                true => active.of_content -= 1,
                false => active.of_name -= 1,
            }
            if active.of_content + active.of_name == 0 {
                state.active.remove(&self.path);
            }
        }
    }
}

/// A change through this server. Until it is dropped, the file is not opened in the cache, and readers that have it
/// open compare its version before each read.
///
/// The end of the request must be reported. The cached blocks are removed if the change was made. If it is dropped
/// without a report, the change may have been made.
#[must_use]
pub struct CacheChange<O: CacheOrigin> {
    cache: Arc<DiskCache<O>>,
    guard: Arc<ChangeGuard>,
    is_reported: bool,
}

impl<O: CacheOrigin> CacheChange<O> {
    pub(super) fn new(cache: &Arc<DiskCache<O>>, guard: ChangeGuard) -> Self {
        Self { cache: cache.clone(), guard: Arc::new(guard), is_reported: false }
    }

    /// Reports that the change was made or may have been made. Readers do not get bytes of the time before it
    /// afterwards.
    pub async fn made(&mut self) {
        self.is_reported = true;
        // After that time the rest is removed in the background, and the file is not cached until then.
        tokio::time::timeout(DISK_TIME, self.invalidate()).await.ok();
    }

    /// Reports that nothing was changed.
    pub fn refused(mut self) {
        self.is_reported = true;
    }

    fn invalidate(&self) -> JoinHandle<()> {
        self.guard.record();
        let (cache, guard) = (self.cache.clone(), self.guard.clone());
        self.cache.shared.runtime.spawn(async move {
            cache.invalidate_all(&guard.path, guard.is_content).await;
            drop(guard);
        })
    }
}

impl<O: CacheOrigin> Drop for CacheChange<O> {
    fn drop(&mut self) {
        if !self.is_reported {
            drop(self.invalidate());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> LogicalPath {
        LogicalPath::parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn a_ticket_is_not_valid_during_and_after_a_change() {
        let (table, key) = (ChangeTable::new(), CacheKey::new(&path("/d/f")).unwrap());
        let before = table.ticket(&key).unwrap();
        assert_eq!(table.ticket(&key), Some(before));
        let (one, two) = (table.begin(&path("/d/f"), true), table.begin(&path("/d/f"), true));
        assert!(table.ticket(&key).is_none() && table.is_content_changing(&key));
        one.record();
        drop(one);
        assert!(table.ticket(&key).is_none() && table.is_content_changing(&key), "the other one continues");
        drop(two);
        let after = table.ticket(&key).unwrap();
        assert!(after != before && !table.is_content_changing(&key));
        let directory = table.begin(&path("/d/"), false);
        assert!(table.ticket(&key).is_none() && !table.is_content_changing(&key));
        directory.record();
        drop(directory);
        assert_ne!(table.ticket(&key), Some(after));
        assert!(table.state().active.is_empty());
    }

    #[test]
    fn a_change_that_was_refused_or_is_elsewhere_leaves_tickets_valid() {
        let (table, key) = (ChangeTable::new(), CacheKey::new(&path("/d/f")).unwrap());
        let before = table.ticket(&key).unwrap();
        drop(table.begin(&path("/"), false));
        assert_eq!(table.ticket(&key), Some(before));
        // Some names may have the counter of the file or of a directory above it.
        let others = (0..100).filter(|number| {
            let ticket = table.ticket(&key);
            table.begin(&path(&format!("/missing/{number}")), false).record();
            table.ticket(&key) == ticket
        });
        assert!(others.count() > 90);
    }
}
