//! The store of used packets, so that a copy of a packet is refused.
//!
//! A packet is identified by its key id and its random bytes. It is kept for at least twice the
//! lifetime of packets, in two generations that replace each other. Only packets that were made with
//! a valid key enter, so a stranger cannot fill the store.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use sha2::{Digest, Sha256};

use super::packet::RANDOM_BYTES;

/// Maximum number of remembered packets. While the store is full further packets are refused.
const PACKETS_REMEMBERED_MAX: usize = 1 << 20;

/// Bytes of the hash under which a packet is remembered.
const DIGEST_BYTES: usize = 16;

/// The result of a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Replay {
    /// The packet is new and is remembered now.
    New,
    /// The packet was used before.
    Known,
    /// The store is full.
    Full,
}

#[derive(Default, Debug)]
struct Generations {
    current: HashSet<[u8; DIGEST_BYTES]>,
    previous: HashSet<[u8; DIGEST_BYTES]>,
    /// End of the current generation, seconds since 1970.
    until: u64,
}

/// The store, shared by all exchanges of a server.
#[derive(Default, Debug)]
pub(super) struct ReplayStore(Mutex<Generations>);

impl ReplayStore {
    /// Remembers a packet for at least twice the lifetime.
    pub(super) fn remember(
        &self,
        key_id: i64,
        random: &[u8; RANDOM_BYTES],
        lifetime: u64,
        now: u64,
    ) -> Replay {
        let mut hash = Sha256::new();
        hash.update(key_id.to_be_bytes());
        hash.update(random);
        let digest: [u8; 32] = hash.finalize().into();
        let key = digest.first_chunk().copied().unwrap_or_default();
        let mut store = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let span = lifetime.saturating_mul(2).saturating_add(1);
        if now >= store.until {
            let is_recent = now - store.until < span;
            let old = std::mem::take(&mut store.current);
            store.previous = if is_recent { old } else { HashSet::new() };
            store.until = now.saturating_add(span);
        }
        if store.current.contains(&key) || store.previous.contains(&key) {
            return Replay::Known;
        }
        if store.current.len() + store.previous.len() >= PACKETS_REMEMBERED_MAX {
            return Replay::Full;
        }
        store.current.insert(key);
        Replay::New
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_is_known_for_twice_the_lifetime() {
        for start in 0..30 {
            let store = ReplayStore::default();
            assert_eq!(store.remember(9, &[9; 32], 13, 1000 - start), Replay::New);
            assert_eq!(store.remember(1, &[7; 32], 13, 1000), Replay::New, "{start}");
            for later in [0, 1, 13, 14, 26] {
                assert_eq!(store.remember(1, &[7; 32], 13, 1000 + later), Replay::Known, "{start} {later}");
            }
            assert_eq!(store.remember(2, &[7; 32], 13, 1000), Replay::New, "another key");
        }
    }

    #[test]
    fn a_store_forgets_after_a_pause() {
        let store = ReplayStore::default();
        assert_eq!(store.remember(1, &[7; 32], 13, 1000), Replay::New);
        assert_eq!(store.remember(1, &[8; 32], 13, 5000), Replay::New);
        let generations = store.0.lock().unwrap();
        assert_eq!((generations.current.len(), generations.previous.len()), (1, 0));
    }
}
