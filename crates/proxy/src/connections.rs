//! The connections to one server, which the sessions of clients share. Each is selected by the user of
//! its login.
//!
//! A server makes the requests of one connection one after the other. So open files, quick requests about
//! names and slow ones have connections of their own, and each request about names takes the connection
//! with the fewest requests. A session uses a part of them only, so it cannot put a slow request before
//! all requests of others.

use crate::limits::Requester;
use base::{ClientHost, Owner};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Connections for open files. The sessions of clients are spread over them, and stay on theirs.
const FILE_CONNECTIONS: u64 = 40;
/// Connections for quick requests about names, and as many for slow ones.
const NAME_CONNECTIONS: usize = 8;
/// Maximum number of connections to one server. Half of them is spare, because open files keep theirs when the
/// server was lost for a moment, and each token in a redirect needs a connection of its own.
pub(crate) const CONNECTIONS_MAX: usize = 128;

const _: () = assert!(2 * (FILE_CONNECTIONS as usize + 2 * NAME_CONNECTIONS) <= CONNECTIONS_MAX);

/// Number of the connections for one kind of requests that a session uses at most.
const SESSION_CONNECTIONS: usize = NAME_CONNECTIONS / 4;
/// Number of the connections for one kind of requests that the sessions of one host use at most.
const HOST_CONNECTIONS: usize = NAME_CONNECTIONS / 2;

/// Returns the user of the connection for the open files of a session.
pub(crate) fn file_connection_user(owner: Owner) -> String {
    format!("p{}", owner.0 % FILE_CONNECTIONS)
}

/// Returns the user of the connection of one file only, the one with this number. Logins have 8 letters.
pub(crate) fn own_connection_user(number: u32) -> String {
    format!("c{:x}", number & 0x0fff_ffff)
}

/// The connections for one kind of requests about names.
pub(crate) struct NameConnections {
    /// The first letter of the users of the connections.
    letter: char,
    requests: Mutex<ConnectionRequests>,
}

/// The number of requests on each connection.
type RequestCounts = [usize; NAME_CONNECTIONS];

/// The number of requests on each connection: in total, and for each session and host with a request.
#[derive(Default)]
struct ConnectionRequests {
    all: RequestCounts,
    of: HashMap<ConnectionUser, RequestCounts>,
}

/// A session or a host that uses connections.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum ConnectionUser {
    Session(Owner),
    Host(ClientHost),
}

/// A connection with one request more while this value lives.
pub(crate) struct NameConnection {
    all: Arc<NameConnections>,
    number: usize,
    requester: Requester,
}

/// Returns the users whose requests are counted, with the number of connections that they use at most.
fn users(requester: Requester) -> [(ConnectionUser, usize); 2] {
    [
        (ConnectionUser::Session(requester.owner), SESSION_CONNECTIONS),
        (ConnectionUser::Host(requester.host), HOST_CONNECTIONS),
    ]
}

impl ConnectionRequests {
    /// Reports whether a user may use a connection: one that it uses already, or one more.
    fn may_use(&self, user: ConnectionUser, most: usize, number: usize) -> bool {
        let Some(counts) = self.of.get(&user) else { return true };
        let used = counts.iter().filter(|count| **count > 0).count();
        used < most || counts.get(number).is_some_and(|count| *count > 0)
    }

    /// Returns the connection with the fewest requests among those that a requester may use, the first
    /// of several. So few connections are made while there are few requests.
    fn idlest(&self, requester: Requester) -> usize {
        let may_use = |number| users(requester).iter().all(|(user, most)| self.may_use(*user, *most, number));
        let usable = self.all.iter().enumerate().filter(|(number, _)| may_use(*number));
        usable.min_by_key(|(_, count)| **count).map_or(0, |(number, _)| number)
    }

    fn add(&mut self, requester: Requester, number: usize) {
        increase(&mut self.all, number);
        for (user, _) in users(requester) {
            increase(self.of.entry(user).or_default(), number);
        }
    }

    fn remove(&mut self, requester: Requester, number: usize) {
        decrease(&mut self.all, number);
        for (user, _) in users(requester) {
            let Some(counts) = self.of.get_mut(&user) else { continue };
            decrease(counts, number);
            if counts.iter().all(|count| *count == 0) {
                self.of.remove(&user);
            }
        }
    }
}

fn increase(counts: &mut RequestCounts, number: usize) {
    if let Some(count) = counts.get_mut(number) {
        *count += 1;
    }
}

fn decrease(counts: &mut RequestCounts, number: usize) {
    if let Some(count) = counts.get_mut(number) {
        *count -= 1;
    }
}

impl NameConnections {
    /// Creates connections whose users begin with `letter`.
    pub(crate) fn new(letter: char) -> Self {
        Self { letter, requests: Mutex::default() }
    }

    fn requests(&self) -> MutexGuard<'_, ConnectionRequests> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection for a request.
    pub(crate) fn choose(self: &Arc<Self>, requester: Requester) -> NameConnection {
        let mut requests = self.requests();
        let number = requests.idlest(requester);
        requests.add(requester, number);
        drop(requests);
        NameConnection { all: self.clone(), number, requester }
    }
}

impl NameConnection {
    /// Returns the user of the connection.
    pub(crate) fn user(&self) -> String {
        format!("{}{}", self.all.letter, self.number)
    }
}

impl Drop for NameConnection {
    fn drop(&mut self) {
        self.all.requests().remove(self.requester, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn requester(owner: u64, host: u8) -> Requester {
        let host = ClientHost::Address([192, 0, 2, host].into());
        Requester { owner: Owner(owner), host }
    }

    #[test]
    fn a_request_takes_the_connection_with_the_fewest() {
        let connections = Arc::new(NameConnections::new('n'));
        let users: Vec<_> = (0..3).map(|_| connections.choose(requester(1, 1)).user()).collect();
        assert_eq!(users, ["n0"; 3]);
        let of = |number| connections.choose(requester(number, u8::try_from(number).unwrap()));
        let mut slow: Vec<_> = (0..NAME_CONNECTIONS as u64).map(of).collect();
        assert_eq!(slow.last().map(NameConnection::user), Some(format!("n{}", NAME_CONNECTIONS - 1)));
        drop(slow.remove(5));
        assert_eq!(of(99).user(), "n5");
    }

    #[test]
    fn no_session_and_no_host_uses_all_connections() {
        let connections = Arc::new(NameConnections::new('n'));
        let users_of = |slow: &[NameConnection]| {
            slow.iter().map(NameConnection::user).collect::<std::collections::HashSet<_>>().len()
        };
        let greedy: Vec<_> = (0..128).map(|_| connections.choose(requester(1, 1))).collect();
        assert_eq!(users_of(&greedy), SESSION_CONNECTIONS);
        let others: Vec<_> = (2..128).map(|owner| connections.choose(requester(owner, 1))).collect();
        assert!(users_of(&others) <= HOST_CONNECTIONS);
        let number = connections.choose(requester(500, 2)).number;
        assert_eq!(connections.requests().all.get(number), Some(&0), "it waits for nobody");
        drop((greedy, others));
        assert!(connections.requests().of.is_empty(), "nothing is kept of those who have left");
    }
}
