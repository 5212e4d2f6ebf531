//! The store of used packets, so that a copy of a packet is refused.
//!
//! A packet is identified by its key id and its random bytes. It is kept for at least twice the
//! lifetime of packets, in two generations that replace each other. The generations follow the
//! steady clock, because the time of day can be set back. Then packets whose copies were forgotten
//! look young again, so packets as old as the forgotten ones are refused.
//!
//! Packets from before the start of the server, and from the second of the start, are refused, because
//! an earlier process could have accepted them. So could those of a client whose clock is ahead, but
//! they look like new packets.
//!
//! Only packets that were made with a valid key enter, so a stranger cannot fill the store. A client
//! with a key can; each key has a reserved share, so that the clients of the other keys log in.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};

use super::packet::RANDOM_BYTES;

/// Maximum number of remembered packets beyond which each key can use its reserved share only.
const SHARED_PACKETS_MAX: usize = 1 << 20;
/// Number of packets reserved for all keys together, in equal shares.
const RESERVED_PACKETS: usize = 1 << 20;
/// Bytes of the hash under which a packet is remembered.
const DIGEST_BYTES: usize = 16;
/// Maximum memory of the packets in bytes. A table has at most 16/7 entries per packet and one more
/// byte for each.
const STORE_BYTES_MAX: usize = (SHARED_PACKETS_MAX + RESERVED_PACKETS) * 16 / 7 * (DIGEST_BYTES + 1);

const _: () = assert!(STORE_BYTES_MAX <= 80 << 20);

/// A packet that is valid in all other respects.
#[derive(Clone, Copy)]
pub(super) struct UsedPacket {
    pub(super) key_id: i64,
    pub(super) random: [u8; RANDOM_BYTES],
    /// Time of generation, seconds since 1970.
    pub(super) time: u64,
}

/// The result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Replay {
    /// The packet is new and is remembered now.
    New,
    /// The packet was used before.
    Known,
    /// The packet was made before the server started, or in the same second.
    BeforeStart,
    /// The packet is as old as packets that were forgotten.
    Forgotten,
    /// The store has no room for a packet of this key.
    Full,
}

/// The packets of one period.
#[derive(Default, Debug)]
struct Generation {
    packets: HashSet<[u8; DIGEST_BYTES]>,
    /// Number of packets by key id.
    of_keys: HashMap<i64, usize>,
    /// The latest time of generation, seconds since 1970.
    latest: u64,
}

impl Generation {
    fn of_key(&self, key_id: i64) -> usize {
        self.of_keys.get(&key_id).copied().unwrap_or_default()
    }
}

#[derive(Default, Debug)]
struct Generations {
    current: Generation,
    previous: Generation,
    /// End of the current generation on the steady clock.
    until: Duration,
    /// The latest time of generation of a forgotten packet, seconds since 1970.
    forgotten: u64,
}

/// The store, shared by all exchanges of a server.
#[derive(Debug)]
pub(super) struct ReplayStore {
    generations: Mutex<Generations>,
    /// The start of the server, seconds since 1970.
    start: u64,
    shared_max: usize,
    reserved: usize,
}

impl ReplayStore {
    /// Creates the store of a server that starts at `start`, seconds since 1970.
    pub(super) fn new(start: u64) -> Self {
        Self {
            generations: Mutex::default(),
            start,
            shared_max: SHARED_PACKETS_MAX,
            reserved: RESERVED_PACKETS,
        }
    }

    /// Remembers a packet for at least twice the lifetime. `keys` is the number of valid keys, `now`
    /// the time of the steady clock.
    pub(super) fn remember(&self, packet: &UsedPacket, lifetime: u64, keys: usize, now: Duration) -> Replay {
        let mut store = self.generations.lock().unwrap_or_else(PoisonError::into_inner);
        store.forget_until(now, Duration::from_secs(lifetime.saturating_mul(2).saturating_add(1)));
        // Times are whole seconds, and an earlier process could have ended in this second.
        if packet.time <= self.start {
            return Replay::BeforeStart;
        }
        let digest = packet.digest();
        if store.current.packets.contains(&digest) || store.previous.packets.contains(&digest) {
            return Replay::Known;
        }
        if packet.time <= store.forgotten {
            return Replay::Forgotten;
        }
        let share = self.reserved / keys.max(1);
        let total = store.current.packets.len() + store.previous.packets.len();
        let of_key = store.current.of_key(packet.key_id) + store.previous.of_key(packet.key_id);
        // Keys that are no longer valid can still have packets, so the sum of the shares is checked.
        let is_reserved = of_key < share && total < self.shared_max + self.reserved;
        if total >= self.shared_max && !is_reserved {
            return Replay::Full;
        }
        let current = &mut store.current;
        current.packets.insert(digest);
        *current.of_keys.entry(packet.key_id).or_default() += 1;
        current.latest = current.latest.max(packet.time);
        Replay::New
    }
}

