//! [`StreamSender`]: sends the packets of one collector, and numbers them.

use super::shared::QueueState;
use crate::ReportSender;
use config::ReportDestination;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::monitoring::MonitorPacketHeader;

/// Time for which nothing is sent after a failure, because a look-up of a name can take long. A collector is
/// not asked whether it is there, so most failures are those of names.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Time without an order of its own, in which the sender only waits.
const LONG: Duration = Duration::from_secs(3600);

/// The counter that numbers a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum SequenceKind {
    /// Texts, the trace stream and the redirect stream.
    Common,
    /// The file stream.
    Files,
}

/// A packet without its number and length.
pub(super) struct StreamPacket {
    pub(super) sequence: SequenceKind,
    pub(super) bytes: Vec<u8>,
}

/// Sends the packets of one collector, and numbers them. It needs a thread of its own, because it looks up
/// the name of the collector.
pub struct StreamSender {
    sender: ReportSender,
    packets: Receiver<StreamPacket>,
    state: Arc<QueueState>,
    identification: Vec<u8>,
    /// Interval of identifications; `None` if there are none.
    interval: Option<Duration>,
    common: u8,
    files: u8,
    paused_until: Option<Instant>,
}

impl StreamSender {
    pub(super) fn new(
        address: ReportDestination,
        (packets, state): (Receiver<StreamPacket>, Arc<QueueState>),
        mut identification: Vec<u8>,
        interval: Option<Duration>,
    ) -> Self {
        MonitorPacketHeader::complete(&mut identification, 0);
        let sender = ReportSender::new(address);
        Self { sender, packets, state, identification, interval, common: 1, files: 0, paused_until: None }
    }

    /// Sends packets until the server ends.
    pub fn run(mut self) {
        let mut due = self.interval.map(|_| Instant::now());
        loop {
            let now = Instant::now();
            if due.is_some_and(|due| now >= due) {
                // An interval of zero means once.
                due = self.interval.filter(|interval| !interval.is_zero()).map(|interval| now + interval);
                let identification = std::mem::take(&mut self.identification);
                self.send(&identification);
                self.identification = identification;
            }
            let wait = due.map_or(LONG, |due| due.saturating_duration_since(Instant::now()));
            match self.packets.recv_timeout(wait) {
                Ok(packet) => {
                    let packet = self.numbered(packet);
                    self.send(&packet);
                    self.state.bytes.fetch_sub(packet.len(), Ordering::Release);
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Numbers a packet and sets its length. Also a packet that cannot be sent has a number, so that the
    /// collector notices the loss.
    fn numbered(&mut self, mut packet: StreamPacket) -> Vec<u8> {
        let counter = match packet.sequence {
            SequenceKind::Common => &mut self.common,
            SequenceKind::Files => &mut self.files,
        };
        MonitorPacketHeader::complete(&mut packet.bytes, *counter);
        *counter = counter.wrapping_add(1);
        packet.bytes
    }

    /// Returns the packets that wait, as they would be sent.
    #[cfg(test)]
    pub(super) fn waiting(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Ok(packet) = self.packets.try_recv() {
            self.state.bytes.fetch_sub(packet.bytes.len(), Ordering::Release);
            packets.push(self.numbered(packet));
        }
        packets
    }

    fn send(&mut self, packet: &[u8]) {
        let now = Instant::now();
        if self.paused_until.is_some_and(|until| now < until) {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.paused_until = None;
        if self.sender.try_send(packet).is_err() {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
            self.paused_until = self.sender.needs_look_up().then(|| Instant::now() + FAILURE_PAUSE);
        }
    }
}
