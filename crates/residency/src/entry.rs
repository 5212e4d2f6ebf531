//! One transfer in the queue.

use base::LogicalPath;
use std::fmt;
use std::sync::Arc;

/// The direction of a transfer, as seen from this server.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum TransferDirection {
    /// From mass storage to this server.
    In,
    /// From this server to mass storage.
    Out,
}

impl TransferDirection {
    /// Both directions.
    pub const ALL: [Self; 2] = [Self::In, Self::Out];
}

/// The priority of a transfer: 0 to 2, the greatest first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Priority(u8);

impl Priority {
    pub(crate) const MAX: u8 = 2;

    /// All priorities, in the order in which they are served.
    pub const ALL: [Self; 3] = [Self(2), Self(1), Self(0)];

    /// Returns a priority. Greater numbers count as the greatest priority.
    #[must_use]
    pub fn new(number: u8) -> Self {
        Self(number.min(Self::MAX))
    }

    /// Returns the number, 0 to 2.
    #[must_use]
    pub fn number(self) -> u8 {
        self.0
    }

    /// Returns the number of transfers that start in one round before the next priority has its
    /// turn: 3, 2, 1.
    pub(crate) fn share(self) -> u32 {
        u32::from(self.0) + 1
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The key of an entry. A second request for the same key joins the first one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct EntryKey {
    /// The direction.
    pub direction: TransferDirection,
    /// The logical path of the file.
    pub path: LogicalPath,
}

/// The id of a request that clients can cancel and query.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestId(pub Arc<str>);

/// The state of an entry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum EntryState {
    /// It waits for a slot, not before the time `ready`.
    Queued {
        /// Seconds since the epoch; the time of the request before the first try.
        ready: u64,
    },
    /// A copy runs.
    Active,
    /// A copy runs, and all who wanted it have cancelled.
    Stopping,
    /// It failed for good. Requests are refused with this reason until `until`.
    Failed {
        /// Seconds since the epoch.
        until: u64,
        /// The reason.
        failure: CopyFailure,
    },
}

/// One transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TransferEntry {
    /// The key.
    pub key: EntryKey,
    /// The priority: the greatest of all requests that joined.
    pub priority: Priority,
    /// The host that the data comes from or goes to; empty for the mass storage of the site.
    pub source: Arc<str>,
    /// The id of the first request, or its client if it has none.
    pub id: Arc<str>,
    /// The client that made the first request, `user.pid:fd@host`.
    pub client: Arc<str>,
    /// The owner of the first request, with whom others share the queue: a user, or a host.
    pub owner: Arc<str>,
    /// The time of the first request, in seconds since the epoch.
    pub added: u64,
    /// Number of tries that have started.
    pub tries: u32,
    /// Somebody asked without an id, for example by an open. Then no cancel ends the entry.
    pub is_anonymous: bool,
    /// The file is removed from the disk after its copy to mass storage.
    pub removes: bool,
    /// The state.
    pub state: EntryState,
}

/// The reason of a failure, as far as it decides about another try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FailureReason {
    /// There is no such file. Another try would not help.
    NotFound,
    /// Another try would not help, for another reason.
    Permanent,
    /// Another try may succeed.
    Temporary,
    /// This server or its disk failed, which says nothing about the file.
    Site,
    /// The program of an earlier try still runs. This try does not count.
    InUse,
    /// The file was changed during its copy. Another try may succeed.
    Changed,
}

/// A failed copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CopyFailure {
    /// The reason.
    pub reason: FailureReason,
    /// A text for clients.
    pub text: Arc<str>,
}

impl CopyFailure {
    /// Creates a failure.
    pub fn new(reason: FailureReason, text: impl Into<Arc<str>>) -> Self {
        Self { reason, text: text.into() }
    }
}

impl fmt::Display for CopyFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// A file of a request that failed for good.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FailedFile {
    /// The path.
    pub path: String,
    /// [`TransferEntry::client`].
    pub client: String,
    /// The number of the priority.
    pub priority: u8,
    /// [`TransferEntry::added`].
    pub added: u64,
    /// The reason.
    pub text: String,
}
