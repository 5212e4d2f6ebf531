//! Removes temporary files that an earlier run of the server has left.

use crate::ports::ResidencyPaths;
use crate::tree_walk::walk_directories;
use base::LogicalPath;
use storage::{Backend, Leftovers};

/// Number of directories that are named in the log because of files that cannot be identified.
const NAMED_MAX: u32 = 10;

/// Removes the temporary files in all directories of paths that stage, except those that a process
/// still writes. No request needs them: a copy that is tried again begins with a new file.
/// Blocks for long.
pub fn remove_leftovers(backend: &dyn Backend, paths: &dyn ResidencyPaths) {
    let Some(transfers) = backend.transfers() else { return };
    if !backend.lists_all_names() {
        tracing::info!("temporary files below hashed names (scalla.namerule) are not searched for");
    }
    let (mut removed, mut named) = (0, 0);
    let mut look = |directory: &LogicalPath| match transfers.remove_leftovers(directory) {
        Ok(Leftovers { removed: more, unknown, .. }) => {
            removed += more;
            if unknown > 0 && named < NAMED_MAX {
                named += 1;
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
    };
    // A path that stages below one that does not is a root itself.
    let stages = |directory: &LogicalPath| paths.of(directory).stage;
    walk_directories(backend, paths.roots(), &stages, &mut look);
    if removed > 0 {
        tracing::info!(removed, "removed temporary files that an earlier run has left");
    }
}
