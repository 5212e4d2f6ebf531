//! Removes temporary files that an earlier run of the server has left.

use crate::ports::ResidencyPaths;
use crate::tree_walk::{TreeVisitor, walk_tree};
use base::LogicalPath;
use std::ops::ControlFlow;
use std::time::Duration;
use storage::{Backend, Leftovers, TransferStorage};

/// Number of directories that are named in the log because of files that cannot be identified.
const NAMED_MAX: u32 = 10;

/// Multiple of the time of a piece of work for which a search rests afterwards, and its maximum.
const REST_FACTOR: u32 = 3;
const REST_MAX: Duration = Duration::from_secs(1);

/// Returns the rest after a piece of work of a search, which leaves three quarters of the time of a
/// disk to others.
pub(crate) fn rest_after(busy: Duration) -> Duration {
    busy.saturating_mul(REST_FACTOR).min(REST_MAX)
}

/// Removes the temporary files in all directories of paths that stage, except those that a process
/// still writes. No request needs them: a copy that is tried again begins with a new file.
/// Blocks for long.
pub fn remove_leftovers(backend: &dyn Backend, paths: &dyn ResidencyPaths) {
    let Some(transfers) = backend.transfers() else { return };
    if !backend.lists_all_names() {
        tracing::info!("temporary files below hashed names (scalla.namerule) are not searched for");
    }
    let mut sweep = Sweep { transfers, paths, removed: 0, named: 0 };
    // A path that stages below one that does not is a root itself.
    let _ = walk_tree(backend, &paths.roots(), &mut sweep);
    if sweep.removed > 0 {
        tracing::info!(removed = sweep.removed, "removed temporary files that an earlier run has left");
    }
}

struct Sweep<'a> {
    transfers: &'a dyn TransferStorage,
    paths: &'a dyn ResidencyPaths,
    removed: u64,
    named: u32,
}

impl TreeVisitor for Sweep<'_> {
    fn enters(&self, directory: &LogicalPath) -> bool {
        // A purge that a crash ended has left a temporary file too.
        let residency = self.paths.of(directory);
        residency.stage || residency.purge
    }

    fn directory(&mut self, directory: &LogicalPath) {
        match self.transfers.remove_leftovers(directory) {
            Ok(Leftovers { removed, unknown, .. }) => {
                self.removed += removed;
                if unknown > 0 && self.named < NAMED_MAX {
                    self.named += 1;
                    tracing::warn!(
                        directory = %directory.shown(), files = unknown,
                        "names of temporary files lead to something else; remove it, or files here may not come"
                    );
                }
            }
            Err(error) => {
                let directory = directory.shown();
                tracing::warn!(%directory, %error, "cannot look for temporary files of an earlier run");
            }
        }
    }

    fn pause(&mut self, busy: Duration) -> ControlFlow<()> {
        std::thread::sleep(rest_after(busy));
        ControlFlow::Continue(())
    }
}
