//! [`ConnectionLimits`]: limits of the connections of a server that acts for its clients.
//!
//! Redirects choose servers and tokens, so the number of connections would be up to other servers.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::failure::Cause;

/// Limits of connections. Clones share the total.
#[derive(Clone, Debug)]
pub struct ConnectionLimits {
    /// Maximum number of connections of one client to one server.
    pub(crate) per_server: usize,
    total: Arc<Semaphore>,
}

impl ConnectionLimits {
    /// Creates limits for each server, and for all servers and clients with these limits.
    #[must_use]
    pub fn new(per_server: usize, total: usize) -> Self {
        Self { per_server, total: Arc::new(Semaphore::new(total.min(Semaphore::MAX_PERMITS))) }
    }

    /// Reports whether another connection has to wait for the end of one.
    pub(crate) fn is_full(&self) -> bool {
        self.total.available_permits() == 0
    }

    /// Waits for the permit of a connection.
    pub(crate) async fn permit(&self, until: Instant) -> Result<OwnedSemaphorePermit, Cause> {
        let permit = timeout_at(until, self.total.clone().acquire_owned()).await;
        permit.ok().and_then(Result::ok).ok_or_else(|| Cause::NoResources("too many connections".to_owned()))
    }
}
