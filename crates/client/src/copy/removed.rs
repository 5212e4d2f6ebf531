//! [`RemovedNames`]: the local directories whose removed names are not on the disk yet.
//!
//! After a loss of power, a name that was removed without a sync of its directory may be back.

use std::collections::BTreeSet;
use std::path::PathBuf;

use super::failure::CopyError;
use super::publish::sync_directory;

/// Maximum number of directories that wait for their sync.
const WAITING_MAX: usize = 1000;

/// The directories of this machine from which entries were removed.
#[derive(Default, Debug)]
pub(super) struct RemovedNames {
    directories: BTreeSet<PathBuf>,
}

impl RemovedNames {
    /// Records a removed entry. A removed directory needs no sync itself.
    pub(super) fn add(&mut self, path: PathBuf, is_directory: bool) {
        if let Some(directory) = path.parent() {
            self.directories.insert(directory.to_owned());
        }
        if is_directory {
            self.directories.remove(&path);
        }
    }

    /// Reports whether the directories have to be synced before more are recorded.
    pub(super) fn is_full(&self) -> bool {
        self.directories.len() >= WAITING_MAX
    }

    /// Takes the directories recorded so far.
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Reports whether no directory waits for its sync.
    pub(super) fn is_empty(&self) -> bool {
        self.directories.is_empty()
    }

    /// Syncs the directories to stable storage and returns the failures.
    pub(super) fn sync(self) -> Vec<CopyError> {
        let is_gone =
            |error: &CopyError| matches!(error, CopyError::Local { kind: std::io::ErrorKind::NotFound, .. });
        let synced = self.directories.into_iter().map(|directory| sync_directory(&directory));
        synced.filter_map(Result::err).filter(|error| !is_gone(error)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::publish::{PublishStep, faults};
    use super::*;

    #[test]
    fn each_directory_that_remains_is_synced_once() {
        let root = std::env::temp_dir().join(format!("scalla-removed-{}", std::process::id()));
        std::fs::create_dir_all(root.join("kept")).unwrap();
        let mut removed = RemovedNames::default();
        for name in ["kept/a", "kept/b", "gone/below/c", "gone/d"] {
            removed.add(root.join(name), false);
        }
        removed.add(root.join("gone/below"), true);
        removed.add(root.join("gone"), true);
        assert_eq!(removed.directories.iter().collect::<Vec<_>>(), [&root, &root.join("kept")]);
        faults::fail_at(None);
        assert!(removed.take().sync().is_empty() && removed.is_empty());
        assert_eq!(faults::reached(), [PublishStep::SyncDirectory, PublishStep::SyncDirectory]);
        removed.add(root.join("kept/a"), false);
        faults::fail_at(Some(PublishStep::SyncDirectory));
        assert_eq!(removed.take().sync().len(), 1);
        faults::fail_at(None);
        std::fs::remove_dir_all(&root).unwrap();
        // The directory was removed by another process.
        removed.add(root.join("kept/a"), false);
        assert_eq!(removed.take().sync().len(), 0);
    }
}
