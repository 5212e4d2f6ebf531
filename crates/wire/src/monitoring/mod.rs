//! Packets of detailed monitoring (`xrootd.monitor`), which a server sends to collectors over UDP.
//!
//! * [`packet`]: the header of all packets, the map packets, and a decoder for every kind;
//! * [`trace`]: records of the trace stream `t`: reads and writes;
//! * [`file_records`]: records of the file stream `f`: opens, closes, totals;
//! * [`redirects`]: records of the redirect stream `r`;
//! * [`gstreams`]: lines of JSON of the streams `g`: copies, the cache, HTTP.
//!
//! All integers are big-endian. A packet is one datagram.

pub mod file_records;
pub mod gstreams;
pub mod packet;
pub mod redirects;
pub mod trace;

pub use file_records::{FileCloseFlags, FileOperations, FileRecord, FileRecords, FileSquares, FileTotals};
pub use gstreams::GStreamRecords;
pub use packet::{MapPacket, MonitorPacketHeader, Packet, PacketCode};
pub use redirects::{RedirectOperation, RedirectRecord, RedirectRecords};
pub use trace::{TraceRecord, TraceRecords};

/// Bits of the id of a server in its packets.
pub const SERVER_ID_BITS: u32 = 48;

/// The id of a server without the bits that hold something else.
pub const SERVER_ID_MASK: u64 = (1 << SERVER_ID_BITS) - 1;
