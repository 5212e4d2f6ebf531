//! The frame header and its streamid.
//!
//! | bytes | field    | type   | meaning                                                      |
//! |-------|----------|--------|--------------------------------------------------------------|
//! | 0..4  | streamid | opaque | echoed in the response; 0 in a request: no response          |
//! | 4     | rrCode   | u8     | [`Code`]; 0 to 5 in frames to a redirector: [`ResponseCode`] |
//! | 5     | modifier | u8     | flags of each message, see [`super::flags`]                  |
//! | 6..8  | datalen  | u16    | length of the payload in bytes                               |
//!
//! Source: cms protocol version 3, sections 1.1, 1.4.
//!
//! [`ResponseCode`]: super::codes::ResponseCode

use std::fmt;

use super::codes::Code;
use super::limits::HEADER_BYTES;
use crate::codec::FixedLayout;
use crate::crc::crc32;

/// The id that the sender of a request chooses and the answer echoes unchanged.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub [u8; 4]);

impl StreamId {
    /// The streamid of unsolicited messages, and of requests that want no answer.
    pub const NONE: Self = Self([0; 4]);

    /// Returns the streamid of a `state` query for `path`: its CRC-32, or 1 if the CRC is 0, least
    /// significant byte first.
    ///
    /// XRootD parents use the streamid of a `have` as the key of their location cache and do not
    /// compare the path. A `have` or a relayed `state` must therefore carry the streamid of the
    /// query and never a computed one. Parents keep the number in their own byte order; all known
    /// deployments are little-endian.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Self {
        Self(crc32(path).max(1).to_le_bytes())
    }

    /// Returns the streamid of a `status` that resumes with this data port.
    #[must_use]
    pub const fn of_port(port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        Self([0, 0, high, low])
    }

    /// Returns the number of [`StreamId::of_path`]: the CRC-32 of a path, or 0 in an unsolicited
    /// message.
    #[must_use]
    pub const fn path_hash(self) -> u32 {
        u32::from_le_bytes(self.0)
    }

    /// Returns the data port in a `status` that resumes; `None` if the bytes are not a port.
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        match self.0 {
            [0, 0, 0, 0] => None,
            [0, 0, high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// Reports whether no answer is wanted.
    #[must_use]
    pub const fn is_none(self) -> bool {
        matches!(self.0, [0, 0, 0, 0])
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The 8 bytes at the start of every frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Echoed in the answer.
    pub streamid: StreamId,
    /// The kind of message. In frames to a redirector, 0 to 5 are responses.
    pub code: Code,
    /// Flags of the message.
    pub modifier: u8,
    /// Length of the payload in bytes.
    pub datalen: u16,
}

impl FixedLayout for Header {
    type Bytes = [u8; HEADER_BYTES];

    fn to_bytes(&self) -> Self::Bytes {
        let [s0, s1, s2, s3] = self.streamid.0;
        let [high, low] = self.datalen.to_be_bytes();
        [s0, s1, s2, s3, self.code.0, self.modifier, high, low]
    }

    fn from_bytes(&[s0, s1, s2, s3, code, modifier, high, low]: &Self::Bytes) -> Self {
        Self {
            streamid: StreamId([s0, s1, s2, s3]),
            code: Code(code),
            modifier,
            datalen: u16::from_be_bytes([high, low]),
        }
    }
}

impl Header {
    /// Returns the length of the payload in bytes.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.datalen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streamid_of_a_query_matches_the_recording() {
        assert_eq!(StreamId::of_path(b"/f1"), StreamId([0xd4, 0x14, 0x29, 0xae]));
        assert_eq!(StreamId::of_path(b"/nofile").to_string(), "b1f1de20");
        assert_eq!(StreamId::of_path(b"/f1").path_hash(), 0xae29_14d4);
        // A streamid of 0 would mean that no answer is wanted.
        assert_eq!(StreamId::of_path(b""), StreamId([1, 0, 0, 0]));
    }

    #[test]
    fn the_streamid_of_a_resume_is_a_port() {
        assert_eq!(StreamId::of_port(22021), StreamId([0, 0, 0x56, 5]));
        assert_eq!(StreamId([0, 0, 0x56, 5]).port(), Some(22021));
        assert_eq!(StreamId::NONE.port(), None);
        assert_eq!(StreamId([0, 1, 0x56, 5]).port(), None);
        assert!(StreamId::NONE.is_none() && !StreamId::of_port(1).is_none());
    }

    #[test]
    fn a_header_decodes_and_encodes() {
        let bytes = [0xd4, 0x14, 0x29, 0xae, 20, 0x20, 0, 4];
        let header = Header::from_bytes(&bytes);
        assert_eq!((header.code, header.modifier, header.payload_bytes()), (Code::STATE, 0x20, 4));
        assert_eq!(header.to_bytes(), bytes);
    }
}
