//! Settings, parent queries and driver actions of the resolver.
//!
//! These types are the interface between the resolver and its driver, which does all I/O. Requests
//! and answers of clients are in `request`.

use std::sync::Arc;
use std::time::Duration;

use super::limits::HOLD;
use super::queries::RequestToken;
use crate::cache::CacheStats;
use crate::lease_number::LeaseNumber;
use crate::request::ClusterAnswer;
use crate::slots::{Slot, SlotMask};

/// The default query timeout for real daemons (`cms.delay qdl`, `lookup`).
pub const SILENCE: Duration = Duration::from_secs(5);

/// The time for which one of our own servers may leave queries unanswered before missing replies
/// count as absence.
const MUTE: Duration = Duration::from_secs(60);

/// The settings of the resolver.
#[derive(Clone, Copy, Debug)]
pub struct ResolveSettings {
    /// The query timeout for a child that sends no NOT_HERE replies.
    pub silence: Duration,
    /// The time after which a server that leaves all its queries unanswered counts as unresponsive
    /// although it supports NOT_HERE replies. From then on its missing replies mean absence, as for
    /// a real daemon, until it replies. Unsolicited messages do not count. If it leaves only the
    /// queries for one directory unanswered, a disk hangs there, and the rule applies to that
    /// directory. The rule also applies to an inner node that has been out of service for this
    /// time, because it may not know its own children.
    pub mute: Duration,
    /// The time for which a request is held that depends on expected children: the quorum is
    /// missing, or a child was lost a moment ago.
    pub hold: Duration,
    /// This node has parents that need reports about changes of files.
    pub has_parents: bool,
    /// This node is a supervisor: a parent redirects clients here.
    pub supervises: bool,
    /// The time of day, since 1970, at the time zero of the resolver; leases are numbered by it.
    pub started: Duration,
}

impl Default for ResolveSettings {
    fn default() -> Self {
        Self {
            silence: SILENCE,
            mute: MUTE,
            hold: HOLD,
            has_parents: false,
            supervises: false,
            started: Duration::ZERO,
        }
    }
}

/// The result of a look-up in the shared file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupOutcome {
    /// The file exists; when `pending`, it is incomplete.
    Here {
        /// The file is incomplete.
        pending: bool,
    },
    /// The file does not exist.
    NotHere,
    /// Unknown: the file system failed or hangs.
    Unknown,
    /// Too many look-ups are waiting: clients are asked to retry.
    Refused,
}

/// The options of a parent's query for a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateAsk {
    /// Do not answer from the cache.
    pub refresh: bool,
    /// The parent wants no reply.
    pub quiet: bool,
    /// It comes from a meta manager, or was forwarded from one.
    pub via_meta: bool,
}

/// The reply to a parent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateReply {
    /// The file is here; when `pending`, it is only being staged.
    Have {
        /// The file is being staged, or not yet closed.
        pending: bool,
    },
    /// The file is not here. A parent without support for this reply gets none.
    NotHere,
}

/// An action for the driver, which executes them in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ResolverAction {
    /// Query these children for the path.
    Ask {
        /// The children.
        to: SlotMask,
        /// The path.
        path: Arc<[u8]>,
        /// Do not answer from the cache.
        refresh: bool,
        /// As in [`StateAsk`].
        via_meta: bool,
    },
    /// Look up the path in the file system that all servers see:
    /// [`super::LocationResolver::lookup_finished`].
    Look {
        /// The path.
        path: Arc<[u8]>,
    },
    /// Send a child the lease of a path, before the client is answered.
    Lease {
        /// The child.
        slot: Slot,
        /// The path.
        path: Arc<[u8]>,
        /// The duration: [`crate::LEASE`], or zero to end the lease.
        time: Duration,
        /// Its number; for an end the number of the lowest lease that stays.
        number: LeaseNumber,
    },
    /// Answer a waiting client.
    Answer {
        /// The request.
        token: RequestToken,
        /// The answer.
        answer: ClusterAnswer,
    },
    /// Answer a waiting parent. A parent that gets [`ResolverAction::Announce`] instead, or no
    /// reply, gets no such action, so its token must not own resources.
    Reply {
        /// The query.
        token: RequestToken,
        /// The path of the query.
        path: Arc<[u8]>,
        /// The reply.
        reply: StateReply,
    },
    /// Announce to all parents that the path is here now. Parents with a query for it get no other
    /// reply.
    Announce {
        /// The path.
        path: Arc<[u8]>,
        /// The file is only being staged.
        pending: bool,
    },
    /// Announce to all parents that the path is no longer here.
    Retract {
        /// The path.
        path: Arc<[u8]>,
    },
}

/// Counts of the resolver.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResolveStats {
    /// The counts of the cache.
    pub cache: CacheStats,
    /// Open queries.
    pub queries: usize,
    /// Requests that wait for queries.
    pub waiters: usize,
    /// Requests that wait for children to join.
    pub held: usize,
    /// Waiting requests and queries looked at since the start.
    pub steps: u64,
}
