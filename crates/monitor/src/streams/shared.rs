//! [`MonitorStreams`]: what all event loops share: ids, and the queues of the collectors.

use super::Seconds;
use super::sender::{SequenceKind, StreamPacket, StreamSender};
use crate::transfer_records::{RecordSender, line, sender_id};
use config::{DetailedMonitoring, MonitorEvent, MonitorEvents};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::{SystemTime, UNIX_EPOCH};
use wire::Encode;
use wire::monitoring::{MapPacket, PacketCode};

/// Number of packets that wait for the thread of a collector. Further ones are dropped.
pub(super) const QUEUE_PACKETS_MAX: usize = 4096;
/// Memory of packets that wait for the thread of a collector, in bytes. Further packets are dropped.
pub(super) const QUEUE_BYTES_MAX: usize = 8 << 20;
/// The part of both limits that packets of all kinds can use, in quarters. The rest is for those without which a
/// collector knows neither clients nor totals.
const COMMON_QUARTERS: usize = 3;

/// What all event loops share. Packets are sent until it is dropped.
pub struct MonitorStreams {
    settings: DetailedMonitoring,
    events: MonitorEvents,
    /// A collector wants the trace of this [`TraceKind`].
    traces: [bool; 2],
    server: u64,
    started: Seconds,
    next_id: AtomicU32,
    queues: Vec<CollectorQueue>,
}

impl std::fmt::Debug for MonitorStreams {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("MonitorStreams")
    }
}

/// The two traces. Each collector gets one of them.
#[derive(Clone, Copy)]
pub(super) enum TraceKind {
    /// Opens, closes and disconnects.
    Files,
    /// Also reads, writes and names of applications.
    Io,
}

impl TraceKind {
    /// Reports whether a collector of these events gets the trace.
    pub(super) fn is_for(self, events: MonitorEvents) -> bool {
        match self {
            Self::Files => events.has(MonitorEvent::Files) && !events.has(MonitorEvent::Io),
            Self::Io => events.has(MonitorEvent::Io),
        }
    }
}

/// The packets for a collector.
struct CollectorQueue {
    wanted: MonitorEvents,
    packets: SyncSender<StreamPacket>,
    state: Arc<QueueState>,
}

/// The state of a queue that its thread shares.
#[derive(Default)]
pub(super) struct QueueState {
    /// Memory of the packets that wait, in bytes.
    bytes: AtomicUsize,
    /// Number of packets that wait.
    packets: AtomicUsize,
    /// Packets that were lost since the start.
    pub(super) dropped: AtomicU64,
    /// Packets that found no place, which have no number yet: of both counters of [`SequenceKind`].
    unnumbered: [AtomicU32; 2],
}

impl QueueState {
    /// Counts a packet that waits. Returns `false` if there is no place for it.
    fn enter(&self, packet: &StreamPacket) -> bool {
        let quarters = if packet.is_essential() { 4 } else { COMMON_QUARTERS };
        let size = packet.bytes.capacity();
        let bytes = self.bytes.fetch_add(size, Ordering::Relaxed);
        let packets = self.packets.fetch_add(1, Ordering::Relaxed);
        let has_place =
            bytes + size <= QUEUE_BYTES_MAX / 4 * quarters && packets < QUEUE_PACKETS_MAX / 4 * quarters;
        if !has_place {
            self.leave(size);
        }
        has_place
    }

    /// Counts a packet of this capacity that does not wait any more.
    pub(super) fn leave(&self, size: usize) {
        self.bytes.fetch_sub(size, Ordering::Release);
        self.packets.fetch_sub(1, Ordering::Release);
    }

    /// Returns the number of packets that found no place and have no number yet; `None` for packets that have one.
    pub(super) fn unnumbered(&self, kind: SequenceKind) -> Option<&AtomicU32> {
        let [common, files] = &self.unnumbered;
        match kind {
            SequenceKind::Common => Some(common),
            SequenceKind::Files => Some(files),
            SequenceKind::Own => None,
        }
    }
}

