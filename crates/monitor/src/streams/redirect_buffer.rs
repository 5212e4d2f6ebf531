//! [`RedirectBuffer`]: a packet of the redirect stream that is being filled.

use super::Seconds;
use wire::Encode;
use wire::monitoring::{MonitorPacketHeader, PacketCode, RedirectRecord, RedirectRecords, packet, redirects};

/// A packet of the redirect stream that is being filled. Its first and last records are marks of the time.
pub(super) struct RedirectBuffer {
    started: Seconds,
    server: u64,
    bytes_max: usize,
    window: Seconds,
    bytes: Vec<u8>,
    /// Time of the last mark.
    marked: Seconds,
}

impl RedirectBuffer {
    /// Returns a buffer for packets of at most this size.
    pub(super) fn new(started: Seconds, server: u64, bytes_max: u32, window: Seconds, now: Seconds) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(packet::PACKET_BYTES_MAX);
        Self { started, server, bytes_max, window, bytes: Vec::new(), marked: now }
    }

    /// Adds a record. Returns a packet if the record does not fit into the same one.
    pub(super) fn add(&mut self, record: &RedirectRecord<'_>, now: Seconds) -> Option<Vec<u8>> {
        let bytes = record.encoded();
        // Up to two marks of the time go with it.
        let is_full = self.bytes.len() + bytes.len() + 2 * redirects::UNIT_BYTES > self.bytes_max;
        let packet = if is_full { self.take(now) } else { None };
        if self.bytes.is_empty() {
            MonitorPacketHeader { code: PacketCode::REDIRECT, sequence: 0, length: 0, started: self.started }
                .encode(&mut self.bytes);
            RedirectRecords::encode_server(self.server, &mut self.bytes);
            self.mark(now);
        } else if now.abs_diff(self.marked) >= self.window {
            self.mark(now);
        }
        self.bytes.extend_from_slice(&bytes);
        packet
    }

    /// Returns the packet, if it has records.
    pub(super) fn take(&mut self, now: Seconds) -> Option<Vec<u8>> {
        if self.bytes.is_empty() {
            return None;
        }
        self.mark(now);
        // The buffer stays here: a packet that waits to be sent has no more memory than it needs.
        let packet = self.bytes.to_vec();
        self.bytes.clear();
        Some(packet)
    }

    fn mark(&mut self, now: Seconds) {
        RedirectRecord::Window { window: self.window, time: now }.encode(&mut self.bytes);
        self.marked = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Decode;
    use wire::monitoring::{Packet, RedirectOperation};

    fn redirect(target: &[u8]) -> RedirectRecord<'_> {
        let operation = RedirectOperation::OPEN_READ;
        RedirectRecord::Redirect { operation, is_local: false, port: 1094, user: 2, target }
    }

    #[test]
    fn marks_of_the_time_begin_and_end_packets_and_windows() {
        let mut buffer = RedirectBuffer::new(1, 5, 2048, 60, 100);
        assert_eq!(buffer.take(110), None);
        for now in [120, 130, 180] {
            assert_eq!(buffer.add(&redirect(b"h:/a"), now), None);
        }
        let mut packet = buffer.take(190).unwrap();
        MonitorPacketHeader::complete(&mut packet, 1);
        let Ok(Packet::Redirects(_, records)) = Packet::decode(&packet) else { panic!("no redirects") };
        let mark = |time| RedirectRecord::Window { window: 60, time };
        let one = redirect(b"h:/a");
        assert_eq!(records.records, [mark(120), one, one, mark(180), one, mark(190)]);
        assert_eq!(records.server, 5);
    }

    #[test]
    fn a_record_that_does_not_fit_begins_the_next_packet() {
        let mut buffer = RedirectBuffer::new(1, 5, 2048, 60, 0);
        let long = [b'x'; 5000];
        let packets: Vec<_> = (0..10).filter_map(|now| buffer.add(&redirect(&long), now)).collect();
        assert_eq!(packets.len(), 9);
        assert!(packets.iter().all(|packet| packet.len() <= 2048));
    }
}
