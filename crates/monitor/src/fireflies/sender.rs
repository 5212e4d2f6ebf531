//! [`FireflySender`]: sends reports about flows.

use crate::ReportSender;
use crate::streams::LossLog;
use config::ReportDestination;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

/// Interval of log lines about lost reports.
const LOG_LOOK: Duration = Duration::from_secs(60);
/// Time for which nothing is sent after a failure, because a look-up of a name can take long.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);

/// A report about a flow.
pub(super) struct Firefly {
    pub(super) text: String,
    /// The client, if it gets the report too.
    pub(super) origin: Option<SocketAddr>,
}

/// Sends reports about flows. It needs a thread of its own, because it looks up the name of the collector.
pub struct FireflySender {
    collector: Option<ReportSender>,
    reports: Receiver<Firefly>,
    lost: Arc<AtomicU64>,
    losses: LossLog,
    paused_until: Option<Instant>,
    /// The sockets to clients, of IPv4 and IPv6.
    sockets: [Option<UdpSocket>; 2],
}

impl FireflySender {
    pub(super) fn new(
        collector: Option<ReportDestination>,
        reports: Receiver<Firefly>,
        lost: Arc<AtomicU64>,
    ) -> Self {
        Self {
            collector: collector.map(ReportSender::new),
            reports,
            lost,
            losses: LossLog::default(),
            paused_until: None,
            sockets: [None, None],
        }
    }

    /// Sends reports until the server ends.
    pub fn run(mut self) {
        loop {
            let lost = self.lost.load(Ordering::Relaxed);
            if let Some(new) = self.losses.due(lost, Instant::now()) {
                tracing::warn!("xrootd.pmark: {new} reports about flows are lost, {lost} since the start");
            }
            match self.reports.recv_timeout(LOG_LOOK) {
                Ok(report) => self.send(&report),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    fn send(&mut self, report: &Firefly) {
        let now = Instant::now();
        if let Some(collector) = &mut self.collector {
            if self.paused_until.is_some_and(|until| now < until) {
                self.lost.fetch_add(1, Ordering::Relaxed);
            } else {
                collector.send(report.text.as_bytes());
                self.paused_until = collector.needs_look_up().then(|| now + FAILURE_PAUSE);
            }
        }
        if let Some(origin) = report.origin {
            self.send_to_client(&report.text, SocketAddr::new(origin.ip().to_canonical(), origin.port()));
        }
    }

    /// Sends a report to a client. It is no failure if no program receives it.
    fn send_to_client(&mut self, text: &str, client: SocketAddr) {
        let (place, any) = if client.is_ipv4() { (0, "0.0.0.0:0") } else { (1, "[::]:0") };
        let Some(socket) = self.sockets.get_mut(place) else { return };
        if socket.is_none() {
            let new = UdpSocket::bind(any).and_then(|new| new.set_nonblocking(true).map(|()| new));
            *socket = new.ok();
        }
        if let Some(socket) = socket {
            let _ = socket.send_to(text.as_bytes(), client);
        }
    }

    /// Returns the reports that wait.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> Vec<String> {
        self.reports.try_iter().map(|report| report.text).collect()
    }
}
