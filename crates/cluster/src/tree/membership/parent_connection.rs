//! One connection to a parent, from the first attempt to its end.
//!
//! The rules about several parents are in the module above; this file knows only one of them.

use std::time::Duration;

use super::super::address::Address;
use super::super::connection_id::ConnectionId;
use super::super::limits::{ANSWER_MAX, ANSWER_MIN, STABLE};
use super::super::message::ParentReply;

use wire::cms::Extensions;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ParentConnectionPhase {
    /// Idle; the next attempt is not before `at`.
    Idle {
        /// The time since the start.
        at: Duration,
    },
    /// The connection is being established.
    Connecting {
        /// The deadline of the attempt.
        due: Duration,
    },
    /// The login was sent.
    Asking {
        /// The deadline for the first message of the parent.
        due: Duration,
    },
    /// The parent has accepted the node.
    Attached {
        /// The time of acceptance.
        since: Duration,
    },
}

/// A connection to one parent, and the knowledge about that parent.
#[derive(Debug)]
pub(super) struct ParentConnection {
    pub(super) address: Address,
    pub(super) link: Option<ConnectionId>,
    pub(super) phase: ParentConnectionPhase,
    pub(super) heard: Duration,
    /// The number of failed attempts in a row.
    pub(super) failures: u32,
    /// The number of those in which the parent sent nothing.
    unanswered: u32,
    /// The extensions in the login of this node.
    pub(super) offered: Extensions,
    pub(super) extensions: Extensions,
    /// The parent's system id.
    pub(super) id: String,
    /// The time of the parent's last query for a file. It is cleared by a notice that all answers
    /// are stale, unless the parent got an answer after that.
    pub(super) queried_at: Option<Duration>,
}

impl ParentConnection {
    pub(super) fn new(address: Address, now: Duration) -> Self {
        Self {
            address,
            link: None,
            phase: ParentConnectionPhase::Idle { at: now },
            heard: now,
            failures: 0,
            unanswered: 0,
            offered: Extensions::default(),
            extensions: Extensions::default(),
            id: String::new(),
            queried_at: None,
        }
    }

    pub(super) const fn is_attached(&self) -> bool {
        matches!(self.phase, ParentConnectionPhase::Attached { .. })
    }

    /// Returns the timeout for the reply to a login.
    pub(super) fn patience(&self) -> Duration {
        ANSWER_MIN.saturating_mul(1 << self.unanswered.min(8)).min(ANSWER_MAX)
    }

    pub(super) fn attach(&mut self, reply: &ParentReply, now: Duration) {
        self.phase = ParentConnectionPhase::Attached { since: now };
        self.extensions = reply.extensions.common(self.offered);
        self.id.clone_from(&reply.id);
        self.unanswered = 0;
        self.queried_at = None;
    }

    /// Records that the attempt or the membership ended. Reports whether it had lasted.
    pub(super) fn end(&mut self, at: Duration, now: Duration) -> bool {
        let lasted = matches!(self.phase, ParentConnectionPhase::Attached { since } if now >= since + STABLE);
        match self.phase {
            ParentConnectionPhase::Asking { due } if due <= now => self.unanswered += 1,
            _ => {}
        }
        self.failures = if lasted { 0 } else { self.failures.saturating_add(1) };
        self.phase = ParentConnectionPhase::Idle { at };
        self.link = None;
        lasted
    }
}
