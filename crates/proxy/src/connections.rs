//! The connections to one server, which the sessions of clients share. Each is selected by the user of
//! its login.
//!
//! A server makes the requests of one connection one after the other. So requests about names, which can
//! take long, have other connections than open files, and each takes the one with the fewest requests.

use base::Owner;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Connections for open files. The sessions of clients are spread over them, and stay on theirs.
const FILE_CONNECTIONS: u64 = 48;
/// Maximum number of connections to one server, also with redirects that carry tokens.
pub(crate) const CONNECTIONS_MAX: usize = 64;
/// Connections for requests about names.
const NAME_CONNECTIONS: usize = 16;

/// Returns the user of the connection for the open files of a session.
pub(crate) fn file_connection_user(owner: Owner) -> String {
    format!("p{}", owner.0 % FILE_CONNECTIONS)
}

/// The number of requests on each connection for names.
#[derive(Default)]
pub(crate) struct NameConnections(Mutex<[usize; NAME_CONNECTIONS]>);

/// A connection with one request more while this value lives.
pub(crate) struct NameConnection<'a> {
    all: &'a NameConnections,
    number: usize,
}

impl NameConnections {
    fn requests(&self) -> MutexGuard<'_, [usize; NAME_CONNECTIONS]> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the connection with the fewest requests, the first of several. So few connections are
    /// made while there are few requests.
    pub(crate) fn idlest(&self) -> NameConnection<'_> {
        let mut requests = self.requests();
        let idlest = requests.iter_mut().enumerate().min_by_key(|(_, count)| **count);
        let number = idlest.map_or(0, |(number, count)| {
            *count += 1;
            number
        });
        drop(requests);
        NameConnection { all: self, number }
    }
}

impl NameConnection<'_> {
    /// Returns the user of the connection.
    pub(crate) fn user(&self) -> String {
        format!("n{}", self.number)
    }
}

impl Drop for NameConnection<'_> {
    fn drop(&mut self) {
        if let Some(count) = self.all.requests().get_mut(self.number) {
            *count -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_takes_the_connection_with_the_fewest() {
        let connections = NameConnections::default();
        let users: Vec<_> = (0..3).map(|_| connections.idlest().user()).collect();
        assert_eq!(users, ["n0"; 3]);
        let mut slow: Vec<_> = (0..NAME_CONNECTIONS).map(|_| connections.idlest()).collect();
        assert_eq!(slow.last().map(NameConnection::user), Some(format!("n{}", NAME_CONNECTIONS - 1)));
        drop(slow.remove(5));
        assert_eq!(connections.idlest().user(), "n5");
    }
}
