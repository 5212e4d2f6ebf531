//! [`ConnectionLimits`]: limits of the connections of a server that acts for its clients.
//!
//! Redirects choose servers and tokens, so the number of connections would be up to other servers.
//! Permits are counted, not connections, so those in progress count too. Where permits are lacking, the
//! connection that is unused for longest is closed, whichever client has it, until there is one.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

use crate::client::ClientState;
use crate::failure::Cause;

/// Interval at which a connection that waits looks for unused ones.
const RETRY: Duration = Duration::from_millis(100);
/// Number of servers above which those without connections are removed.
const SERVERS_KEPT: usize = 256;

/// Limits of connections. Clones share them.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    all: Arc<AllConnections>,
    /// The part of the total, if this is a part.
    part: Option<Arc<ConnectionLimit>>,
}

#[derive(Debug)]
struct AllConnections {
    /// Maximum number of connections to one server.
    per_server: usize,
    servers: Mutex<Servers>,
    total: Arc<ConnectionLimit>,
    clients: Mutex<Vec<LimitedClient>>,
}

/// The limits of the servers, and the number of them at which unused ones are removed.
#[derive(Debug)]
struct Servers {
    of: HashMap<(String, u16), Weak<ConnectionLimit>>,
    sweep_at: usize,
}

/// A client with these limits.
struct LimitedClient {
    state: Weak<ClientState>,
    part: Option<Arc<ConnectionLimit>>,
}

impl std::fmt::Debug for LimitedClient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("LimitedClient")
    }
}

/// A number of connections.
#[derive(Debug)]
struct ConnectionLimit {
    permits: Arc<Semaphore>,
    /// Held by the connection that waits for longest, which alone looks for unused ones.
    first: tokio::sync::Mutex<()>,
}

/// The permit of a connection.
#[derive(Debug)]
pub(crate) struct ConnectionPermit {
    _permits: Vec<OwnedSemaphorePermit>,
    /// Keeps the limit known while there are connections.
    _server: Arc<ConnectionLimit>,
}

impl ConnectionLimit {
    fn new(connections: usize) -> Arc<Self> {
        let permits = Arc::new(Semaphore::new(connections.min(Semaphore::MAX_PERMITS)));
        Arc::new(Self { permits, first: tokio::sync::Mutex::default() })
    }

    /// Waits for a permit, and closes unused connections by `close_unused` meanwhile.
    async fn permit(&self, close_unused: impl Fn()) -> OwnedSemaphorePermit {
        let mut first = None;
        loop {
            if let Ok(permit) = self.permits.clone().try_acquire_owned() {
                return permit;
            }
            if first.is_none() {
                first = Some(self.first.lock().await);
            }
            close_unused();
            if let Ok(Ok(permit)) = timeout(RETRY, self.permits.clone().acquire_owned()).await {
                return permit;
            }
        }
    }
}

impl ConnectionLimits {
    /// Creates limits for each server, and for all servers and clients with these limits.
    #[must_use]
    pub fn new(per_server: usize, total: usize) -> Self {
        let servers = Servers { of: HashMap::new(), sweep_at: SERVERS_KEPT };
        let (servers, clients) = (Mutex::new(servers), Mutex::default());
        let all = AllConnections { per_server, servers, total: ConnectionLimit::new(total), clients };
        Self { all: Arc::new(all), part: None }
    }

    /// Returns limits for some of the clients, which together use at most `total` of the connections.
    #[must_use]
    pub fn part(&self, total: usize) -> Self {
        Self { all: self.all.clone(), part: Some(ConnectionLimit::new(total)) }
    }

    fn clients(&self) -> MutexGuard<'_, Vec<LimitedClient>> {
        self.all.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a client whose unused connections make room for others.
    pub(crate) fn add(&self, client: &Arc<ClientState>) {
        let mut clients = self.clients();
        clients.retain(|client| client.state.strong_count() > 0);
        clients.push(LimitedClient { state: Arc::downgrade(client), part: self.part.clone() });
    }

