//! [`FailureCounts`]: failed attempts of users and of addresses, after which logins are refused for a
//! while.
//!
//! They are kept in memory, so nobody can lock a user out for good.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

/// Time without a failed attempt after which the earlier ones no longer count.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Maximum number of users, and of addresses, that are remembered.
const ENTRIES_MAX: usize = 4096;

/// Failed attempts of one user or address.
#[derive(Clone, Copy)]
struct Failures {
    count: u32,
    last: SystemTime,
}

impl Failures {
    fn is_forgotten(&self, now: SystemTime) -> bool {
        // A clock that was set back would extend the memory.
        now.duration_since(self.last).is_ok_and(|since| since > MEMORY)
            || self.last.duration_since(now).is_ok_and(|ahead| ahead > MEMORY)
    }
}

/// The failed attempts at a server.
#[derive(Default)]
pub(super) struct FailureCounts {
    users: HashMap<String, Failures>,
    addresses: HashMap<IpAddr, Failures>,
}

impl FailureCounts {
    /// Reports whether a user or an address has failed `most` times.
    pub(super) fn is_locked(&self, user: &str, address: IpAddr, most: u32, now: SystemTime) -> bool {
        let reached = |failures: Option<&Failures>| {
            failures.is_some_and(|failures| failures.count >= most && !failures.is_forgotten(now))
        };
        reached(self.users.get(user)) || reached(self.addresses.get(&address))
    }

    /// Counts a failed attempt.
    pub(super) fn add(&mut self, user: &str, address: IpAddr, now: SystemTime) {
        count(&mut self.users, user.to_owned(), now);
        count(&mut self.addresses, address, now);
    }

    /// Forgets the failed attempts of a user who has logged in. Those of the address remain, because
    /// an attacker may have an account.
    pub(super) fn succeed(&mut self, user: &str) {
        self.users.remove(user);
    }
}

fn count<Key: Eq + Hash + Clone>(table: &mut HashMap<Key, Failures>, key: Key, now: SystemTime) {
    if table.len() >= ENTRIES_MAX && !table.contains_key(&key) {
        table.retain(|_, failures| !failures.is_forgotten(now));
        if table.len() >= ENTRIES_MAX
            && let Some(oldest) = table
                .iter()
                .min_by_key(|(_, failures)| (failures.count, failures.last))
                .map(|(key, _)| key.clone())
        {
            table.remove(&oldest);
        }
    }
    let failures = table.entry(key).or_insert(Failures { count: 0, last: now });
    let before = if failures.is_forgotten(now) { 0 } else { failures.count };
    *failures = Failures { count: before.saturating_add(1), last: now };
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    fn address(last: u8) -> IpAddr {
        IpAddr::from([192, 0, 2, last])
    }

    #[test]
    fn users_and_addresses_are_locked_for_a_while() {
        let mut counts = FailureCounts::default();
        counts.add("alice", address(1), AT);
        assert!(!counts.is_locked("alice", address(1), 2, AT));
        counts.add("alice", address(2), AT);
        assert!(counts.is_locked("alice", address(3), 2, AT), "from any address");
        assert!(!counts.is_locked("bob", address(2), 2, AT));
        counts.add("bob", address(2), AT);
        assert!(counts.is_locked("carol", address(2), 2, AT), "as any user");
        assert!(!counts.is_locked("alice", address(3), 2, AT + MEMORY + Duration::from_secs(1)));
        counts.succeed("alice");
        assert!(
            !counts.is_locked("alice", address(3), 2, AT) && counts.is_locked("alice", address(2), 2, AT)
        );
    }

    #[test]
    fn the_memory_is_limited_and_keeps_those_who_fail_often() {
        let mut counts = FailureCounts::default();
        for _ in 0..5 {
            counts.add("alice", address(1), AT);
        }
        for number in 0..2 * ENTRIES_MAX {
            counts.add(&format!("user{number}"), address(1), AT);
        }
        assert!(counts.users.len() <= ENTRIES_MAX && counts.addresses.len() == 1);
        assert!(counts.is_locked("alice", address(9), 5, AT));
    }
}
