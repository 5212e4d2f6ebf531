//! Pending requests to the location machine, of clients of this process, redirectors and parents.
//!
//! The table maps the token of a request to its origin, because answers arrive later and in any
//! order.

use super::pending_order::PendingOrder;
use base::IdMap;
use cluster::tree::ConnectionId;
use cluster::{ClusterAnswer, LocateFlags, RequestToken, SelectOptions, Slot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use vfs::Caller;
use wire::cms::StreamId;
use wire::cms::response::MessageId;

/// The time for which a query of a parent is kept. No reply means "not here", so an expired query
/// is dropped without a message.
const PARENT_PATIENCE: Duration = Duration::from_secs(60);

/// A callback that delivers an answer to the origin. If it is dropped uncalled, it reports that by
/// itself.
pub(super) type AnswerCallback = Box<dyn FnOnce(ClusterAnswer) + Send>;

/// The kind of a request.
#[derive(Debug)]
pub(super) enum LocationQuery {
    /// A node for the client.
    Select {
        /// The conditions of the selection.
        options: SelectOptions,
        /// The nodes that the client has tried.
        tried: Box<[u8]>,
    },
    /// The nodes that have the file.
    Locate(LocateFlags),
    /// The lease of a new name, for the child that has the file.
    Reserve(Slot),
}

/// The origin of a request.
pub(super) enum RequestOrigin {
    /// A client of this process.
    Client(Arc<Caller>, AnswerCallback),
    /// A redirector, over a connection.
    Redirector {
        /// The connection.
        link: ConnectionId,
        /// The redirector's number of the request; zero if it expects no answer.
        streamid: StreamId,
        /// The number of the deferred answer, once one was promised.
        promised: Option<MessageId>,
        /// Set if the answer may be deferred: see `location_driver`.
        takes_later: bool,
    },
    /// An order that waits for the answer.
    Order(Box<PendingOrder>),
}

/// A query of a parent for a path.
pub(super) struct ParentQuery {
    /// The connection.
    pub(super) link: ConnectionId,
    /// The number that the answer must contain.
    pub(super) streamid: StreamId,
    /// The path as the parent sent it.
    pub(super) path: Box<[u8]>,
    /// Set if an explicit "not here" may be sent.
    pub(super) definite: bool,
}

/// Requests checked for a disconnected client for each request that is added. So requests of
/// disconnected clients do not outnumber the others for long, and no message causes a scan of all
/// requests.
const CHECKED_PER_REQUEST: usize = 2;

/// All pending requests.
#[derive(Default)]
pub(super) struct PendingRequests {
    last: u64,
    clients: BTreeMap<u64, RequestOrigin>,
    /// With the deadline of each. Tokens rise, and so do the deadlines.
    parents: BTreeMap<u64, (Duration, ParentQuery)>,
    /// Deadlines after which redirectors treat a missing reply as a lost manager. These also rise
    /// with the tokens.
    unanswered_redirectors: BTreeMap<u64, Duration>,
    /// The tokens of each connection.
    by_link: IdMap<ConnectionId, BTreeSet<u64>>,
    /// The last request of a client that was checked.
    checked: u64,
}

impl PendingRequests {
    /// Returns a new token.
    pub(super) fn token(&mut self) -> RequestToken {
        self.last += 1;
        RequestToken(self.last)
    }

    /// Adds a request. Returns the removed requests of clients that have disconnected.
    pub(super) fn wait(&mut self, token: RequestToken, origin: RequestOrigin) -> Vec<RequestToken> {
        if let RequestOrigin::Redirector { link, .. } = &origin {
            self.by_link.entry(*link).or_default().insert(token.0);
        }
        self.clients.insert(token.0, origin);
        self.take_gone(CHECKED_PER_REQUEST)
    }

    /// Adds a request of a redirector, which treats a missing reply after `until` as a lost
    /// manager.
    pub(super) fn wait_with_deadline(
        &mut self,
        token: RequestToken,
        origin: RequestOrigin,
        until: Duration,
    ) -> Vec<RequestToken> {
        self.unanswered_redirectors.insert(token.0, until);
        self.wait(token, origin)
    }

    /// Removes a redirector's request whose deadline has passed.
    pub(super) fn next_overdue(&mut self, now: Duration) -> Option<(RequestToken, RequestOrigin)> {
        let (token, _) = self.unanswered_redirectors.first_key_value().filter(|(_, until)| **until <= now)?;
        let token = RequestToken(*token);
        self.take(token).map(|origin| (token, origin))
    }

    /// Returns the earliest deadline of a redirector's request.
    pub(super) fn deadline(&self) -> Option<Duration> {
        self.unanswered_redirectors.first_key_value().map(|(_, until)| *until)
    }

    pub(super) fn wait_above(&mut self, token: RequestToken, parent: ParentQuery, now: Duration) {
        self.by_link.entry(parent.link).or_default().insert(token.0);
        self.parents.insert(token.0, (now + PARENT_PATIENCE, parent));
    }

    pub(super) fn take(&mut self, token: RequestToken) -> Option<RequestOrigin> {
        self.unanswered_redirectors.remove(&token.0);
        let origin = self.clients.remove(&token.0)?;
        if let RequestOrigin::Redirector { link, .. } = &origin {
            self.unlink(*link, token);
        }
        Some(origin)
    }

    pub(super) fn take_above(&mut self, token: RequestToken) -> Option<ParentQuery> {
        let (_, parent) = self.parents.remove(&token.0)?;
        self.unlink(parent.link, token);
        Some(parent)
    }

    fn unlink(&mut self, link: ConnectionId, token: RequestToken) {
        if let Some(tokens) = self.by_link.get_mut(&link) {
            tokens.remove(&token.0);
            if tokens.is_empty() {
                self.by_link.remove(&link);
            }
        }
    }

    /// Removes the requests of a closed connection. Parents repeat their queries over the next one.
    /// Returns the requests of a redirector.
    pub(super) fn forget(&mut self, link: ConnectionId) -> Vec<RequestToken> {
        let tokens = self.by_link.remove(&link).unwrap_or_default();
        let mut asked = Vec::new();
        for token in tokens {
            self.parents.remove(&token);
            self.unanswered_redirectors.remove(&token);
            asked.extend(self.clients.remove(&token).map(|_| RequestToken(token)));
        }
        asked
    }

    /// Reports whether the client of a request has disconnected.
    pub(super) fn is_gone(&self, token: RequestToken) -> bool {
        match self.clients.get(&token.0) {
            Some(RequestOrigin::Client(caller, _)) => caller.is_disconnected(),
            Some(RequestOrigin::Redirector { .. } | RequestOrigin::Order(_)) | None => false,
        }
    }

    /// Checks this many requests for disconnected clients; the next call continues after them.
    /// Requests of disconnected clients are removed and returned.
    pub(super) fn take_gone(&mut self, most: usize) -> Vec<RequestToken> {
        let mut checked = self.checked;
        let next = self.clients.range(checked.saturating_add(1)..).take(most);
        let mut gone = Vec::new();
        let mut count = 0;
        for (token, origin) in next {
            checked = *token;
            count += 1;
            if matches!(origin, RequestOrigin::Client(caller, _) if caller.is_disconnected()) {
                gone.push(RequestToken(*token));
            }
        }
        self.checked = if count < most { 0 } else { checked };
        for token in &gone {
            self.clients.remove(&token.0);
        }
        gone
    }

    /// Removes expired queries of parents, which need no reply.
    pub(super) fn expire(&mut self, now: Duration) {
        while let Some((token, (until, _))) = self.parents.first_key_value()
            && *until <= now
        {
            self.take_above(RequestToken(*token));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Arc<Caller> {
        let told = base::LoginNames { user: "u", host: "h", ..base::LoginNames::default() };
        Arc::new(Caller::new(base::Identity::new(&told, 1, None, "host"), true, false))
    }

    fn client(caller: &Arc<Caller>) -> RequestOrigin {
        RequestOrigin::Client(caller.clone(), Box::new(|_| {}))
    }

    fn redirector(link: ConnectionId) -> RequestOrigin {
        RequestOrigin::Redirector { link, streamid: StreamId::NONE, promised: None, takes_later: true }
    }

    #[test]
    fn requests_of_clients_that_left_do_not_pile_up() {
        let mut pending_requests = PendingRequests::default();
        let stays = caller();
        let mut gone = 0;
        for number in 0..1000 {
            let token = pending_requests.token();
            gone += pending_requests.wait(token, client(&stays)).len();
            // Clients send a request and disconnect, one after the other.
            for _ in 0..10 {
                let leaves = caller();
                let token = pending_requests.token();
                gone += pending_requests.wait(token, client(&leaves)).len();
                leaves.disconnect();
                assert!(pending_requests.is_gone(token));
            }
            let (here, all) = (number + 1, pending_requests.clients.len());
            assert!(all <= 2 * here + 100, "{all} requests of {here} clients are kept");
        }
        while pending_requests.clients.len() > 1000 {
            gone += pending_requests.take_gone(100).len();
        }
        assert_eq!(gone, 10_000);
    }

    #[test]
    fn a_closed_connection_removes_only_its_own_requests() {
        let mut pending_requests = PendingRequests::default();
        let (one, other) = (ConnectionId::accepted(1), ConnectionId::accepted(2));
        let tokens: Vec<RequestToken> = (0..4).map(|_| pending_requests.token()).collect();
        for (token, link) in tokens.iter().zip([one, other, one, other]) {
            pending_requests.wait_with_deadline(*token, redirector(link), Duration::from_secs(1));
        }
        assert!(pending_requests.take(tokens[0]).is_some());
        assert_eq!(pending_requests.forget(one), [tokens[2]]);
        assert_eq!(pending_requests.forget(one), []);
        assert_eq!(pending_requests.next_overdue(Duration::ZERO).map(|(token, _)| token), None);
        let overdue = std::iter::from_fn(|| pending_requests.next_overdue(Duration::from_secs(1)));
        assert_eq!(overdue.map(|(token, _)| token).collect::<Vec<_>>(), [tokens[1], tokens[3]]);
        assert_eq!(pending_requests.deadline(), None);
        assert!(pending_requests.by_link.is_empty());
    }
}
