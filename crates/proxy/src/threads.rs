//! The threads of a proxy, which drive the connections to origins.

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// Maximum number of threads that drive connections.
const THREADS_MAX: usize = 8;

/// The threads, which end when this value is dropped.
pub(crate) struct ProxyThreads {
    handle: Handle,
    _running: oneshot::Sender<()>,
}

impl ProxyThreads {
    /// Starts the threads, one for each processor.
    pub(crate) fn start() -> std::io::Result<Self> {
        let workers = std::thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let runtime =
            Builder::new_multi_thread().worker_threads(workers).thread_name("proxy").enable_all().build()?;
        let handle = runtime.handle().clone();
        let (running, ended) = oneshot::channel::<()>();
        // A runtime must not be dropped on a thread of another runtime, so it lives on a thread of
        // its own.
        std::thread::Builder::new().name("proxy".to_owned()).spawn(move || {
            runtime.block_on(ended).ok();
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, _running: running })
    }

    /// Returns the runtime of all requests.
    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }
}