impl MonitorStreams {
    /// Creates the streams of a server, and the senders that need a thread each.
    #[must_use]
    pub fn new(
        settings: &DetailedMonitoring,
        sender: &RecordSender,
        release: &str,
    ) -> (Arc<Self>, Vec<StreamSender>) {
        let server = sender_id(sender);
        // The field has 32 bits.
        let started = (sender.started & u64::from(u32::MAX)) as u32;
        let identification = identification(sender, server, started, release);
        let (mut queues, mut senders) = (Vec::new(), Vec::new());
        for destination in &settings.destinations {
            let (packets, received) = sync_channel(QUEUE_PACKETS_MAX);
            let state = Arc::new(QueueState::default());
            senders.push(StreamSender::new(
                destination.address.clone(),
                (received, state.clone()),
                identification.clone(),
                settings.identification,
            ));
            queues.push(CollectorQueue { wanted: destination.events, packets, state });
        }
        let streams = Self {
            events: settings.events(),
            traces: [TraceKind::Files, TraceKind::Io]
                .map(|kind| settings.destinations.iter().any(|one| kind.is_for(one.events))),
            settings: settings.clone(),
            server,
            started,
            next_id: AtomicU32::new(1),
            queues,
        };
        (Arc::new(streams), senders)
    }

    /// Returns the settings.
    pub(super) fn settings(&self) -> &DetailedMonitoring {
        &self.settings
    }

    /// Reports whether a collector wants an event.
    pub(super) fn wants(&self, event: MonitorEvent) -> bool {
        self.events.has(event)
    }

    /// Reports whether a collector wants the file stream, and it is on.
    pub(super) fn wants_file_stream(&self) -> bool {
        self.wants(MonitorEvent::FileStream) && !self.settings.files.interval.is_zero()
    }

    /// Reports whether a collector wants a trace.
    pub(super) fn has_collectors_of(&self, kind: TraceKind) -> bool {
        self.traces[kind as usize]
    }

    /// Returns the id of the server, of 48 bits.
    pub(crate) fn server(&self) -> u64 {
        self.server
    }

    /// Returns the time of the start.
    pub(crate) fn started(&self) -> Seconds {
        self.started
    }

    /// Returns an id for a user, a path or a text. Ids repeat after 2^32.
    pub(super) fn new_id(&self) -> u32 {
        match self.next_id.fetch_add(1, Ordering::Relaxed) {
            // 0 means that there is no id.
            0 => self.next_id.fetch_add(1, Ordering::Relaxed),
            id => id,
        }
    }

    /// Returns the number of lost packets of each collector.
    #[cfg(test)]
    pub(super) fn dropped(&self) -> Vec<u64> {
        self.queues.iter().map(|queue| queue.state.dropped.load(Ordering::Relaxed)).collect()
    }

    /// Reports whether no packet waits to be sent.
    pub fn is_sent(&self) -> bool {
        self.queues.iter().all(|queue| queue.state.bytes.load(Ordering::Acquire) == 0)
    }

    /// Sends a record with an id and a text to those who want the event.
    pub(super) fn send_map(&self, event: MonitorEvent, code: PacketCode, id: u32, text: &[u8]) {
        if self.wants(event) {
            let map = MapPacket { code, sequence: 0, started: self.started, id, text };
            self.send(|wanted| wanted.has(event), SequenceKind::Common, map.encoded());
        }
    }

    /// Sends a packet to those who want it.
    pub(crate) fn send(
        &self,
        is_wanted: impl Fn(MonitorEvents) -> bool,
        sequence: SequenceKind,
        packet: Vec<u8>,
    ) {
        let mut queues = self.queues.iter().filter(|queue| is_wanted(queue.wanted)).peekable();
        while let Some(queue) = queues.next() {
            if queues.peek().is_none() {
                return queue.push(StreamPacket { sequence, bytes: packet });
            }
            queue.push(StreamPacket { sequence, bytes: packet.clone() });
        }
    }
}

impl CollectorQueue {
    /// Passes a packet to the thread of the collector. The log is left to that thread.
    fn push(&self, packet: StreamPacket) {
        let (size, sequence) = (packet.bytes.capacity(), packet.sequence);
        let has_place = self.state.enter(&packet);
        let is_taken = has_place && self.packets.try_send(packet).is_ok();
        if has_place && !is_taken {
            self.state.leave(size);
        }
        if !is_taken {
            if let Some(lost) = self.state.unnumbered(sequence) {
                lost.fetch_add(1, Ordering::Relaxed);
            }
            self.state.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// Returns the packet that identifies the server.
fn identification(sender: &RecordSender, server: u64, started: Seconds, release: &str) -> Vec<u8> {
    let RecordSender { site, host, instance, program, user, process, port, .. } = sender;
    let text = format!(
        "=/{}.{process}:{server}@{host}\n&site={}&port={port}&inst={}&pgm={}&ver={}",
        line(user),
        line(site),
        line(instance),
        line(program),
        line(release)
    );
    let code = PacketCode::SERVER;
    MapPacket { code, sequence: 0, started, id: 0, text: text.as_bytes() }.encoded()
}

/// Returns the time.
pub(crate) fn now() -> Seconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    (now & u64::from(u32::MAX)) as u32
}
