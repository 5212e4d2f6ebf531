//! Checks of locations that end: answers of inner nodes to readers, by the current contents of the
//! disks.
//!
//! The histories of `windows` and `queues` set its limits.

use std::time::Duration;

use cluster::WINDOW_TICKS;

use crate::client::ClientOperation;
use crate::host::HostKind;
use crate::messages::{HostReply, Name, RequestedAction};
use crate::tree_view::TreeView;

/// The time for reports to reach the top, with the queries that they cause: at most four round
/// trips of 2 to 6 ms.
pub(crate) const NEWS: Duration = Duration::from_millis(30);

/// Returns a window with the step in which it ends.
fn whole(window: Duration) -> Duration {
    window + window / WINDOW_TICKS + Duration::from_secs(1)
}

/// The state of a world at the time of an answer.
pub(crate) struct LocationCheck<'a> {
    pub(crate) tree: TreeView<'a>,
    /// Reports of changes arrive within this time.
    pub(crate) known_within: Duration,
}

impl LocationCheck<'_> {
    /// Checks the answer of an inner node to an operation. Returns the violation if it is one of a
    /// reader and wrong.
    pub(crate) fn error_of(
        &self,
        host: usize,
        operation: &ClientOperation,
        told: &HostReply,
    ) -> Option<String> {
        if operation.wish != RequestedAction::Read || !operation.tried().is_empty() {
            return None;
        }
        let path = &operation.path;
        let error = match (self.kind(host), told) {
            (HostKind::Manager, HostReply::Missing) => {
                let holder = self.holder(host, path)?;
                format!("{host} reports that it is missing; {holder} has it")
            }
            (HostKind::Manager | HostKind::Supervisor, HostReply::Redirect(to))
                if self.is_long_gone(host, *to, path) =>
            {
                format!("{host} redirects to {to}, where it is gone")
            }
            _ => return None,
        };
        let (number, path) = (operation.number, String::from_utf8_lossy(path));
        Some(format!("{:?}: reader {number} of {path}: {error}", self.tree.now))
    }

    fn kind(&self, host: usize) -> HostKind {
        self.tree.hosts[host].kind
    }

    /// Returns the time after which the caches from a server up to this node have forgotten a
    /// location, and the time for a cached absence.
    fn forgotten_after(&self, host: usize) -> (Duration, Duration) {
        let times = |host: usize| {
            let cache = &self.tree.hosts[host].cache;
            let window = whole(cache.window);
            // Counted in whole seconds.
            let nowhere = cache.nowhere.map(|time| time + Duration::from_secs(2));
            (window, nowhere.map_or(window, |time| time.min(window)))
        };
        let inner =
            (0..self.tree.hosts.len()).filter(|one| self.kind(*one) == HostKind::Supervisor && *one != host);
        let below = inner
            .map(times)
            .fold((Duration::ZERO, Duration::ZERO), |most, one| (most.0.max(one.0), most.1.max(one.1)));
        let own = times(host);
        let news = self.known_within;
        (own.0 + below.0 + news, own.1 + below.1 + news)
    }

    /// Returns a server that has had a path for long enough to be known to this manager.
    fn holder(&self, manager: usize, path: &Name) -> Option<usize> {
        let (_, nowhere) = self.forgotten_after(manager);
        (0..self.tree.hosts.len()).find(|index| {
            let found = &self.tree.hosts[*index];
            let Some(file) = found.disk.files.get(path) else { return false };
            let bound = if file.is_quiet { nowhere } else { self.known_within };
            file.since + bound <= self.tree.now && self.tree.belongs(*index, manager, self.tree.now)
        })
    }

    /// Reports whether a path has been gone at this child, and at all servers below it, for long
    /// enough to be known to its parent.
    fn is_long_gone(&self, host: usize, to: usize, path: &Name) -> bool {
        let (window, _) = self.forgotten_after(host);
        let below = |index: &usize| {
            self.kind(*index) == HostKind::Server
                && (*index == to || self.tree.hosts[*index].homes().contains(&to))
        };
        let mut servers = (0..self.tree.hosts.len()).filter(below).peekable();
        if servers.peek().is_none() || !self.tree.belongs(to, host, self.tree.now) {
            return false;
        }
        servers.all(|index| {
            let server = &self.tree.hosts[index];
            // A lost server still has its files.
            if index != to && !self.tree.belongs(index, to, self.tree.now) {
                return false;
            }
            let Some(removed) = server.disk.removed.get(path) else { return !server.disk.has(path) };
            let bound = if removed.is_quiet { window } else { self.known_within };
            // A connection that broke meanwhile, or whose login the child has not yet received,
            // may have lost the report; then the next query corrects it.
            let is_connected_since =
                [server, &self.tree.hosts[to]].iter().all(|one| one.seated + NEWS < removed.at);
            // The parent may know the file from an earlier run of the child, which reported it. The
            // next query corrects that, too.
            let is_of_this_run = index == to || self.tree.hosts[to].seated < removed.since;
            let is_known = is_connected_since && (is_of_this_run || removed.at + window <= self.tree.now);
            removed.at.saturating_add(bound) <= self.tree.now && is_known
        })
    }
}
