//! The header of packets, map packets, and the decoder of all packets.
//!
//! ```text
//! 0  u8   code                                     4  u32  start of the server, seconds since the epoch
//! 1  u8   sequence number modulo 256               8  the contents
//! 2  u16  length of the packet with the header
//! ```
//!
//! The contents of a map packet are an id (u32) and a text without a NUL.

use super::{FileRecords, GStreamRecords, RedirectRecords, TraceRecords};
use crate::codec::{Decode, Encode, FixedLayout};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;

/// Length of the header in bytes.
pub const HEADER_BYTES: usize = 8;
/// Length of the header and the id of a map packet in bytes.
pub const MAP_HEADER_BYTES: usize = HEADER_BYTES + 4;
/// Maximum length of a packet in bytes: that of the data of a datagram over IPv4.
pub const PACKET_BYTES_MAX: usize = 65_507;

/// The kind of a packet, a letter.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct PacketCode(pub u8);

impl PacketCode {
    /// Identification of the server.
    pub const SERVER: Self = Self(b'=');
    /// A user.
    pub const USER: Self = Self(b'u');
    /// A path.
    pub const PATH: Self = Self(b'd');
    /// Text that an application has sent.
    pub const INFO: Self = Self(b'i');
    /// A token.
    pub const TOKEN: Self = Self(b'T');
    /// The experiment and the activity of a user.
    pub const EXPERIMENT: Self = Self(b'U');
    /// A transfer with mass storage.
    pub const TRANSFER: Self = Self(b'x');
    /// A purge.
    pub const PURGE: Self = Self(b'p');
    /// The trace stream.
    pub const TRACE: Self = Self(b't');
    /// The redirect stream.
    pub const REDIRECT: Self = Self(b'r');
    /// The file stream.
    pub const FILE: Self = Self(b'f');
    /// A stream of JSON records.
    pub const GSTREAM: Self = Self(b'g');

    /// Reports whether the contents are an id and a text.
    #[must_use]
    pub const fn is_map(self) -> bool {
        matches!(self.0, b'=' | b'u' | b'd' | b'i' | b'T' | b'U' | b'x' | b'p')
    }
}

/// The header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MonitorPacketHeader {
    /// The kind.
    pub code: PacketCode,
    /// Sequence number of the stream, modulo 256.
    pub sequence: u8,
    /// Length of the packet in bytes, with this header.
    pub length: u16,
    /// Start of the server, in seconds since the epoch.
    pub started: u32,
}

impl FixedLayout for MonitorPacketHeader {
    type Bytes = [u8; HEADER_BYTES];

    fn to_bytes(&self) -> Self::Bytes {
        let [l0, l1] = self.length.to_be_bytes();
        let [s0, s1, s2, s3] = self.started.to_be_bytes();
        [self.code.0, self.sequence, l0, l1, s0, s1, s2, s3]
    }

    fn from_bytes(bytes: &Self::Bytes) -> Self {
        let [code, sequence, l0, l1, s0, s1, s2, s3] = *bytes;
        Self {
            code: PacketCode(code),
            sequence,
            length: u16::from_be_bytes([l0, l1]),
            started: u32::from_be_bytes([s0, s1, s2, s3]),
        }
    }
}

impl MonitorPacketHeader {
    /// Sets the length and the sequence number of an encoded packet. Has no effect on fewer bytes than a
    /// header has.
    pub fn complete(packet: &mut [u8], sequence: u8) {
        let length = u16::try_from(packet.len()).unwrap_or(u16::MAX);
        if let Some(header) = packet.first_chunk_mut() {
            *header = Self { sequence, length, ..Self::from_bytes(header) }.to_bytes();
        }
    }
}

/// A packet with an id and a text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MapPacket<'a> {
    /// The kind.
    pub code: PacketCode,
    /// Sequence number of the stream, modulo 256.
    pub sequence: u8,
    /// Start of the server, in seconds since the epoch.
    pub started: u32,
    /// The id, unique for the run of the server; 0 if the kind has none.
    pub id: u32,
    /// The text, which is cut to the size of a datagram.
    pub text: &'a [u8],
}

impl Encode for MapPacket<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let text = self.text.get(..PACKET_BYTES_MAX - MAP_HEADER_BYTES).unwrap_or(self.text);
        let length = u16::try_from(MAP_HEADER_BYTES + text.len()).unwrap_or(u16::MAX);
        let Self { code, sequence, started, id, .. } = *self;
        MonitorPacketHeader { code, sequence, length, started }.encode(out);
        FieldWriter::new(out).u32(id).bytes(text);
    }
}

