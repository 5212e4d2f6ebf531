//! The words of the machine beside requests and answers: its numbers, what parents ask, and what its driver has to do.

use std::sync::Arc;
use std::time::Duration;

use super::held::HOLD;
use super::queries::Token;
use crate::cache::CacheStats;
use crate::lease_number::LeaseNumber;
use crate::request::Answer;
use crate::slots::{Slot, SlotMask};

/// How long silence of a real daemon is listened to, unless configured (`cms.delay qdl`, `lookup`).
pub const SILENCE: Duration = Duration::from_secs(5);

/// How long one of our own servers may leave questions without an answer before its silence is taken for one.
const MUTE: Duration = Duration::from_secs(60);

/// The numbers of the machine.
#[derive(Clone, Copy, Debug)]
pub struct ResolveSettings {
    /// How long silence of a child that never says "not here" is listened to.
    pub silence: Duration,
    /// A server that promised to say "not here", and answers nothing that it is asked for so long, is not well: from then on
    /// its silence is listened to as that of a real daemon, until it answers. What it tells unasked does not count. One that answers
    /// nothing of a folder, but of others, has a disk that hangs: the same for that folder. And the same for an inner node that has
    /// been out of service for so long: it may not know what it cannot see.
    pub mute: Duration,
    /// How long a request is held that rests on children which are expected: too few are there, or one was just lost.
    pub hold: Duration,
    /// Whether there is somebody above who wants to hear of what comes and goes.
    pub has_parents: bool,
    /// Whether clients are sent here by a node above: a supervisor.
    pub supervises: bool,
    /// The time of day, since 1970, when the time of the machine was zero: leases are numbered by it.
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

/// How a parent asks whether a file is here.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StateAsk {
    /// Not from what is remembered.
    pub refresh: bool,
    /// No answer is wanted.
    pub quiet: bool,
    /// It comes from a meta manager, or goes down from one.
    pub via_meta: bool,
}

/// What a parent is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StateReply {
    /// It is here; when `pending`, only on its way.
    Have {
        /// Being staged, or not yet closed.
        pending: bool,
    },
    /// It is not here. To a parent that knows no such answer: silence.
    NotHere,
}

/// What the driver has to do, in order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Action {
    /// Ask these children whether they have it.
    Ask {
        /// Whom.
        to: SlotMask,
        /// What.
        path: Arc<[u8]>,
        /// Not from what they remember.
        refresh: bool,
        /// As in [`StateAsk`].
        via_meta: bool,
    },
    /// Look whether it is there, at the file system that all servers see: [`super::Resolver::looked`].
    Look {
        /// What.
        path: Arc<[u8]>,
    },
    /// Send a child the lease of a path, before the client is answered.
    Lease {
        /// Which child.
        slot: Slot,
        /// What.
        path: Arc<[u8]>,
        /// For how long: [`crate::LEASE`], or zero to end it.
        time: Duration,
        /// Its number; of an end that of the lowest lease that stays.
        number: LeaseNumber,
    },
    /// Answer a client that waits.
    Answer {
        /// Which.
        token: Token,
        /// With what.
        answer: Answer,
    },
    /// Answer a parent that waits. One that gets [`Action::Announce`] instead, or silence, gets no such answer: whatever
    /// is kept for its token would be kept for ever.
    Reply {
        /// Which.
        token: Token,
        /// What it asked for.
        path: Arc<[u8]>,
        /// With what.
        reply: StateReply,
    },
    /// Tell all parents that the path is here now. Those that asked for it get no other answer.
    Announce {
        /// What.
        path: Arc<[u8]>,
        /// Only on its way.
        pending: bool,
    },
    /// Tell all parents that the path is no longer here.
    Retract {
        /// What.
        path: Arc<[u8]>,
    },
}

/// What is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ResolveStats {
    /// The cache.
    pub cache: CacheStats,
    /// Queries under way.
    pub queries: usize,
    /// Requests that wait for them.
    pub waiters: usize,
    /// Requests that wait for children to come.
    pub held: usize,
    /// Waiting requests and queries that were looked at since the start.
    pub steps: u64,
}
