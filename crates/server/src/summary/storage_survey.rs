//! [`StorageSurvey`]: the sizes of file systems and spaces.

use base::{LogicalPath, Supervisor};
use config::Effective;
use monitor::{PathSizes, SpaceSizes, StorageFigures};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use storage::{Backend, Pool};

/// Time from one look at the file systems to the next.
const INTERVAL: Duration = Duration::from_secs(60);

/// The sizes of the file systems of exports and of spaces. A thread of its own asks for them, because a
/// file system can hang. Then the figures of the others grow old as well, and nothing else is delayed.
pub(crate) struct StorageSurvey {
    found: Arc<Mutex<StorageFigures>>,
    pools: Vec<Arc<Pool>>,
    /// Ends the thread when it is dropped.
    _end: SyncSender<()>,
}

/// What is asked for.
struct SurveyedStorage {
    backend: Arc<dyn Backend>,
    /// Exports with their directories.
    exports: Vec<(LogicalPath, PathBuf)>,
    /// Names of spaces, with the number of their partitions.
    spaces: BTreeMap<String, u64>,
}

impl StorageSurvey {
    /// Starts the thread.
    ///
    /// # Errors
    /// The error of the system, if there are no threads.
    pub(crate) fn start(
        effective: &Effective,
        backend: Arc<dyn Backend>,
        supervisor: &Supervisor,
    ) -> io::Result<Arc<Self>> {
        let exports: Vec<_> = effective
            .storage
            .exports
            .iter()
            .filter_map(|export| {
                let path = LogicalPath::parse(export.prefix.as_bytes()).ok()?;
                Some((path, effective.storage.local_path(&export.prefix)))
            })
            .collect();
        let mut spaces = BTreeMap::new();
        for space in &effective.storage.spaces {
            *spaces.entry(space.name.clone()).or_insert(0) += 1;
        }
        let mut pools: Vec<Arc<Pool>> = Vec::new();
        for (path, _) in &exports {
            let pool = backend.pool(path);
            if !pools.iter().any(|known| Arc::ptr_eq(known, pool)) {
                pools.push(pool.clone());
            }
        }
        let storage = SurveyedStorage { backend, exports, spaces };
        let (end, ended) = sync_channel(0);
        let found = Arc::new(Mutex::new(StorageFigures::default()));
        let into = found.clone();
        supervisor
            .spawn("storage-survey", "the sizes of file systems", move || storage.run(&into, &ended))?;
        Ok(Arc::new(Self { found, pools, _end: end }))
    }

    /// Returns what was found last; nothing before the first look has ended.
    pub(crate) fn found(&self) -> StorageFigures {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the pools of the exports.
    pub(crate) fn pools(&self) -> &[Arc<Pool>] {
        &self.pools
    }
}

impl SurveyedStorage {
    fn run(&self, into: &Mutex<StorageFigures>, ended: &Receiver<()>) {
        loop {
            let found = self.look();
            *into.lock().unwrap_or_else(PoisonError::into_inner) = found;
            if ended.recv_timeout(INTERVAL) != Err(RecvTimeoutError::Timeout) {
                return;
            }
        }
    }

    fn look(&self) -> StorageFigures {
        let paths = self.exports.iter().map(|(path, directory)| sizes(path, directory));
        let root = LogicalPath::root();
        let spaces = self.spaces.iter().filter_map(|(name, partitions)| {
            let usage = self.backend.usage(&root, Some(name)).ok()?;
            Some(SpaceSizes {
                name: name.clone(),
                total: usage.total,
                free: usage.free,
                largest_free: usage.largest_free,
                partitions: *partitions,
                used: usage.used.unwrap_or_default(),
                quota: usage.quota,
            })
        });
        let (paths, spaces) = (paths.collect(), spaces.collect());
        StorageFigures { paths, spaces, looked: Some(SystemTime::now()) }
    }
}

/// Returns the sizes of the file system of an export, if they are known.
fn sizes(path: &LogicalPath, directory: &Path) -> PathSizes {
    let mut found = PathSizes {
        logical: path.text().into_owned(),
        physical: directory.display().to_string(),
        ..PathSizes::default()
    };
    if let Ok(status) = rustix::fs::statvfs(directory) {
        let bytes = |blocks: u64| blocks.saturating_mul(status.f_frsize);
        (found.total, found.free) = (bytes(status.f_blocks), bytes(status.f_bavail));
        (found.inodes, found.inodes_free) = (status.f_files, status.f_favail);
        found.is_known = true;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_a_file_system_does_not_tell_are_not_known() {
        let directory = std::env::temp_dir();
        let found = sizes(&LogicalPath::root(), &directory);
        assert!(found.is_known && found.total > 0);
        let missing = directory.join(format!("missing-{}", std::process::id()));
        assert!(!sizes(&LogicalPath::root(), &missing).is_known);
    }
}
