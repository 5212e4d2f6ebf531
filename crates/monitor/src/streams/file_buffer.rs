//! [`FileBuffer`]: a packet of the file stream that is being filled.

use super::Seconds;
use wire::Encode;
use wire::monitoring::{FileRecord, MonitorPacketHeader, PacketCode, packet};

/// Length of the header and of the time record in bytes.
const HEAD_BYTES: usize = packet::HEADER_BYTES + wire::monitoring::file_records::TIME_BYTES;

/// A packet of the file stream that is being filled.
pub(super) struct FileBuffer {
    started: Seconds,
    server: u64,
    bytes_max: usize,
    records: Vec<u8>,
    transfers: u16,
    others: u16,
    /// The time of the last packet.
    begin: Seconds,
}

impl FileBuffer {
    /// Returns a buffer for packets of at most this size. It needs no memory until there is a record.
    pub(super) fn new(started: Seconds, server: u64, bytes_max: u32, now: Seconds) -> Self {
        let bytes_max = usize::try_from(bytes_max).unwrap_or(usize::MAX).min(packet::PACKET_BYTES_MAX);
        Self { started, server, bytes_max, records: Vec::new(), transfers: 0, others: 0, begin: now }
    }

    /// Adds a record. Returns a packet if the record does not fit into the same one.
    pub(super) fn add(&mut self, record: &FileRecord<'_>, now: Seconds) -> Option<Vec<u8>> {
        let bytes = record.encoded();
        let is_full = HEAD_BYTES + self.records.len() + bytes.len() > self.bytes_max;
        let packet = if is_full { self.take(now) } else { None };
        self.records.extend_from_slice(&bytes);
        let number = match record {
            FileRecord::Transfer { .. } => &mut self.transfers,
            _ => &mut self.others,
        };
        *number = number.saturating_add(1);
        packet
    }

    /// Returns the packet, if it has records.
    pub(super) fn take(&mut self, now: Seconds) -> Option<Vec<u8>> {
        let begin = std::mem::replace(&mut self.begin, now);
        if self.records.is_empty() {
            return None;
        }
        let mut out = Vec::with_capacity(HEAD_BYTES + self.records.len());
        MonitorPacketHeader { code: PacketCode::FILE, sequence: 0, length: 0, started: self.started }
            .encode(&mut out);
        let (transfers, others) = (std::mem::take(&mut self.transfers), std::mem::take(&mut self.others));
        let records = transfers.saturating_add(others);
        FileRecord::Time { transfers, records, begin, end: now, server: Some(self.server) }.encode(&mut out);
        out.append(&mut self.records);
        Some(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Decode;
    use wire::monitoring::{FileTotals, Packet};

    fn records(mut packet: Vec<u8>) -> (usize, String) {
        MonitorPacketHeader::complete(&mut packet, 1);
        let Ok(Packet::Files(header, records)) = Packet::decode(&packet) else { panic!("no file packet") };
        assert_eq!(usize::from(header.length), packet.len());
        (records.0.len(), format!("{:?}", records.0[0]))
    }

    #[test]
    fn a_packet_begins_with_the_time_and_the_numbers_of_records() {
        let mut buffer = FileBuffer::new(1, 5, 65_472, 100);
        assert_eq!(buffer.take(150), None);
        let totals = FileTotals::default();
        assert_eq!(buffer.add(&FileRecord::Transfer { file: 1, totals }, 160), None);
        assert_eq!(buffer.add(&FileRecord::Disconnect { user: 1 }, 161), None);
        let packet = buffer.take(170).unwrap();
        let time = "Time { transfers: 1, records: 2, begin: 150, end: 170, server: Some(5) }";
        assert_eq!(records(packet), (3, time.to_owned()));
        assert_eq!(buffer.take(180), None);
    }

    #[test]
    fn a_full_buffer_is_a_packet_and_the_record_begins_the_next_one() {
        let mut buffer = FileBuffer::new(1, 5, 1024, 0);
        let packets: Vec<_> =
            (0..300).filter_map(|user| buffer.add(&FileRecord::Disconnect { user }, 1)).collect();
        // 124 records of 8 bytes are behind the head of 32.
        assert_eq!(packets.iter().map(Vec::len).collect::<Vec<_>>(), [1024, 1024]);
        assert_eq!(records(buffer.take(2).unwrap()).0, 1 + 300 - 2 * 124);
    }
}
