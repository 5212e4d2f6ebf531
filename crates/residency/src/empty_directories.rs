//! Removes directories that purges have left empty (`frm.purge.dirhold`).

use crate::purge::Purger;
use crate::staging::seconds_since_epoch;
use crate::tree_walk::{TreeVisitor, walk_tree};
use base::LogicalPath;
use std::ops::ControlFlow;
use std::time::Duration;
use storage::{DirectoryStream, RawEntry};

/// Maximum rest of the search.
const REST_MAX: Duration = Duration::from_secs(1);

/// Removes the directories of purged exports in which nothing was created, renamed or removed for a time, and in
/// which there is nothing. Exports themselves stay. Returns their number. Blocks for long.
pub(crate) fn remove_empty_directories(purger: &Purger, hold: Duration) -> u64 {
    let roots = purger.paths.roots();
    let mut search = EmptySearch { purger, hold, roots: &roots, removed: 0 };
    // One below another is found after it, so a chain of empty ones goes in several purges.
    let _ = walk_tree(purger.backend.as_ref(), &roots, &mut search);
    search.removed
}

struct EmptySearch<'a> {
    purger: &'a Purger,
    hold: Duration,
    roots: &'a [LogicalPath],
    removed: u64,
}

impl EmptySearch<'_> {
    fn is_old(&self, directory: &LogicalPath) -> bool {
        let status = self.purger.backend.stat(directory);
        let age = status.map_or(0, |status| seconds_since_epoch().saturating_sub(status.modified));
        u64::try_from(age).is_ok_and(|age| age >= self.hold.as_secs())
    }
}

impl TreeVisitor for EmptySearch<'_> {
    fn enters(&self, directory: &LogicalPath) -> bool {
        self.purger.paths.of(directory).purge
    }

    fn follows_aliases(&self) -> bool {
        false
    }

    fn directory(&mut self, directory: &LogicalPath) {
        let is_root = directory.is_root() || self.roots.contains(directory);
        if is_root || !self.purger.paths.of(directory).purge || !self.is_old(directory) {
            return;
        }
        let backend = &self.purger.backend;
        let is_empty = backend.list(directory).and_then(|mut stream| Ok(stream.next(1)?.is_empty()));
        // The system refuses one in which there is something by now, or where a file system is mounted.
        if matches!(is_empty, Ok(true)) && backend.remove_directory(directory).is_ok() {
            self.removed += 1;
            tracing::info!(directory = %directory.shown(), "removed an empty directory");
        }
    }

    fn file(&mut self, _: &LogicalPath, _: &RawEntry, _: &dyn DirectoryStream) {}

    fn pause(&mut self, busy: Duration) -> ControlFlow<()> {
        if self.purger.is_stopped() {
            return ControlFlow::Break(());
        }
        std::thread::sleep(busy.min(REST_MAX));
        ControlFlow::Continue(())
    }
}
