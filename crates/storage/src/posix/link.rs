//! Determines the file system that a path leads to, without accessing the target: from the text of
//! links and the table of mounts.
//!
//! A thread that follows a link to a hung disk blocks. So the target's file system is determined
//! first, and all work on the path then runs in the pool of that file system (decision 007). The
//! result is a hint: if the link changes before the work is done, at worst a thread of the wrong
//! pool waits.

use super::tree::{ConfinedTree, relative};
use super::volume::{Volume, Volumes};
use super::walk::LINKS_MAX;
use base::LogicalPath;
use rustix::fs::CWD;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// The result of resolving a path.
pub(super) enum LinkTarget<'v> {
    /// The path stays on its own file system, or nothing is known and opening it will show the
    /// error.
    Here,
    /// The path does not exist.
    Nowhere,
    /// The path leads to another file system.
    There(&'v Arc<Volume>),
}

/// Resolves links that start on one file system.
pub(super) struct LinkResolver<'v> {
    pub(super) tree: &'v ConfinedTree,
    pub(super) volumes: &'v Volumes,
    pub(super) here: &'v Arc<Volume>,
}

/// Determines where a path leads. Accesses only the file system of the path itself.
pub(super) fn leads<'v>(tree: &'v ConfinedTree, volumes: &'v Volumes, path: &LogicalPath) -> LinkTarget<'v> {
    let (prefix, here) = volumes.mount_of(path);
    let links = LinkResolver { tree, volumes, here };
    // Fast path: usually no component before the last one is a link or a mount point.
    if prefix.is_root() {
        match tree.link_at(path) {
            Some(Ok(target)) if target.starts_with(b"/") => return links.turn(&target, &[], 1),
            Some(Err(Errno::NOENT)) => return LinkTarget::Nowhere,
            Some(Err(_)) => return LinkTarget::Here,
            Some(Ok(_)) | None => {}
        }
    }
    let local = |path: &LogicalPath| volumes.root().join(OsStr::from_bytes(relative(path)));
    let (point, path) = (local(prefix), local(path));
    let rest = path.strip_prefix(&point).unwrap_or(Path::new(""));
    links.walk(point.clone(), names(rest), 0)
}

impl<'v> LinkResolver<'v> {
    /// Resolves an absolute link target followed by the names in `behind`, which are in reverse
    /// order. `links` is the number of links read until now.
    pub(super) fn turn(&self, target: &[u8], behind: &[OsString], links: usize) -> LinkTarget<'v> {
        let Some(place) = self.tree.bases().real(target) else { return LinkTarget::Here };
        let (volume, point) = self.volumes.of_local(&place);
        if !Arc::ptr_eq(volume, self.here) {
            return LinkTarget::There(volume);
        }
        let rest = place.strip_prefix(&point).unwrap_or(Path::new(""));
        self.walk(point, [behind, &names(rest)].concat(), links)
    }

    /// Resolves name by name from a directory, and stops before it would leave the file system.
    fn walk(&self, mut at: PathBuf, mut todo: Vec<OsString>, mut links: usize) -> LinkTarget<'v> {
        while let Some(name) = todo.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(&name);
            let (volume, _) = self.volumes.of_local(&at);
            if !Arc::ptr_eq(volume, self.here) {
                return LinkTarget::There(volume);
            }
            let target = match rustix::fs::readlinkat(CWD, &at, Vec::new()) {
                Ok(target) => target.into_bytes(),
                Err(Errno::INVAL) => continue,
                Err(Errno::NOENT) => return LinkTarget::Nowhere,
                Err(_) => return LinkTarget::Here,
            };
            links += 1;
            if links > LINKS_MAX {
                return LinkTarget::Here;
            }
            if target.starts_with(b"/") {
                return self.turn(&target, &todo, links);
            }
            at.pop();
            todo.extend(names(Path::new(OsStr::from_bytes(&target))));
        }
        LinkTarget::Here
    }
}

/// Returns the names of a path in reverse order.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    names.collect()
}