/// A decoded packet.
#[derive(Clone, PartialEq, Debug)]
pub enum Packet<'a> {
    /// An id and a text.
    Map(MapPacket<'a>),
    /// The trace stream.
    Trace(MonitorPacketHeader, TraceRecords),
    /// The redirect stream.
    Redirects(MonitorPacketHeader, RedirectRecords<'a>),
    /// The file stream.
    Files(MonitorPacketHeader, FileRecords<'a>),
    /// A stream of JSON records.
    Records(MonitorPacketHeader, GStreamRecords<'a>),
    /// A packet of another kind, with its contents.
    Other(MonitorPacketHeader, &'a [u8]),
}

impl<'a> Decode<'a> for Packet<'a> {
    /// Decodes a datagram.
    ///
    /// # Errors
    /// The length in the header is not that of the datagram, or a record is incomplete.
    fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = FieldReader::new(bytes);
        let header = MonitorPacketHeader::from_bytes(&fields.array("header")?);
        if usize::from(header.length) != bytes.len() {
            return Err(WireError::BadLength { field: "plen", bytes: header.length.into() });
        }
        Ok(match header.code {
            code if code.is_map() => {
                let MonitorPacketHeader { code, sequence, started, .. } = header;
                let id = fields.u32("dictid")?;
                Self::Map(MapPacket { code, sequence, started, id, text: fields.take_rest() })
            }
            PacketCode::TRACE => Self::Trace(header, TraceRecords::decode(fields.take_rest())?),
            PacketCode::REDIRECT => Self::Redirects(header, RedirectRecords::decode(fields.take_rest())?),
            PacketCode::FILE => Self::Files(header, FileRecords::decode(fields.take_rest())?),
            PacketCode::GSTREAM => Self::Records(header, GStreamRecords::decode(fields.take_rest())?),
            _ => Self::Other(header, fields.take_rest()),
        })
    }
}

impl Encode for Packet<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let begin = out.len();
        let header = match self {
            Self::Map(map) => return map.encode(out),
            Self::Trace(header, _)
            | Self::Redirects(header, _)
            | Self::Files(header, _)
            | Self::Records(header, _)
            | Self::Other(header, _) => header,
        };
        header.encode(out);
        match self {
            Self::Map(_) => {}
            Self::Trace(_, records) => records.encode(out),
            Self::Redirects(_, records) => records.encode(out),
            Self::Files(_, records) => records.encode(out),
            Self::Records(_, records) => records.encode(out),
            Self::Other(_, contents) => out.extend_from_slice(contents),
        }
        if let Some(packet) = out.get_mut(begin..) {
            MonitorPacketHeader::complete(packet, header.sequence);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_packet_is_its_header_its_id_and_a_text() {
        let text = b"xroot/root.1:81001100416550@[::ffff:127.0.0.1]\n/data/big";
        let packet = MapPacket { code: PacketCode::PATH, sequence: 9, started: 0x6b0c_518d, id: 258, text };
        let bytes = packet.encoded();
        assert_eq!(bytes[..12], [b'd', 9, 0, 68, 0x6b, 0x0c, 0x51, 0x8d, 0, 0, 1, 2]);
        assert_eq!(Packet::decode(&bytes), Ok(Packet::Map(packet)));
        assert_eq!(Packet::Map(packet).encoded(), bytes);
        for end in 0..bytes.len() {
            assert!(Packet::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_text_is_cut_to_the_size_of_a_datagram() {
        let text = vec![b'x'; 100_000];
        let packet = MapPacket { code: PacketCode::INFO, sequence: 0, started: 1, id: 1, text: &text };
        let bytes = packet.encoded();
        assert_eq!(bytes.len(), PACKET_BYTES_MAX);
        assert!(matches!(Packet::decode(&bytes), Ok(Packet::Map(map)) if map.text.len() == 65_495));
    }

    #[test]
    fn a_packet_of_another_kind_keeps_its_contents() {
        let bytes = [b'z', 1, 0, 10, 0, 0, 0, 1, 7, 8];
        let packet = Packet::decode(&bytes).unwrap();
        assert!(matches!(packet, Packet::Other(_, [7, 8])), "{packet:?}");
        assert_eq!(packet.encoded(), bytes);
    }
}
