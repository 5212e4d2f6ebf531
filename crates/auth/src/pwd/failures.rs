//! [`FailureCounts`]: failed attempts of hosts and of users, after which logins are refused for a
//! while.
//!
//! They are kept in memory, so nobody can lock a user out for good.
//!
//! A guess is announced before the password is checked, because a check takes milliseconds. Otherwise
//! many connections could guess at once, all before the first failure counts.

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
    /// Guesses that are being checked.
    running: u32,
    last: SystemTime,
}

/// One attempt to log in.
#[derive(Clone, Copy)]
pub(super) struct PasswordGuess<'a> {
    pub(super) user: &'a str,
    /// The file has an entry of that name.
    pub(super) is_user: bool,
    pub(super) host: ClientHost,
}

/// Whether a guess may be checked.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum GuessAdmission {
    /// It is announced, and must be ended.
    Begun,
    /// It depends on the result of guesses that are being checked.
    Later,
    /// The user or the host has failed too often.
    Locked,
}

/// The result of a guess.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum GuessOutcome {
    LoggedIn,
    Failed,
    /// It shows nothing about a guesser.
    NotCounted,
}

impl LoginFailures {
    const fn new(now: SystemTime) -> Self {
        Self { count: 0, running: 0, last: now }
    }

    fn admission(&self, most: u32, now: SystemTime) -> GuessAdmission {
        let count = if self.is_forgotten(now) { 0 } else { self.count };
        if count >= most {
            GuessAdmission::Locked
        } else if count.saturating_add(self.running) >= most {
            GuessAdmission::Later
        } else {
            GuessAdmission::Begun
        }
    }

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
    /// Announces a guess, unless a host has failed `most` times, or a user much more often.
    pub(super) fn begin(&mut self, guess: PasswordGuess<'_>, most: u32, now: SystemTime) -> GuessAdmission {
        let admission = self.admission(guess.user, guess.host, most, now);
        if admission == GuessAdmission::Begun {
            make_room(&mut self.hosts, &guess.host, now);
            self.hosts.entry(guess.host).or_insert(LoginFailures::new(now)).running += 1;
            let users = if guess.is_user { &mut self.users } else { &mut self.invented };
            let user = guess.user.to_owned();
            if !guess.is_user {
                make_room(users, &user, now);
            }
            users.entry(user).or_insert(LoginFailures::new(now)).running += 1;
        }
        admission
    }

    fn admission(&self, user: &str, host: ClientHost, most: u32, now: SystemTime) -> GuessAdmission {
        let of = |failures: Option<&LoginFailures>, most| {
            failures.map_or(GuessAdmission::Begun, |failures| failures.admission(most, now))
        };
        let of_user = most.saturating_mul(USER_FACTOR);
        let of_users = of(self.users.get(user), of_user).max(of(self.invented.get(user), of_user));
        of(self.hosts.get(&host), most).max(of_users)
    }

    /// Ends a guess that was announced. A user who has logged in has no failed attempts any longer.
    /// Those of the host remain, because an attacker may have an account.
    pub(super) fn end(&mut self, guess: PasswordGuess<'_>, outcome: GuessOutcome, now: SystemTime) {
        end_one(&mut self.hosts, &guess.host, outcome == GuessOutcome::Failed, now);
        let users = if guess.is_user { &mut self.users } else { &mut self.invented };
        let user = guess.user.to_owned();
        end_one(users, &user, outcome == GuessOutcome::Failed, now);
        if outcome == GuessOutcome::LoggedIn {
            match users.get_mut(&user) {
                Some(failures) if failures.running > 0 => failures.count = 0,
                _ => drop(users.remove(&user)),
            }
        }
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
    table.retain(|_, failures| failures.running > 0 || !failures.is_forgotten(now));
    if table.len() < ENTRIES_MAX {
        return;
    }
    // Those with guesses that are being checked are at most as many as pending logins, and stay.
    let idle = table.iter().filter(|(_, failures)| failures.running == 0);
    let oldest = idle.min_by_key(|(_, failures)| (failures.count, failures.last));
    if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
        table.remove(&oldest);
    }
}

/// Ends a guess of one user or host.
fn end_one<Key: Eq + Hash>(
    table: &mut HashMap<Key, LoginFailures>,
    key: &Key,
    has_failed: bool,
    now: SystemTime,
) {
    // A user who was removed from the file meanwhile has no entry.
    let Some(failures) = table.get_mut(key) else { return };
    failures.running = failures.running.saturating_sub(1);
    if has_failed {
        let before = if failures.is_forgotten(now) { 0 } else { failures.count };
        (failures.count, failures.last) = (before.saturating_add(1), now);
    } else if failures.count == 0 && failures.running == 0 {
        table.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    const AT: SystemTime = SystemTime::UNIX_EPOCH;

    impl FailureCounts {
        pub(in crate::pwd) fn of_host(&self, host: ClientHost) -> u32 {
            self.hosts.get(&host).map_or(0, |failures| failures.count)
        }

        fn is_locked(&self, user: &str, host: ClientHost, most: u32, now: SystemTime) -> bool {
            self.admission(user, host, most, now) == GuessAdmission::Locked
        }

        fn add(&mut self, user: &str, is_user: bool, host: ClientHost, now: SystemTime) {
            let guess = PasswordGuess { user, is_user, host };
            assert_eq!(self.begin(guess, u32::MAX, now), GuessAdmission::Begun);
            self.end(guess, GuessOutcome::Failed, now);
        }

        fn succeed(&mut self, user: &str) {
            let guess = PasswordGuess { user, is_user: true, host: host(77) };
            assert_eq!(self.begin(guess, u32::MAX, AT), GuessAdmission::Begun);
            self.end(guess, GuessOutcome::LoggedIn, AT);
        }
    }

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
    fn guesses_that_are_being_checked_count() {
        let mut counts = FailureCounts::default();
        let guess = PasswordGuess { user: "alice", is_user: true, host: host(1) };
        let other = PasswordGuess { user: "bob", is_user: false, host: host(1) };
        assert_eq!(counts.begin(guess, 2, AT), GuessAdmission::Begun);
        assert_eq!(counts.begin(other, 2, AT), GuessAdmission::Begun);
        assert_eq!(counts.begin(guess, 2, AT), GuessAdmission::Later);
        assert_eq!(counts.begin(PasswordGuess { host: host(2), ..guess }, 2, AT), GuessAdmission::Begun);
        counts.end(guess, GuessOutcome::NotCounted, AT);
        assert_eq!(counts.begin(guess, 2, AT), GuessAdmission::Begun);
        counts.end(other, GuessOutcome::Failed, AT);
        assert_eq!(counts.begin(other, 2, AT), GuessAdmission::Later);
        counts.end(guess, GuessOutcome::Failed, AT);
        assert_eq!(counts.begin(other, 2, AT), GuessAdmission::Locked);
        counts.end(PasswordGuess { host: host(2), ..guess }, GuessOutcome::LoggedIn, AT);
        assert!(!counts.users.contains_key("alice") && counts.hosts.len() == 1);
        // Guesses end although the user was removed meanwhile.
        let elsewhere = PasswordGuess { host: host(3), ..guess };
        assert_eq!(counts.begin(elsewhere, 2, AT), GuessAdmission::Begun);
        counts.retain_users(|_| false);
        counts.end(elsewhere, GuessOutcome::NotCounted, AT);
        assert!(counts.users.is_empty() && counts.hosts.len() == 1);
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
