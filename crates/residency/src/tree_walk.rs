//! A walk over the directories of exports.

use base::LogicalPath;
use std::collections::HashSet;
use storage::Backend;

/// Number of names of a directory that are read at once.
const NAMES_AT_ONCE: usize = 512;

/// `st_mode`: the type of a file, and that of a directory.
const TYPE_MASK: u32 = 0o170_000;
const TYPE_DIRECTORY: u32 = 0o040_000;

/// Calls `with` for each directory at and below these roots, as far as `is_walked` accepts its path and
/// those above it. What cannot be read is left out. A directory with several paths is visited once.
/// Blocks for long.
pub(crate) fn walk_directories(
    backend: &dyn Backend,
    roots: Vec<LogicalPath>,
    is_walked: &dyn Fn(&LogicalPath) -> bool,
    with: &mut dyn FnMut(&LogicalPath),
) {
    let mut directories = roots;
    // Links can give a directory endlessly many paths.
    let mut visited = HashSet::new();
    while let Some(directory) = directories.pop() {
        if !is_walked(&directory) {
            continue;
        }
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

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn directories_that_are_not_accepted_are_not_read() {
        let top = std::env::temp_dir().join(format!("scalla-tree-walk-{}", std::process::id()));
        let _ = fs::remove_dir_all(&top);
        fs::create_dir_all(top.join("staged/below")).unwrap();
        fs::create_dir_all(top.join("local/deep/staged")).unwrap();
        // The second path is accepted, and the first one is not. Links can be endless.
        symlink(top.join("local/deep"), top.join("staged/link")).unwrap();
        symlink(top.join("staged"), top.join("staged/below/again")).unwrap();
        let backend = storage::Posix::new(&storage::posix::Config::new(&top)).unwrap();
        let path = |text: &str| LogicalPath::parse(text.as_bytes()).unwrap();
        let is_walked = |path: &LogicalPath| path.as_bytes().starts_with(b"/staged");
        let mut visited = Vec::new();
        let mut with = |directory: &LogicalPath| visited.push(directory.shown().to_string());
        walk_directories(
            &backend,
            vec![path("/staged"), path("/local"), path("/none")],
            &is_walked,
            &mut with,
        );
        visited.sort_unstable();
        assert_eq!(visited, ["/staged", "/staged/below", "/staged/link", "/staged/link/staged"]);
        fs::remove_dir_all(top).unwrap();
    }
}
