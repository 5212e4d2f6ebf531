//! [`RequestPacing`]: the turns of requests of a program that limits how many servers work on at once.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

/// The turn of a request. It lasts while the server may work on the request, also after its caller has
/// left. It is given up during a pause that the server asked for, and after the server has announced a
/// late reply.
pub trait RequestPacing: Send + Sync {
    /// Called before the request is given to a connection. The server may carry it out from now on.
    fn sent(&self);

    /// Called once after each [`RequestPacing::sent`]: the server has answered, the connection is lost,
    /// or the request was not made after all.
    fn ended(&self);

    /// Gives the turn up, unless the server works on another request with the same turn.
    fn pause(&self);

    /// Waits for the turn before the request is sent, also again. It is ready at once if the request
    /// has its turn.
    fn resume(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl std::fmt::Debug for dyn RequestPacing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestPacing")
    }
}

/// A request that the server works on until this value is dropped.
#[derive(Debug)]
pub(crate) struct PacedRequest(Arc<dyn RequestPacing>);

impl PacedRequest {
    /// Records that a request is given to a connection.
    pub(crate) fn begin(pacing: Arc<dyn RequestPacing>) -> Self {
        pacing.sent();
        Self(pacing)
    }

    /// Gives the turn up, because the server works on nothing until it sends a late reply.
    pub(crate) fn pause(self) {
        let pacing = self.0.clone();
        drop(self);
        pacing.pause();
    }
}

impl Drop for PacedRequest {
    fn drop(&mut self) {
        self.0.ended();
    }
}
