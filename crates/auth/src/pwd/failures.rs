//! [`FailureCounts`]: failed attempts of hosts and of users, after which logins are refused for a
//! while.
//!
//! They are kept in memory, so nobody can lock a user out for good.

use base::ClientHost;
use std::collections::HashMap;
use std::hash::Hash;
use std::time::{Duration, SystemTime};

/// Time without a failed attempt after which the earlier ones no longer count.
const MEMORY: Duration = Duration::from_secs(15 * 60);

/// Maximum number of hosts, and of invented names of users, that are remembered.
const ENTRIES_MAX: usize = 4096;

/// A user is locked for all hosts at this multiple of the failures that lock a host. Fewer would let
/// one host lock out the users of others.
const USER_FACTOR: u32 = 10;

/// Failed attempts of one user or host.
#[derive(Clone, Copy)]
struct LoginFailures {
    count: u32,
    last: SystemTime,
}

impl LoginFailures {
    fn is_forgotten(&self, now: SystemTime) -> bool {
        // A clock that was set back would extend the memory.
        now.duration_since(self.last).is_ok_and(|since| since > MEMORY)
            || self.last.duration_since(now).is_ok_and(|ahead| ahead > MEMORY)
    }
}

/// The failed attempts at a server. Those of a user at one host are among those of the host.
#[derive(Default)]
pub(super) struct FailureCounts {
    hosts: HashMap<ClientHost, LoginFailures>,
    /// Users with a password. Their number is that of the file, so invented names never displace them.
    users: HashMap<String, LoginFailures>,
    /// Names that no user has. They are locked as well, so that the answers do not tell them.
    invented: HashMap<String, LoginFailures>,
}

impl FailureCounts {
    /// Reports whether a host has failed `most` times, or a user much more often.
    pub(super) fn is_locked(&self, user: &str, host: ClientHost, most: u32, now: SystemTime) -> bool {
        let reached = |failures: Option<&LoginFailures>, most| {
            failures.is_some_and(|failures| failures.count >= most && !failures.is_forgotten(now))
        };
        let of_user = most.saturating_mul(USER_FACTOR);
        reached(self.hosts.get(&host), most)
            || reached(self.users.get(user), of_user)
            || reached(self.invented.get(user), of_user)
    }

    /// Counts a failed attempt. `is_user` is set if the file has an entry of that name.
    pub(super) fn add(&mut self, user: &str, is_user: bool, host: ClientHost, now: SystemTime) {
        make_room(&mut self.hosts, &host, now);
        count(&mut self.hosts, host, now);
        let user = user.to_owned();
        if is_user {
            count(&mut self.users, user, now);
        } else {
            make_room(&mut self.invented, &user, now);
            count(&mut self.invented, user, now);
        }
    }

    /// Forgets the failed attempts of a user who has logged in. Those of the host remain, because an
    /// attacker may have an account.
    pub(super) fn succeed(&mut self, user: &str) {
        self.users.remove(user);
    }

    /// Forgets all users but these.
    pub(super) fn retain_users(&mut self, is_user: impl Fn(&str) -> bool) {
        self.users.retain(|user, _| is_user(user));
    }
}

/// Removes an entry for a new one, if there are too many.
fn make_room<Key: Eq + Hash + Clone>(table: &mut HashMap<Key, LoginFailures>, key: &Key, now: SystemTime) {
    if table.len() < ENTRIES_MAX || table.contains_key(key) {
        return;
    }
    table.retain(|_, failures| !failures.is_forgotten(now));
    if table.len() < ENTRIES_MAX {
        return;
    }
    let oldest = table.iter().min_by_key(|(_, failures)| (failures.count, failures.last));
    if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
        table.remove(&oldest);
    }
}

fn count<Key: Eq + Hash>(table: &mut HashMap<Key, LoginFailures>, key: Key, now: SystemTime) {
    let failures = table.entry(key).or_insert(LoginFailures { count: 0, last: now });
    let before = if failures.is_forgotten(now) { 0 } else { failures.count };
    *failures = LoginFailures { count: before.saturating_add(1), last: now };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    fn host(last: u8) -> ClientHost {
        ClientHost::from(Some(IpAddr::from([192, 0, 2, last])))
    }

    #[test]
    fn a_host_is_locked_for_a_while() {
        let mut counts = FailureCounts::default();
        counts.add("alice", true, host(1), AT);
        assert!(!counts.is_locked("alice", host(1), 2, AT));
        counts.add("bob", true, host(1), AT);
        assert!(counts.is_locked("carol", host(1), 2, AT), "as any user");
        assert!(!counts.is_locked("alice", host(2), 2, AT) && !counts.is_locked("bob", host(2), 2, AT));
        counts.succeed("alice");
        assert!(counts.is_locked("alice", host(1), 2, AT));
        assert!(!counts.is_locked("alice", host(1), 2, AT + MEMORY + Duration::from_secs(1)));
        // A host with IPv6 has a network of addresses.
        let host = |text: &str| ClientHost::from(Some(text.parse().unwrap()));
        counts.add("alice", true, host("2001:db8::1"), AT);
        counts.add("alice", true, host("2001:db8::2"), AT);
        assert!(counts.is_locked("bob", host("2001:db8::3"), 2, AT));
        assert!(!counts.is_locked("bob", host("2001:db8:0:1::1"), 2, AT));
    }

    #[test]
    fn a_user_is_locked_everywhere_after_many_more_failures() {
        for is_user in [true, false] {
            let mut counts = FailureCounts::default();
            for number in 0..2 * u8::try_from(USER_FACTOR).unwrap() {
                assert!(!counts.is_locked("alice", host(99), 2, AT), "{number}");
                counts.add("alice", is_user, host(number), AT);
            }
            assert!(counts.is_locked("alice", host(99), 2, AT), "{is_user}");
            assert!(!counts.is_locked("bob", host(99), 2, AT), "{is_user}");
            assert!(!counts.is_locked("alice", host(99), 2, AT + MEMORY + Duration::from_secs(1)));
            counts.succeed("alice");
            assert_eq!(counts.is_locked("alice", host(99), 2, AT), !is_user, "nobody logs in as another");
        }
    }

    #[test]
    fn invented_names_and_hosts_are_limited_and_displace_no_user() {
        let mut counts = FailureCounts::default();
        counts.add("alice", true, host(1), AT);
        let network = |number: usize| ClientHost::Network(u64::try_from(number).unwrap());
        for number in 0..2 * ENTRIES_MAX {
            for _ in 0..2 {
                counts.add(&format!("user{number}"), false, network(number), AT);
            }
        }
        assert_eq!((counts.invented.len(), counts.hosts.len()), (ENTRIES_MAX, ENTRIES_MAX));
        assert_eq!(counts.users.get("alice").unwrap().count, 1);
        // Those who fail most often stay.
        for _ in 0..5 {
            counts.add("alice", true, host(2), AT);
        }
        (0..ENTRIES_MAX).for_each(|number| counts.add("x", false, network(3 * ENTRIES_MAX + number), AT));
        assert!(counts.is_locked("bob", host(2), 5, AT));
        counts.retain_users(|user| user != "alice");
        assert!(counts.users.is_empty());
    }
}