    /// Waits for the permit of a connection to a server.
    pub(crate) async fn permit(
        &self,
        (host, port): (&str, u16),
        until: Instant,
    ) -> Result<ConnectionPermit, Cause> {
        let server = self.server(host, port);
        let mut permits = Vec::with_capacity(3);
        let mut lack = "all";
        let wait = async {
            if let Some(part) = &self.part {
                lack = "this part of the clients";
                permits.push(part.permit(|| self.close_unused(Some(part), None)).await);
            }
            lack = "the server";
            permits.push(server.permit(|| self.close_unused(None, Some((host, port)))).await);
            lack = "all servers";
            permits.push(self.all.total.permit(|| self.close_unused(None, None)).await);
        };
        if timeout_at(until, wait).await.is_err() {
            let text = format!("the limit of connections for {lack} is reached, and all are in use");
            return Err(Cause::NoResources(text));
        }
        Ok(ConnectionPermit { _permits: permits, _server: server })
    }

    fn server(&self, host: &str, port: u16) -> Arc<ConnectionLimit> {
        let mut servers = self.all.servers.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (host.to_owned(), port);
        if let Some(known) = servers.of.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        if servers.of.len() >= servers.sweep_at {
            servers.of.retain(|_, limit| limit.strong_count() > 0);
            servers.sweep_at = (2 * servers.of.len()).max(SERVERS_KEPT);
        }
        let limit = ConnectionLimit::new(self.all.per_server);
        servers.of.insert(key, Arc::downgrade(&limit));
        limit
    }

    /// Closes the connection that is unused for longest: of the clients of a part, and to a server.
    fn close_unused(&self, part: Option<&Arc<ConnectionLimit>>, server: Option<(&str, u16)>) {
        let is_in_part = |client: &LimitedClient| match (part, &client.part) {
            (Some(part), Some(of)) => Arc::ptr_eq(part, of),
            (Some(_), None) => false,
            (None, _) => true,
        };
        let clients: Vec<_> = {
            let clients = self.clients();
            clients
                .iter()
                .filter(|client| is_in_part(client))
                .filter_map(|client| client.state.upgrade())
                .collect()
        };
        let unused = clients.iter().filter_map(|client| client.pool.longest_unused(server));
        let unused = unused.min_by_key(|unused| unused.since);
        let http = clients.iter().filter_map(|client| client.http.longest_unused(server));
        let http = http.min_by_key(|unused| unused.since);
        match (unused, http) {
            (Some(unused), http) if http.as_ref().is_none_or(|http| unused.since <= http.since) => {
                unused.close();
            }
            (_, Some(http)) => http.close(),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_secs(4)
    }

    #[tokio::test(start_paused = true)]
    async fn connections_in_progress_count_and_others_wait() {
        let limits = ConnectionLimits::new(2, 3);
        let first = limits.permit(("a", 1), soon()).await.unwrap();
        let _second = limits.permit(("a", 1), soon()).await.unwrap();
        assert!(matches!(limits.permit(("a", 1), soon()).await, Err(Cause::NoResources(_))));
        let _other = limits.permit(("b", 1), soon()).await.unwrap();
        assert!(matches!(limits.permit(("c", 1), soon()).await, Err(Cause::NoResources(_))));
        let release = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(first);
        };
        tokio::join!(release, async { limits.permit(("a", 1), soon()).await.unwrap() });
    }

    #[tokio::test(start_paused = true)]
    async fn a_part_leaves_connections_to_others() {
        let limits = ConnectionLimits::new(8, 4);
        let (greedy, other) = (limits.part(3), limits.part(3));
        let mut permits = Vec::new();
        for host in ["a", "b", "c"] {
            permits.push(greedy.permit((host, 1), soon()).await.unwrap());
        }
        assert!(matches!(greedy.permit(("d", 1), soon()).await, Err(Cause::NoResources(_))));
        permits.push(other.permit(("a", 1), soon()).await.unwrap());
        assert!(matches!(other.permit(("a", 1), soon()).await, Err(Cause::NoResources(_))));
    }
}
