//! The events to come, in the order of their times.
//!
//! Events of the same time keep the order in which they were added, so that a seed gives the same
//! history each time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::time::Duration;

use crate::messages::{HostReply, SimMessage};

/// An event of the world.
pub(crate) enum WorldEvent {
    Start(u32),
    Arrive {
        link: u32,
    },
    Made {
        link: u32,
    },
    Message {
        link: u32,
        to: usize,
        sent: Duration,
        message: Box<SimMessage>,
    },
    Ended {
        link: u32,
        to: usize,
    },
    Break {
        link: u32,
    },
    Silence {
        link: u32,
    },
    Stall {
        link: u32,
    },
    /// The separation of two hosts ends.
    Together {
        pair: (u32, u32),
    },
    Timer {
        host: u32,
        epoch: u32,
    },
    /// A client's request reaches a host.
    Ask {
        operation: u32,
        attempt: u32,
        host: u32,
        lost: bool,
    },
    /// An answer reaches a client.
    Told {
        operation: u32,
        attempt: u32,
        told: HostReply,
    },
    /// A client's timeout passes.
    Patience {
        operation: u32,
        attempt: u32,
    },
    /// A client sends its next request.
    Send {
        operation: u32,
        attempt: u32,
        host: u32,
    },
}

impl WorldEvent {
    /// Returns the connection that the event belongs to and waits for.
    pub(crate) const fn link(&self) -> Option<u32> {
        match self {
            Self::Arrive { link }
            | Self::Made { link }
            | Self::Message { link, .. }
            | Self::Ended { link, .. } => Some(*link),
            _ => None,
        }
    }
}

struct Scheduled {
    at: Duration,
    order: u64,
    what: WorldEvent,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.order == other.order
    }
}
impl Eq for Scheduled {}
impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.order).cmp(&(other.at, other.order))
    }
}

/// The events to come.
#[derive(Default)]
pub(crate) struct EventQueue {
    heap: BinaryHeap<Reverse<Scheduled>>,
    /// The number of events added so far.
    added: u64,
}

impl EventQueue {
    /// Returns the number of events to come.
    pub(crate) fn len(&self) -> usize {
        self.heap.len()
    }

    /// Adds an event.
    pub(crate) fn add(&mut self, at: Duration, what: WorldEvent) {
        self.added += 1;
        self.heap.push(Reverse(Scheduled { at, order: self.added, what }));
    }

    /// Takes the next event with its time, unless it happens after `end`.
    pub(crate) fn take_until(&mut self, end: Duration) -> Option<(Duration, WorldEvent)> {
        let next = self.heap.peek_mut().filter(|next| next.0.at <= end)?;
        let Reverse(Scheduled { at, what, .. }) = PeekMut::pop(next);
        Some((at, what))
    }
}
