//! A walk over the directories of exports.

use base::LogicalPath;
use std::collections::HashSet;
use storage::Backend;

/// Number of names of a directory that are read at once.
const NAMES_AT_ONCE: usize = 512;

/// `st_mode`: the type of a file, and that of a directory.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;

/// Calls `with` for each directory at and below these roots. What cannot be read is left out. A
/// directory with several paths is visited once. Blocks for long.
pub(crate) fn walk_directories(
    backend: &dyn Backend,
    roots: Vec<LogicalPath>,
    with: &mut dyn FnMut(&LogicalPath),
) {
    let mut directories = roots;
    // Links can give a directory endlessly many paths.
    let mut visited = HashSet::new();
    while let Some(directory) = directories.pop() {
        let Ok(found) = backend.stat(&directory) else { continue };
        if !visited.insert((found.device, found.inode)) {
            continue;
        }
        let Ok(mut stream) = backend.list(&directory) else { continue };
        with(&directory);
        while let Ok(names) = stream.next(NAMES_AT_ONCE)
            && !names.is_empty()
        {
            for entry in names {
                let Ok(path) = directory.join(&entry.name) else { continue };
                let Ok(metadata) = stream.stat(&entry.name) else { continue };
                if metadata.mode & TYPE_MASK == TYPE_DIRECTORY {
                    directories.push(path);
                }
            }
        }
    }
}
