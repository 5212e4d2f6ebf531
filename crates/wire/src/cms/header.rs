//! The header of every frame, and the streamid in it.
//!
//! | bytes | field    | type   | meaning                                                        |
//! |-------|----------|--------|----------------------------------------------------------------|
//! | 0..4  | streamid | opaque | echoed in the response; 0 on a request: no response wanted     |
//! | 4     | rrCode   | u8     | [`Code`]; 0 to 5 towards a redirector: [`ResponseCode`]        |
//! | 5     | modifier | u8     | flags of each message, see [`super::flags`]                    |
//! | 6..8  | datalen  | u16    | bytes of payload that follow                                   |
//!
//! Source: cms protocol version 3, sections 1.1, 1.4.
//!
//! [`ResponseCode`]: super::codes::ResponseCode

use std::fmt;

use super::codes::Code;
use super::limits::HEADER_BYTES;
use crate::crc::crc32;

/// Chosen by the sender of a request, echoed unchanged in the answer.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct StreamId(pub [u8; 4]);

impl StreamId {
    /// No answer wanted; also that of unsolicited messages.
    pub const NONE: Self = Self([0; 4]);

    /// That of a `state` for `path`: its CRC-32, 1 when that is 0, least significant byte first.
    ///
    /// Real parents use what comes back in a `have` as the key of their cache without looking at the path, so a
    /// `have` or a relayed `state` carries the value that came, never a computed one. They keep it in their own byte
    /// order; all that are deployed have the least significant byte first.
    #[must_use]
    pub fn of_path(path: &[u8]) -> Self {
        Self(crc32(path).max(1).to_le_bytes())
    }

    /// The data port in a `status` that resumes.
    #[must_use]
    pub const fn of_port(port: u16) -> Self {
        let [high, low] = port.to_be_bytes();
        Self([0, 0, high, low])
    }

    /// The number [`StreamId::of_path`] gave: the CRC-32 of a path, 0 in an unsolicited message.
    #[must_use]
    pub const fn path_hash(self) -> u32 {
        u32::from_le_bytes(self.0)
    }

    /// The data port in a `status` that resumes; `None` when the bytes are none, as in a `status` without one.
    #[must_use]
    pub const fn port(self) -> Option<u16> {
        match self.0 {
            [0, 0, 0, 0] => None,
            [0, 0, high, low] => Some(u16::from_be_bytes([high, low])),
            _ => None,
        }
    }

    /// Whether no answer is wanted.
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

/// The 8 bytes every frame starts with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// Echoed in the answer.
    pub streamid: StreamId,
    /// Which message; towards a redirector 0 to 5 are responses.
    pub code: Code,
    /// Flags of the message.
    pub modifier: u8,
    /// Bytes of payload that follow.
    pub datalen: u16,
}

impl Header {
    /// Every 8 bytes are a header.
    #[must_use]
    pub const fn decode(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [s0, s1, s2, s3, code, modifier, high, low] = *bytes;
        Self {
            streamid: StreamId([s0, s1, s2, s3]),
            code: Code(code),
            modifier,
            datalen: u16::from_be_bytes([high, low]),
        }
    }

    /// The bytes of the header.
    #[must_use]
    pub const fn encode(&self) -> [u8; HEADER_BYTES] {
        let [s0, s1, s2, s3] = self.streamid.0;
        let [high, low] = self.datalen.to_be_bytes();
        [s0, s1, s2, s3, self.code.0, self.modifier, high, low]
    }

    /// Bytes of payload that follow.
    #[must_use]
    pub fn payload_bytes(&self) -> usize {
        usize::from(self.datalen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_streamid_of_a_question_as_recorded() {
        assert_eq!(StreamId::of_path(b"/f1"), StreamId([0xd4, 0x14, 0x29, 0xae]));
        assert_eq!(StreamId::of_path(b"/nofile").to_string(), "b1f1de20");
        assert_eq!(StreamId::of_path(b"/f1").path_hash(), 0xae29_14d4);
        // CRC-32 0 would say that no answer is wanted.
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
    fn a_header_both_ways() {
        let bytes = [0xd4, 0x14, 0x29, 0xae, 20, 0x20, 0, 4];
        let header = Header::decode(&bytes);
        assert_eq!((header.code, header.modifier, header.payload_bytes()), (Code::STATE, 0x20, 4));
        assert_eq!(header.encode(), bytes);
    }
}
