//! [`StreamSender`]: sends the packets of one collector, and numbers them.

use super::shared::QueueState;
use crate::ReportSender;
use config::ReportDestination;
use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};
use wire::monitoring::{MonitorPacketHeader, PacketCode};

/// Time for which nothing is sent after a failure, because a look-up of a name can take long. A collector is
/// not asked whether it is there, so most failures are those of names.
const FAILURE_PAUSE: Duration = Duration::from_secs(10);
/// Time for which a packet waits for room in the buffer of the socket. Meanwhile others wait in the queue.
const SEND_PATIENCE: Duration = Duration::from_secs(1);
/// Time between two lines of the log about lost packets.
const LOG_PAUSE: Duration = Duration::from_secs(60);
/// Time without an order of its own, in which the sender only waits.
const LONG: Duration = Duration::from_secs(3600);

/// The counter that numbers a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SequenceKind {
    /// Texts, the trace stream and the redirect stream.
    Common,
    /// The file stream.
    Files,
    /// The packet has its number.
    Own,
}

/// A packet without its number and length.
pub(super) struct StreamPacket {
    pub(super) sequence: SequenceKind,
    pub(super) bytes: Vec<u8>,
}

impl StreamPacket {
    /// Reports whether a collector needs the packet for what others tell: logins, tokens, the file stream.
    pub(super) fn is_essential(&self) -> bool {
        let codes = [PacketCode::USER, PacketCode::TOKEN, PacketCode::FILE];
        codes.iter().any(|code| self.bytes.first() == Some(&code.0))
    }
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
    /// Time of the next identification.
    due: Option<Instant>,
    common: u8,
    files: u8,
    paused_until: Option<Instant>,
    address: String,
    losses: LossLog,
}

/// Log lines about lost packets: one line for all that are lost within [`LOG_PAUSE`].
#[derive(Default)]
pub(crate) struct LossLog {
    /// Number of packets that the log has named.
    logged: u64,
    /// Time of the next line.
    next: Option<Instant>,
    /// The last error of the system.
    failure: Option<String>,
}

impl LossLog {
    /// Returns the number of packets that the log has not named, if it is time for a line.
    pub(crate) fn due(&mut self, lost: u64, now: Instant) -> Option<u64> {
        let new = lost.saturating_sub(self.logged);
        if new == 0 || self.next.is_some_and(|next| now < next) {
            return None;
        }
        (self.logged, self.next) = (lost, Some(now + LOG_PAUSE));
        Some(new)
    }

    /// Returns when there must be a line about this number of lost packets, if it is a new one.
    pub(crate) fn next_line(&self, lost: u64) -> Option<Instant> {
        self.next.filter(|_| self.logged != lost)
    }
}

impl StreamSender {
    pub(super) fn new(
        address: ReportDestination,
        (packets, state): (Receiver<StreamPacket>, Arc<QueueState>),
        mut identification: Vec<u8>,
        interval: Option<Duration>,
    ) -> Self {
        MonitorPacketHeader::complete(&mut identification, 0);
        Self {
            address: address.to_string(),
            sender: ReportSender::new(address).waiting(SEND_PATIENCE),
            packets,
            state,
            identification,
            interval,
            due: interval.map(|_| Instant::now()),
            common: 1,
            files: 0,
            paused_until: None,
            losses: LossLog::default(),
        }
    }

    /// Sends packets until the server ends.
    pub fn run(mut self) {
        loop {
            self.identify(Instant::now());
            self.log_losses(Instant::now());
            match self.packets.recv_timeout(self.wait(Instant::now())) {
                Ok(packet) => {
                    let packet = self.numbered(packet);
                    self.send(&packet);
                    self.state.leave(packet.capacity());
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    /// Identifies the server if it is time, and again soon if that fails.
    pub(super) fn identify(&mut self, now: Instant) {
        if self.due.is_none_or(|due| now < due) {
            return;
        }
        let identification = std::mem::take(&mut self.identification);
        let is_sent = self.send(&identification);
        self.identification = identification;
        self.due = match self.interval {
            _ if !is_sent => Some(now + FAILURE_PAUSE),
            // An interval of zero means once.
            Some(interval) if !interval.is_zero() => Some(now + interval),
            _ => None,
        };
    }

    /// Returns the time without packets after which there is something to do.
    pub(super) fn wait(&self, now: Instant) -> Duration {
        let line = self.losses.next_line(self.state.dropped.load(Ordering::Relaxed));
        let next = self.due.into_iter().chain(line).min();
        next.map_or(LONG, |next| next.saturating_duration_since(now))
    }

    fn log_losses(&mut self, now: Instant) {
        let lost = self.state.dropped.load(Ordering::Relaxed);
        if let Some(new) = self.losses.due(lost, now) {
            let failure = self.losses.failure.take();
            let reason = failure.as_deref().unwrap_or("they cannot be sent fast enough");
            tracing::warn!(
                "xrootd.monitor: {new} packets for {} are lost, {lost} since the start: {reason}",
                self.address
            );
        }
    }

    /// Numbers a packet and sets its length. Packets that are lost have numbers too, so that the collector
    /// notices the loss.
    fn numbered(&mut self, mut packet: StreamPacket) -> Vec<u8> {
        let counter = match packet.sequence {
            SequenceKind::Common => &mut self.common,
            SequenceKind::Files => &mut self.files,
            SequenceKind::Own => return packet.bytes,
        };
        let lost = self.state.unnumbered(packet.sequence).map_or(0, |lost| lost.swap(0, Ordering::Relaxed));
        // The number has 8 bits. A loss leaves a gap also if it is a multiple of 256.
        let gap = if lost > 0 { lost.checked_rem(256).filter(|gap| *gap > 0).unwrap_or(1) } else { 0 };
        *counter = counter.wrapping_add(u8::try_from(gap).unwrap_or(1));
        MonitorPacketHeader::complete(&mut packet.bytes, *counter);
        *counter = counter.wrapping_add(1);
        packet.bytes
    }

    /// Returns the packets that wait, as they would be sent.
    #[cfg(test)]
    pub(crate) fn waiting(&mut self) -> Vec<Vec<u8>> {
        let mut packets = Vec::new();
        while let Ok(packet) = self.packets.try_recv() {
            self.state.leave(packet.bytes.capacity());
            packets.push(self.numbered(packet));
        }
        packets
    }

    /// Sends a packet. Returns `false` if it is lost.
    fn send(&mut self, packet: &[u8]) -> bool {
        let now = Instant::now();
        let is_paused = self.paused_until.is_some_and(|until| now < until);
        let is_sent = !is_paused && self.try_send(packet);
        if !is_sent {
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
        is_sent
    }

    fn try_send(&mut self, packet: &[u8]) -> bool {
        self.paused_until = None;
        let Err(error) = self.sender.try_send(packet) else { return true };
        // A full buffer of the socket is no error.
        if error.kind() != ErrorKind::WouldBlock {
            self.losses.failure = Some(error.to_string());
        }
        self.paused_until = self.sender.needs_look_up().then(|| Instant::now() + FAILURE_PAUSE);
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_has_one_line_a_minute_with_all_losses() {
        let (mut log, start) = (LossLog::default(), Instant::now());
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(log.due(0, at(0)), None);
        assert_eq!(log.due(3, at(0)), Some(3));
        // One is taken, one is lost, and so on.
        for second in 1..60 {
            assert_eq!(log.due(3 + second * 1000, at(second)), None);
        }
        assert_eq!(log.due(70_000, at(60)), Some(69_997));
        assert_eq!(log.due(70_000, at(600)), None);
        assert_eq!(log.due(70_001, at(601)), Some(1));
    }
}