impl Generations {
    /// Begins a new generation of length `span` if the current one has ended.
    fn forget_until(&mut self, now: Duration, span: Duration) {
        if now < self.until {
            return;
        }
        let is_recent = now - self.until < span;
        let ended = std::mem::take(&mut self.current);
        let dropped = if is_recent {
            std::mem::replace(&mut self.previous, ended)
        } else {
            self.forgotten = self.forgotten.max(ended.latest);
            std::mem::take(&mut self.previous)
        };
        self.forgotten = self.forgotten.max(dropped.latest);
        self.until = now.saturating_add(span);
    }
}

impl UsedPacket {
    fn digest(&self) -> [u8; DIGEST_BYTES] {
        let mut hash = Sha256::new();
        hash.update(self.key_id.to_be_bytes());
        hash.update(self.random);
        let digest: [u8; 32] = hash.finalize().into();
        digest.first_chunk().copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIFETIME: u64 = 13;

    fn packet(key_id: i64, random: u8, time: u64) -> UsedPacket {
        UsedPacket { key_id, random: [random; RANDOM_BYTES], time }
    }

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn a_packet_is_known_for_twice_the_lifetime() {
        for start in 0..30 {
            let store = ReplayStore::new(0);
            let remember = |key_id, random, now| {
                store.remember(&packet(key_id, random, 5000), LIFETIME, 1, seconds(now))
            };
            assert_eq!(remember(9, 9, 1000 - start), Replay::New);
            assert_eq!(remember(1, 7, 1000), Replay::New, "{start}");
            for later in [0, 1, 13, 14, 26] {
                assert_eq!(remember(1, 7, 1000 + later), Replay::Known, "{start} {later}");
            }
            assert_eq!(remember(2, 7, 1000), Replay::New, "another key");
        }
    }

    #[test]
    fn a_store_forgets_after_a_pause() {
        let store = ReplayStore::new(0);
        assert_eq!(store.remember(&packet(1, 7, 1), LIFETIME, 1, seconds(1000)), Replay::New);
        assert_eq!(store.remember(&packet(1, 8, 4001), LIFETIME, 1, seconds(5000)), Replay::New);
        let generations = store.generations.lock().unwrap();
        let lengths = (generations.current.packets.len(), generations.previous.packets.len());
        assert_eq!((lengths, generations.forgotten), ((1, 0), 1));
    }

    #[test]
    fn a_forgotten_packet_is_never_new_again() {
        let used = packet(1, 200, 1000);
        for pause in 1..100 {
            let store = ReplayStore::new(0);
            assert_eq!(store.remember(&used, LIFETIME, 1, seconds(0)), Replay::New);
            for number in 1..20 {
                let passed = u64::from(number) * pause;
                let (now, other) = (seconds(passed), packet(1, number, 1000 + passed));
                assert_eq!(store.remember(&other, LIFETIME, 1, now), Replay::New);
                let again = store.remember(&used, LIFETIME, 1, now);
                assert!(matches!(again, Replay::Known | Replay::Forgotten), "{pause} {number}: {again:?}");
            }
        }
    }

    #[test]
    fn packets_from_before_the_start_are_refused() {
        let store = ReplayStore::new(1000);
        let remember = |time| store.remember(&packet(1, 7, time), LIFETIME, 1, seconds(0));
        assert_eq!(remember(1000), Replay::BeforeStart);
        assert_eq!(remember(1001), Replay::New);
    }

    #[test]
    fn a_flood_of_one_key_leaves_the_others_their_share() {
        let store = ReplayStore { shared_max: 20, reserved: 12, ..ReplayStore::new(0) };
        let flood = |key_id, now| {
            let is_new = |random| {
                store.remember(&packet(key_id, random, 5000), LIFETIME, 3, seconds(now)) == Replay::New
            };
            (0..100).filter(|random| is_new(*random)).count()
        };
        assert_eq!(flood(1, 0), 20);
        assert_eq!((flood(2, 1), flood(3, 30)), (4, 4), "each has a third of the reserved part");
        let again = store.remember(&packet(2, 1, 5000), LIFETIME, 3, seconds(30));
        assert_eq!(again, Replay::Known, "no packet is evicted");
        assert_eq!(flood(4, 31), 4, "the key was added meanwhile");
        assert_eq!(flood(5, 31), 0, "the total is bounded");
    }
}
