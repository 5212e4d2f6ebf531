//! Whether one of two directories is inside the other: a copy would go on into itself, a removal would take the source.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::Copier;
use super::failure::CopyError;
use super::place::Place;
use crate::path::RemotePath;
use crate::url::Url;

impl Copier {
    /// Refuses a directory `inner` that is in `outer`, or is the same, under whatever name.
    pub(super) async fn not_nested(&self, outer: &Place, inner: &Place) -> Result<(), CopyError> {
        let is_nested = match (outer, inner) {
            (Place::Local(outer), Place::Local(inner)) => {
                let (outer, inner) = (outer.clone(), inner.clone());
                self.disk.run(move || is_local_nested(&outer, &inner)).await.unwrap_or(false)
            }
            (Place::Remote(outer), Place::Remote(inner)) => self.is_remote_nested(outer, inner).await,
            _ => false,
        };
        if is_nested {
            return Err(CopyError::Usage(format!("{inner} is inside {outer}: choose a place outside of it")));
        }
        Ok(())
    }

    /// Compares names where both URLs have the same host; otherwise compares the status of `outer` with that of each directory
    /// above `inner`. Links and other names of a server can lead to the same directories, so different names are not enough.
    async fn is_remote_nested(&self, outer: &Url, inner: &Url) -> bool {
        let (above, path) = (components(&outer.path), components(&inner.path));
        if outer.authority() == inner.authority() && path.starts_with(&above) {
            return true;
        }
        let Ok(root) = self.client.file_system(outer).stat(&outer.path).await else { return false };
        let files = self.client.file_system(inner);
        for count in (0..=path.len()).rev() {
            // A part of a path is one.
            let Ok(part) = RemotePath::new(format!("/{}", path.get(..count).unwrap_or_default().join("/")))
            else {
                return false;
            };
            // Numbers of directories are those of their server; with time and owner they are those of one directory.
            if files.stat(&part).await.is_ok_and(|stat| stat.is_same_directory(&root)) {
                return true;
            }
        }
        false
    }
}

fn components(path: &str) -> Vec<&str> {
    path.split('/').filter(|part| !matches!(*part, "" | ".")).collect()
}

/// The nearest directory above `inner` that exists counts: the others do not yet.
fn is_local_nested(outer: &Path, inner: &Path) -> bool {
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    let Some(outer) = id(outer) else { return false };
    let Ok(inner) = std::path::absolute(inner) else { return false };
    let existing = inner.ancestors().find_map(|path| std::fs::canonicalize(path).ok());
    existing.is_some_and(|path| path.ancestors().any(|path| id(path) == Some(outer)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_found_under_every_name() {
        let root = std::env::temp_dir().join(format!("scalla-nested-{}", std::process::id()));
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::create_dir_all(root.join("c")).unwrap();
        std::os::unix::fs::symlink(root.join("a/b"), root.join("link")).unwrap();
        let nested = |inner: &str| is_local_nested(&root.join("a"), &root.join(inner));
        for inside in ["a", "a/b", "a/new/deeper", "link", "link/new", "c/../a/b"] {
            assert!(nested(inside), "{inside}");
        }
        for outside in ["c", "c/new", "ab", "."] {
            assert!(!nested(outside), "{outside}");
        }
        std::fs::remove_dir_all(&root).unwrap();
    }
}
