//! Unresponsive children: they support NOT_HERE replies and do not send them.
//!
//! Such a child may be a server that no longer replies at all. It may be a server with a hung disk,
//! which replies to no query for some directories. Or it is an inner node out of service, which
//! cannot report the absence of files that it cannot see. Without this record clients would retry
//! for ever, because a missing reply from such a child proves nothing.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::lookup_limiter::parent_directory;
use crate::slots::{Slot, SlotMask};
use crate::tree::limits::STABLE;

/// The maximum number of recorded directories; beyond it, the record starts again.
const DIRECTORIES_MAX: usize = 4096;

/// The unresponsive children. Until they reply, a missing reply counts as absence, as for real
/// daemons.
#[derive(Default)]
pub(super) struct UnresponsiveChildren {
    servers: SilentChildren,
    /// The children by the hash of a directory's path.
    directories: HashMap<u64, SilentChildren>,
    keys: RandomState,
    /// Inner nodes out of service.
    idle: Vec<IdleInnerNode>,
}

/// An inner node that is out of service, except for moments.
struct IdleInnerNode {
    slot: Slot,
    since: Duration,
    /// The time since which it is in service again.
    serves: Option<Duration>,
}

/// Children that do not reply.
#[derive(Default)]
struct SilentChildren {
    /// Children whose silence has exceeded the limit, so that a missing reply counts as absence.
    mute: SlotMask,
    /// Children with unanswered queries.
    missed: Vec<MissedReplies>,
}

/// The unanswered queries of a server in close succession.
struct MissedReplies {
    slot: Slot,
    /// The time of the first query.
    first: Duration,
    /// The time of the last query.
    last: Duration,
}

impl SilentChildren {
    fn missed(&mut self, slot: Slot, queried_at: Duration, now: Duration, patience: Duration) {
        let known = self.missed.iter_mut().find(|missed| missed.slot == slot);
        let first = match known {
            Some(missed) => {
                // Time-outs that are far apart do not add up.
                if queried_at.saturating_sub(missed.last) > patience {
                    missed.first = queried_at;
                }
                missed.last = queried_at;
                missed.first
            }
            None => {
                self.missed.push(MissedReplies { slot, first: queried_at, last: queried_at });
                queried_at
            }
        };
        if now.saturating_sub(first) >= patience {
            self.mute.insert(slot);
        }
    }

    fn note_reply(&mut self, slot: Slot) {
        self.mute.remove(slot);
        self.missed.retain(|missed| missed.slot != slot);
    }
}

impl UnresponsiveChildren {
    /// Returns the children whose missing reply for a path counts as absence.
    pub(super) fn about(&self, path: &[u8]) -> SlotMask {
        if self.directories.is_empty() {
            return self.servers.mute;
        }
        let directory = self.directories.get(&self.directory(path));
        self.servers.mute | directory.map_or(SlotMask::EMPTY, |silent| silent.mute)
    }

    /// Records that a server did not reply in time to a query of the time `queried_at`. After `patience`
    /// without a reply it is unresponsive.
    pub(super) fn missed(
        &mut self,
        slot: Slot,
        path: &[u8],
        queried_at: Duration,
        now: Duration,
        patience: Duration,
    ) {
        self.servers.missed(slot, queried_at, now, patience);
        let directory = self.directory(path);
        if self.directories.len() >= DIRECTORIES_MAX && !self.directories.contains_key(&directory) {
            self.directories.clear();
        }
        self.directories.entry(directory).or_default().missed(slot, queried_at, now, patience);
    }

    /// Records a reply to a query for a path.
    pub(super) fn note_reply(&mut self, slot: Slot, path: &[u8]) {
        self.servers.note_reply(slot);
        if self.directories.is_empty() {
            return;
        }
        let directory = self.directory(path);
        if let Some(silent) = self.directories.get_mut(&directory) {
            silent.note_reply(slot);
            if silent.missed.is_empty() {
                self.directories.remove(&directory);
            }
        }
    }

    /// Clears the record of a slot: it has another owner, or its owner reconnected.
    pub(super) fn reset(&mut self, slot: Slot) {
        self.servers.note_reply(slot);
        self.directories.retain(|_, silent| {
            silent.note_reply(slot);
            !silent.missed.is_empty()
        });
    }

