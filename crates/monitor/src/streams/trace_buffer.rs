//! [`TraceBuffer`]: a packet of the trace stream that is being filled.

use super::Seconds;
use wire::Encode;
use wire::monitoring::{MonitorPacketHeader, PacketCode, TraceRecord, packet, trace};

/// A packet of the trace stream that is being filled. Its first and last records are marks of the time.
pub(super) struct TraceBuffer {
    started: Seconds,
    server: u64,
    bytes_max: usize,
    window: Seconds,
    bytes: Vec<u8>,
    /// The time of the last record, which ends a window.
    last: Seconds,
    /// Begin of the window.
    begin: Seconds,
}

impl TraceBuffer {
    /// Returns a buffer for packets of at most this size.
    pub(super) fn new(started: Seconds, server: u64, bytes_max: u32, window: Seconds, now: Seconds) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(packet::PACKET_BYTES_MAX);
        Self { started, server, bytes_max, window, bytes: Vec::new(), last: now, begin: now }
    }

    /// Adds a record. Returns a packet if the buffer is full.
    pub(super) fn add(&mut self, record: &TraceRecord, now: Seconds) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            self.bytes.reserve_exact(self.bytes_max);
            MonitorPacketHeader { code: PacketCode::TRACE, sequence: 0, length: 0, started: self.started }
                .encode(&mut self.bytes);
            self.mark(now);
        } else if now.abs_diff(self.begin) >= self.window {
            self.mark(now);
        }
        self.last = now;
        self.bytes.extend_from_slice(&record.to_bytes());
        // A mark of the time, a record and the last mark must have room.
        let is_full = self.bytes.len() + 3 * trace::RECORD_BYTES > self.bytes_max;
        if is_full { self.take(now) } else { None }
    }

    /// Returns the packet, if it has records.
    pub(super) fn take(&mut self, now: Seconds) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        self.last = now;
        self.mark(now);
        // The buffer stays here: a packet that waits to be sent has no more memory than it needs.
        let packet = self.bytes.to_vec();
        self.bytes.clear();
        Some(packet)
    }

    fn mark(&mut self, now: Seconds) {
        let mark = TraceRecord::Window { server: self.server, ended: self.last, begins: now };
        self.bytes.extend_from_slice(&mark.to_bytes());
        (self.begin, self.last) = (now, now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Decode;
    use wire::monitoring::Packet;

    const IO: TraceRecord = TraceRecord::Io { offset: 1, length: 2, file: 3 };

    fn mark(ended: Seconds, begins: Seconds) -> TraceRecord {
        TraceRecord::Window { server: 5, ended, begins }
    }

    fn records(mut packet: Vec<u8>) -> Vec<TraceRecord> {
        MonitorPacketHeader::complete(&mut packet, 1);
        match Packet::decode(&packet) {
            Ok(Packet::Trace(_, records)) => records.0,
            other => panic!("no trace packet: {other:?}"),
        }
    }

    #[test]
    fn marks_of_the_time_begin_and_end_packets_and_windows() {
        let mut buffer = TraceBuffer::new(1, 5, 1024, 60, 100);
        assert_eq!(buffer.take(110), None);
        for now in [120, 170, 180, 200] {
            assert_eq!(buffer.add(&IO, now), None);
        }
        let expected = [mark(100, 120), IO, IO, mark(170, 180), IO, IO, mark(210, 210)];
        assert_eq!(records(buffer.take(210).unwrap()), expected);
        assert_eq!(buffer.take(220), None);
        buffer.add(&IO, 300);
        assert_eq!(records(buffer.take(301).unwrap()), [mark(210, 300), IO, mark(301, 301)]);
    }

    #[test]
    fn a_full_buffer_is_a_packet() {
        for bytes in [1024, 65_535] {
            let mut buffer = TraceBuffer::new(1, 5, bytes, 1, 0);
            let packets: Vec<_> = (0..20_000).filter_map(|now| buffer.add(&IO, now / 3)).collect();
            assert!(packets.len() > 2);
            for packet in packets {
                assert!(packet.len() <= bytes as usize && packet.len() + 64 > bytes.min(65_507) as usize);
                assert!(matches!(records(packet).last(), Some(TraceRecord::Window { .. })));
            }
        }
    }
}
