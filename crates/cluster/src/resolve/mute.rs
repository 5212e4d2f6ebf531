//! Servers that promised to say "not here" and do not: of nothing any more, or of nothing in some folders, which lie on a disk
//! that hangs while the server's others are well.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::slots::{Slot, SlotMask};

/// Folders that are noted at most; when there are more, all are noted anew.
const FOLDERS_MAX: usize = 4096;

/// Until they answer their silence is listened to as that of real daemons.
#[derive(Default)]
pub(super) struct Mute {
    servers: Silent,
    /// By hashes of their paths.
    folders: HashMap<u64, Silent>,
    keys: RandomState,
}

/// Who is silent.
#[derive(Default)]
struct Silent {
    /// For so long that it is taken for an answer.
    mute: SlotMask,
    /// And since when each has left questions unanswered.
    since: Vec<(Slot, Duration)>,
}

impl Silent {
    fn missed(&mut self, slot: Slot, asked: Duration, now: Duration, patience: Duration) {
        let since = match self.since.iter().find(|(other, _)| *other == slot) {
            Some((_, since)) => *since,
            None => {
                self.since.push((slot, asked));
                asked
            }
        };
        if now.saturating_sub(since) >= patience {
            self.mute.insert(slot);
        }
    }

    fn heard(&mut self, slot: Slot) {
        self.mute.remove(slot);
        self.since.retain(|(other, _)| *other != slot);
    }
}

impl Mute {
    /// Those whose silence about a path is taken for an answer.
    pub(super) fn about(&self, path: &[u8]) -> SlotMask {
        if self.folders.is_empty() {
            return self.servers.mute;
        }
        let folder = self.folders.get(&self.folder(path));
        self.servers.mute | folder.map_or(SlotMask::EMPTY, |silent| silent.mute)
    }

    /// A server did not answer in time what it was `asked` then. After `patience` without an answer it is mute.
    pub(super) fn missed(
        &mut self,
        slot: Slot,
        path: &[u8],
        asked: Duration,
        now: Duration,
        patience: Duration,
    ) {
        self.servers.missed(slot, asked, now, patience);
        let folder = self.folder(path);
        if self.folders.len() >= FOLDERS_MAX && !self.folders.contains_key(&folder) {
            self.folders.clear();
        }
        self.folders.entry(folder).or_default().missed(slot, asked, now, patience);
    }

    /// It answered a question about a path.
    pub(super) fn heard(&mut self, slot: Slot, path: &[u8]) {
        self.servers.heard(slot);
        if self.folders.is_empty() {
            return;
        }
        let folder = self.folder(path);
        if let Some(silent) = self.folders.get_mut(&folder) {
            silent.heard(slot);
            if silent.since.is_empty() {
                self.folders.remove(&folder);
            }
        }
    }

    /// Somebody else sits in the slot, or the same one has come back.
    pub(super) fn anew(&mut self, slot: Slot) {
        self.servers.heard(slot);
        self.folders.retain(|_, silent| {
            silent.heard(slot);
            !silent.since.is_empty()
        });
    }

    fn folder(&self, path: &[u8]) -> u64 {
        let end = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        self.keys.hash_one(path.get(..end).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_noted_is_bounded_and_goes_with_the_server() {
        let mut mute = Mute::default();
        let (slot, other) = (Slot::new(3).unwrap(), Slot::new(4).unwrap());
        let patience = Duration::from_secs(60);
        for number in 0..10 * FOLDERS_MAX {
            let path = format!("/d{number}/f");
            mute.missed(slot, path.as_bytes(), Duration::ZERO, patience, patience);
            mute.missed(other, path.as_bytes(), Duration::ZERO, Duration::ZERO, patience);
            assert!(mute.folders.len() <= FOLDERS_MAX);
            assert_eq!(mute.about(path.as_bytes()), slot.mask());
        }
        mute.anew(slot);
        mute.anew(other);
        assert!(mute.folders.is_empty() && mute.servers.since.is_empty());
        assert_eq!(mute.about(b"/d0/f"), SlotMask::EMPTY);
    }
}
