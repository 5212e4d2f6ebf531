//! [`MetricsThreads`]: the threads that make the text of `/metrics`.

use super::MetricsPlace;
use base::Supervisor;
use http::METRICS_REQUESTS_MAX;
use monitor::MetricsFormat;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::time::timeout;

/// The threads. The second one serves collectors while the first one waits for a disk.
const NAMES: [&str; 2] = ["metrics-1", "metrics-2"];

/// Maximum time for which a request waits for its text. The connection of a client that has left would be held
/// for as long.
const TEXT_TIME_MAX: Duration = Duration::from_secs(5);

/// A request for the text.
struct MetricsOrder {
    format: MetricsFormat,
    reply: oneshot::Sender<Option<String>>,
}

/// The threads that make the text, because some figures need a disk or another thread. They end with the
/// last copy of this.
#[derive(Clone)]
pub(crate) struct MetricsThreads(SyncSender<MetricsOrder>);

impl MetricsThreads {
    /// Starts the threads.
    ///
    /// # Errors
    /// The error of the system, if threads cannot be started.
    pub(crate) fn start(place: &MetricsPlace, supervisor: &Supervisor) -> io::Result<Self> {
        let (orders, received) = sync_channel(METRICS_REQUESTS_MAX);
        let received = Arc::new(Mutex::new(received));
        for name in NAMES {
            let (place, received) = (place.clone(), received.clone());
            supervisor.spawn(name, "the metrics", move || serve(&place, &received))?;
        }
        Ok(Self(orders))
    }

    /// Returns the text; `None` if the server has not all its parts yet, too many requests wait, or the text
    /// takes too long.
    pub(crate) async fn text(self, format: MetricsFormat) -> Option<String> {
        let (reply, text) = oneshot::channel();
        self.0.try_send(MetricsOrder { format, reply }).ok()?;
        timeout(TEXT_TIME_MAX, text).await.ok()?.ok().flatten()
    }
}

fn serve(place: &MetricsPlace, received: &Mutex<Receiver<MetricsOrder>>) {
    let next = || received.lock().unwrap_or_else(PoisonError::into_inner).recv().ok();
    while let Some(order) = next() {
        if !order.reply.is_closed() {
            // The request may have waited for too long meanwhile.
            let _ = order.reply.send(place.text(order.format));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_does_not_wait_for_ever_for_its_text() {
        let (orders, received) = sync_channel(1);
        let threads = MetricsThreads(orders);
        let builder = &mut tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_time().start_paused(true).build().unwrap();
        assert_eq!(runtime.block_on(threads.text(MetricsFormat::Prometheus)), None);
        assert!(received.try_recv().unwrap().reply.is_closed());
    }
}
