//! [`PortAcceptor`]: accepts connections until the port is closed.

use net::{Admission, Door, Listener, Loops, Refusals};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot;

/// Maximum time for a loop to close the port.
const CLOSING_MAX: Duration = Duration::from_secs(10);

/// Accepts connections, on the first loop. The port is open until `open` is dropped. It is closed
/// once the other end of `told` is dropped.
pub(crate) struct PortAcceptor {
    open: oneshot::Sender<()>,
    told: std::sync::mpsc::Receiver<()>,
}

impl PortAcceptor {
    /// Starts the acceptor on the first loop. It counts the connections that it refuses.
    ///
    /// # Errors
    /// No loop runs.
    pub(crate) fn start(
        listener: Listener,
        loops: Arc<Loops>,
        doors: Arc<[Arc<dyn Door>]>,
        admission: Admission,
        refusals: Arc<Refusals>,
    ) -> std::io::Result<Self> {
        let (open, closed) = oneshot::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel::<()>();
        // The acceptor runs on a loop: a new connection there then costs no change of threads, and
        // one elsewhere.
        let first = loops.handles().first().cloned();
        let spawned = first.is_some_and(|first| {
            let accept = async move {
                // Dropped when the port is closed, for any reason.
                let _tell = tell;
                tokio::select! {
                    _ = closed => Ok(()),
                    ended = listener.serve(loops, doors, admission, refusals) => Err(match ended {
                        Ok(()) => "there is no loop".to_owned(),
                        Err(error) => error.to_string(),
                    }),
                }
            };
            first.run(move || net::spawn_essential("the acceptor of connections", accept))
        });
        match spawned {
            true => Ok(Self { open, told }),
            false => Err(std::io::Error::other("no loop is running")),
        }
    }

    /// Closes the port.
    pub(crate) fn stop(self) {
        drop(self.open);
        // Nothing is sent: the other end is dropped when the port is closed.
        if self.told.recv_timeout(CLOSING_MAX) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            tracing::error!("the port is still open: a loop does not answer");
        }
    }
}
