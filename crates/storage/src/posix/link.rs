//! Where names lead, told without touching what they lead to: by the text of links and the table of mounts.
//!
//! Whoever follows a link into a disk that hangs, hangs. So before that is done it is found out which file system the link leads
//! into, and all that concerns the name goes on in that one's pool. What is found is a hint: if the link changes before the
//! work is done, a thread of the wrong pool waits, and no more than that.

use super::tree::Tree;
use super::volume::{Volume, Volumes};
use super::walk::LINKS_MAX;
use base::LogicalPath;
use rustix::fs::CWD;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

/// Where a name leads.
pub(super) enum Leads<'v> {
    /// It stays on the file system that its path is on; or nothing is known, and whoever opens it will learn why.
    Here,
    /// Nothing of this name is there.
    Nowhere,
    /// To another file system.
    There(&'v Arc<Volume>),
}

/// Where links of one file system lead.
pub(super) struct Links<'v> {
    pub(super) tree: &'v Tree,
    pub(super) volumes: &'v Volumes,
    pub(super) here: &'v Arc<Volume>,
}

/// Where a path leads. Touches only the file system that the path is on.
pub(super) fn leads<'v>(tree: &'v Tree, volumes: &'v Volumes, path: &LogicalPath) -> Leads<'v> {
    let (prefix, here) = volumes.mount_of(path);
    let links = Links { tree, volumes, here };
    // Mostly nothing before the last name is a link, or a mount.
    if prefix.is_root() {
        match tree.link_at(path) {
            Some(Ok(target)) if target.starts_with(b"/") => return links.turn(&target, &[], 1),
            Some(Err(Errno::NOENT)) => return Leads::Nowhere,
            Some(Err(_)) => return Leads::Here,
            Some(Ok(_)) | None => {}
        }
    }
    let local = |path: &LogicalPath| volumes.root().join(OsStr::from_bytes(super::tree::relative(path)));
    let (point, path) = (local(prefix), local(path));
    let rest = path.strip_prefix(&point).unwrap_or(Path::new(""));
    links.walk(point.clone(), names(rest), 0)
}

impl<'v> Links<'v> {
    /// Where an absolute target of a link leads, with these names behind it, the next one last; `links` were looked at.
    pub(super) fn turn(&self, target: &[u8], behind: &[OsString], links: usize) -> Leads<'v> {
        let Some(place) = self.tree.real(target) else { return Leads::Here };
        let (volume, point) = self.volumes.of_local(&place);
        if !Arc::ptr_eq(volume, self.here) {
            return Leads::There(volume);
        }
        let rest = place.strip_prefix(&point).unwrap_or(Path::new(""));
        self.walk(point, [behind, &names(rest)].concat(), links)
    }

    /// Goes name by name from a directory, and stops before it would leave the file system.
    fn walk(&self, mut at: PathBuf, mut todo: Vec<OsString>, mut links: usize) -> Leads<'v> {
        while let Some(name) = todo.pop() {
            if name == ".." {
                at.pop();
                continue;
            }
            at.push(&name);
            let (volume, _) = self.volumes.of_local(&at);
            if !Arc::ptr_eq(volume, self.here) {
                return Leads::There(volume);
            }
            let target = match rustix::fs::readlinkat(CWD, &at, Vec::new()) {
                Ok(target) => target.into_bytes(),
                Err(Errno::INVAL) => continue,
                Err(Errno::NOENT) => return Leads::Nowhere,
                Err(_) => return Leads::Here,
            };
            links += 1;
            if links > LINKS_MAX {
                return Leads::Here;
            }
            if target.starts_with(b"/") {
                return self.turn(&target, &todo, links);
            }
            at.pop();
            todo.extend(names(Path::new(OsStr::from_bytes(&target))));
        }
        Leads::Here
    }
}

/// The names of a path, the first of them last.
fn names(path: &Path) -> Vec<OsString> {
    let names = path.components().rev().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        _ => None,
    });
    names.collect()
}
