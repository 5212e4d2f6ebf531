//! The files of a host and what its processes write down: they outlast its crashes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::talk::Name;

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct File {
    /// The operation that made it; `None` of one that was there from the start or came from outside.
    pub maker: Option<u32>,
    /// Since when it is there, by the host's clock.
    pub since: Duration,
    /// The node did not report that it came.
    pub is_quiet: bool,
}

/// What a process keeps for the next one on its host.
#[derive(Clone, Default, Debug)]
pub struct Record {
    /// Of a parent: children that may have leases.
    pub lessees: BTreeSet<u64>,
    /// Of a child: how long clients with leases may come. A process writes down until when.
    pub leases: Option<Duration>,
}

/// The files of one host.
#[derive(Clone, Default, Debug)]
pub struct Disk {
    /// By path.
    pub files: BTreeMap<Name, File>,
    /// Files that are gone: since when, by the host's clock, and whether the node did not report it.
    pub removed: BTreeMap<Name, (Duration, bool)>,
    /// Nothing that is asked of it comes back.
    pub hangs: bool,
}

impl Disk {
    /// Whether it holds a file.
    pub fn has(&self, path: &[u8]) -> bool {
        self.files.contains_key(path)
    }

    /// A file comes to exist, and the node reports that.
    pub fn put(&mut self, path: &Name, maker: Option<u32>, since: Duration) {
        self.files.insert(path.clone(), File { maker, since, is_quiet: false });
        self.removed.remove(path);
    }

    /// A file is removed.
    pub fn remove(&mut self, path: &Name, now: Duration, is_quiet: bool) {
        if self.files.remove(path).is_some() {
            self.removed.insert(path.clone(), (now, is_quiet));
        }
    }
}
