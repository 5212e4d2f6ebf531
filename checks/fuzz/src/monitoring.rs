//! Fuzz target for packets of detailed monitoring.
//!
//! Decoding must not panic, and a packet that decodes has one encoded form, which decodes to itself.

use wire::monitoring::packet::PACKET_BYTES_MAX;
use wire::monitoring::{
    FileOperations, FileRecord, FileRecords, FileSquares, FileTotals, GStreamRecords, MapPacket,
    MonitorPacketHeader, Packet, PacketCode, RedirectOperation, RedirectRecord, RedirectRecords, TraceRecord,
    TraceRecords,
};
use wire::{Decode, Encode};

/// Checks `data` as a packet, also with the length that it really has.
pub fn target(data: &[u8]) {
    packet(data);
    let mut complete = data.to_vec();
    let sequence = complete.get(1).copied().unwrap_or_default();
    MonitorPacketHeader::complete(&mut complete, sequence);
    packet(&complete);
}

fn packet(data: &[u8]) {
    let Ok(packet) = Packet::decode(data) else { return };
    let first = packet.encoded();
    assert!(first.len() <= data.len().max(PACKET_BYTES_MAX), "{packet:?}");
    let Ok(again) = Packet::decode(&first) else { panic!("{packet:?} does not decode again") };
    assert_eq!(again.encoded(), first, "{packet:?}");
}

/// Returns packets of each kind.
pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let header = |code| MonitorPacketHeader { code, sequence: 1, length: 0, started: 2 };
    let text = b"xroot/u.1:2@h\n/path";
    let map = MapPacket { code: PacketCode::PATH, sequence: 1, started: 2, id: 3, text };
    let window = TraceRecord::Window { server: 4, ended: 5, begins: 6 };
    let traces = [
        window,
        TraceRecord::Open { size: 7, file: 3 },
        TraceRecord::Io { offset: 8, length: -9, file: 3 },
        TraceRecord::Vector { unwound: true, vector: 1, elements: 2, length: 3, file: 3 },
        TraceRecord::close(3, 1 << 40, 5),
        TraceRecord::Disconnect { flags: 1, seconds: 2, user: 1 },
        TraceRecord::Application(*b"abcdefghijkl"),
    ];
    let totals = FileTotals { read: 1, vector_read: 2, written: 3 };
    let (operations, squares) = (Some(FileOperations::default()), Some(FileSquares::default()));
    let files = vec![
        FileRecord::Time { transfers: 1, records: 4, begin: 1, end: 2, server: Some(4) },
        FileRecord::Open { file: 3, is_writable: true, size: 7, name: Some((1, b"/path")) },
        FileRecord::Transfer { file: 3, totals },
        FileRecord::Close { file: 3, is_forced: true, totals, operations, squares },
        FileRecord::Disconnect { user: 1 },
    ];
    let redirects = vec![
        RedirectRecord::Window { window: 1, time: 2 },
        RedirectRecord::Redirect {
            operation: RedirectOperation::STAT,
            is_local: false,
            port: 1094,
            user: 1,
            target: b"h:/path",
        },
    ];
    let packets = [
        Packet::Map(map),
        Packet::Trace(header(PacketCode::TRACE), TraceRecords(traces.to_vec())),
        Packet::Files(header(PacketCode::FILE), FileRecords(files)),
        Packet::Redirects(header(PacketCode::REDIRECT), RedirectRecords { server: 4, records: redirects }),
        Packet::Records(
            header(PacketCode::GSTREAM),
            GStreamRecords { begin: 1, end: 2, letter: b'P', server: 4, records: b"{\"TPC\":\"xroot\"}" },
        ),
        Packet::Other(header(PacketCode(b'z')), b"{}\0"),
    ];
    packets.iter().map(Encode::encoded).collect()
}
