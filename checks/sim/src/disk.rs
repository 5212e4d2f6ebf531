//! The disk of a host: its files and the stored state of its processes, which outlast crashes.
//!
//! It belongs to the host and not to `own_process`, because a process loses its memory in a crash.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::messages::Name;

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DiskFile {
    /// The operation that created it; `None` for a file of the start or from outside.
    pub maker: Option<u32>,
    /// The time of its creation, by the host's clock.
    pub since: Duration,
    /// The node did not report its creation.
    pub is_quiet: bool,
}

/// A removed file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemovedFile {
    /// The time of its creation, by the host's clock.
    pub since: Duration,
    /// The time of its removal.
    pub at: Duration,
    /// The node did not report its removal.
    pub is_quiet: bool,
}

/// The state that a process stores for the next one on its host.
#[derive(Clone, Default, Debug)]
pub struct LeaseState {
    /// Of a parent: children that may hold leases.
    pub lessees: BTreeSet<u64>,
    /// Of a child: the time for which clients with leases may arrive. A real process stores the end
    /// of it.
    pub leases: Option<Duration>,
}

/// The files of one host.
#[derive(Clone, Default, Debug)]
pub struct HostDisk {
    /// By path.
    pub files: BTreeMap<Name, DiskFile>,
    /// Removed files.
    pub removed: BTreeMap<Name, RemovedFile>,
    /// The disk hangs: operations do not return.
    pub hangs: bool,
}

impl HostDisk {
    /// Reports whether it holds a file.
    pub fn has(&self, path: &[u8]) -> bool {
        self.files.contains_key(path)
    }

    /// Adds a file; the node reports it.
    pub fn put(&mut self, path: &Name, maker: Option<u32>, since: Duration) {
        self.files.insert(path.clone(), DiskFile { maker, since, is_quiet: false });
        self.removed.remove(path);
    }

    /// Removes a file.
    pub fn remove(&mut self, path: &Name, now: Duration, is_quiet: bool) {
        if let Some(DiskFile { since, .. }) = self.files.remove(path) {
            self.removed.insert(path.clone(), RemovedFile { since, at: now, is_quiet });
        }
    }
}
