//! [`RequestPacing`]: the turns of requests of a program that limits how many servers work on at once.

use std::future::Future;
use std::pin::Pin;

/// The turn of a request. It is given up while the server works on nothing: during a pause that the
/// server asked for, and after it has announced a late reply.
pub trait RequestPacing: Send + Sync {
    /// Gives the turn up. Called any number of times.
    fn pause(&self);

    /// Called when the request is given to a connection. The server may carry it out from now on.
    fn sent(&self);

    /// Waits for the turn before the request is sent, also again. It is ready at once if the request
    /// has its turn.
    fn resume(&self) -> Pin<Box<dyn Future<Output = ()> + Send + '_>>;
}

impl std::fmt::Debug for dyn RequestPacing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RequestPacing")
    }
}
