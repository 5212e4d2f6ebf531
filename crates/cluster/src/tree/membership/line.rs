//! One connection to a parent, from the first attempt to its end.

use std::time::Duration;

use super::super::address::Address;
use super::super::limits::{ANSWER_MAX, ANSWER_MIN, STABLE};
use super::super::link::LinkId;
use super::super::message::Reply;

use wire::cms::Extensions;

/// How far it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Nothing; the next attempt is not before `at`.
    Idle {
        /// Since the start.
        at: Duration,
    },
    /// The connection is being made.
    Connecting {
        /// Given up then.
        due: Duration,
    },
    /// The login was sent.
    Asking {
        /// Given up then, if nothing is heard before.
        due: Duration,
    },
    /// The parent has taken the node in.
    Attached {
        /// When.
        since: Duration,
    },
}

/// A connection to one parent, and what is known of that parent.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) address: Address,
    pub(super) link: Option<LinkId>,
    pub(super) phase: Phase,
    pub(super) heard: Duration,
    /// Attempts in a row that led nowhere.
    pub(super) failures: u32,
    /// Of them, those in which the parent said nothing.
    unanswered: u32,
    pub(super) extensions: Extensions,
    /// The parent's system id.
    pub(super) id: String,
    /// When the parent asked for a file last, unless it was told since then that all answers are void and has got none
    /// after that.
    pub(super) asked: Option<Duration>,
}

impl Line {
    pub(super) fn new(address: Address, now: Duration) -> Self {
        Self {
            address,
            link: None,
            phase: Phase::Idle { at: now },
            heard: now,
            failures: 0,
            unanswered: 0,
            extensions: Extensions::default(),
            id: String::new(),
            asked: None,
        }
    }

    pub(super) const fn is_attached(&self) -> bool {
        matches!(self.phase, Phase::Attached { .. })
    }

    /// How long the answer to a login may take.
    pub(super) fn patience(&self) -> Duration {
        ANSWER_MIN.saturating_mul(1 << self.unanswered.min(8)).min(ANSWER_MAX)
    }

    pub(super) fn attach(&mut self, reply: &Reply, extensions: Extensions, now: Duration) {
        self.phase = Phase::Attached { since: now };
        self.extensions = reply.extensions.common(extensions);
        self.id.clone_from(&reply.id);
        self.unanswered = 0;
        self.asked = None;
    }

    /// The attempt or the membership ended. Whether it had lasted.
    pub(super) fn end(&mut self, at: Duration, now: Duration) -> bool {
        let lasted = matches!(self.phase, Phase::Attached { since } if now >= since + STABLE);
        match self.phase {
            Phase::Asking { due } if due <= now => self.unanswered += 1,
            _ => {}
        }
        self.failures = if lasted { 0 } else { self.failures.saturating_add(1) };
        self.phase = Phase::Idle { at };
        self.link = None;
        lasted
    }
}