    /// Records whether the inner node in the slot is out of service. A node that is flapping counts
    /// as out of service whenever it does not serve.
    pub(super) fn note(&mut self, slot: Slot, idle: bool, now: Duration) {
        let known = self.idle.iter_mut().find(|known| known.slot == slot);
        match known {
            Some(known) if idle => {
                let stayed = known.serves.take().is_some_and(|since| now >= since.saturating_add(STABLE));
                known.since = if stayed { now } else { known.since };
            }
            Some(known) => drop(known.serves.get_or_insert(now)),
            None if idle => self.idle.push(IdleInnerNode { slot, since: now, serves: None }),
            None => {}
        }
    }

    /// Clears the record of a slot that has another owner or is free.
    pub(super) fn left(&mut self, slot: Slot) {
        self.idle.retain(|known| known.slot != slot);
    }

    /// Returns the inner nodes whose time out of service is so long that a missing reply counts as
    /// absence.
    pub(super) fn idle(&self, now: Duration, patience: Duration) -> SlotMask {
        let long =
            |known: &&IdleInnerNode| known.serves.is_none() && now.saturating_sub(known.since) >= patience;
        self.idle.iter().filter(long).map(|known| known.slot).collect()
    }

    fn directory(&self, path: &[u8]) -> u64 {
        self.keys.hash_one(parent_directory(path).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_record_is_bounded_and_cleared_with_the_server() {
        let mut mute = UnresponsiveChildren::default();
        let (slot, other) = (Slot::new(3).unwrap(), Slot::new(4).unwrap());
        let patience = Duration::from_secs(60);
        for number in 0..10 * DIRECTORIES_MAX {
            let path = format!("/d{number}/f");
            mute.missed(slot, path.as_bytes(), Duration::ZERO, patience, patience);
            mute.missed(other, path.as_bytes(), Duration::ZERO, Duration::ZERO, patience);
            assert!(mute.directories.len() <= DIRECTORIES_MAX);
            assert_eq!(mute.about(path.as_bytes()), slot.mask());
        }
        mute.reset(slot);
        mute.reset(other);
        assert!(mute.directories.is_empty() && mute.servers.missed.is_empty());
        assert_eq!(mute.about(b"/d0/f"), SlotMask::EMPTY);
    }

    #[test]
    fn a_server_that_is_sometimes_slow_is_not_unresponsive() {
        let mut mute = UnresponsiveChildren::default();
        let slot = Slot::new(3).unwrap();
        let seconds = Duration::from_secs;
        let miss = |mute: &mut UnresponsiveChildren, queried_at| {
            mute.missed(slot, b"/d/f", queried_at, queried_at + seconds(10), seconds(60));
            !mute.about(b"/d/f").is_empty()
        };
        for hour in 0..3 {
            assert!(!miss(&mut mute, seconds(3600 * hour)), "nobody has asked in between");
        }
        let often = [7215, 7230, 7249, 7250].map(|queried_at| miss(&mut mute, seconds(queried_at)));
        assert_eq!(often, [false, false, false, true]);
    }

    #[test]
    fn a_flapping_inner_node_is_out_of_service() {
        let mut mute = UnresponsiveChildren::default();
        let slot = Slot::new(3).unwrap();
        let (seconds, minute) = (Duration::from_secs, Duration::from_secs(60));
        mute.note(slot, false, seconds(0));
        assert_eq!(mute.idle(seconds(100), minute), SlotMask::EMPTY);
        for second in (100..160).step_by(4) {
            mute.note(slot, true, seconds(second));
            assert_eq!(mute.idle(seconds(second), minute), SlotMask::EMPTY);
            mute.note(slot, false, seconds(second + 2));
        }
        assert_eq!(mute.idle(seconds(161), minute), SlotMask::EMPTY, "now it serves");
        mute.note(slot, true, seconds(162));
        assert_eq!(mute.idle(seconds(162), minute), slot.mask());
        // A node that stays in service starts again.
        mute.note(slot, false, seconds(163));
        mute.note(slot, false, seconds(166));
        mute.note(slot, true, seconds(168));
        assert_eq!(mute.idle(seconds(200), minute), SlotMask::EMPTY);
        assert_eq!(mute.idle(seconds(228), minute), slot.mask());
        mute.left(slot);
        mute.note(slot, true, seconds(230));
        assert_eq!(mute.idle(seconds(250), minute), SlotMask::EMPTY);
    }
}
