//! Records of the trace stream `t`, of 16 bytes each. The first and the last one of a packet mark the
//! time.
//!
//! | record     | byte 0 | 1       | 2-3          | 4-7            | 8-11              | 12-15         |
//! |------------|--------|---------|--------------|----------------|-------------------|---------------|
//! | read       | offset, 64 bits, the highest one is 0  |        | length            | file          |
//! | write      | offset                                 |        | negative length   | file          |
//! | vector     | 0x90   | vector  | elements     | 0              | length            | file          |
//! | unwound    | 0x91   | vector  | elements     | 0              | length            | file          |
//! | appid      | 0xa0   | 0       | 0            | text, 12 bytes |                   |               |
//! | open       | 0x80   | size of the file, 56 bits              | 0                 | file          |
//! | close      | 0xc0   | shift   | shift, 0     | bytes read     | bytes written     | file          |
//! | disconnect | 0xd0   | flags   | 0            | 0              | seconds connected | user          |
//! | window     | 0xe0   | 0       | id of the server, 48 bits     | end of the last one | start    |
//!
//! Source: the description of XRootD's monitoring, and packets of XRootD 6.1.

use super::SERVER_ID_MASK;
use crate::codec::{Decode, Encode};
use crate::cursor::FieldReader;
use crate::error::WireError;

/// Length of a record in bytes.
pub const RECORD_BYTES: usize = 16;

const OPEN: u8 = 0x80;
const VECTOR: u8 = 0x90;
const UNWOUND: u8 = 0x91;
const APPLICATION: u8 = 0xa0;
const CLOSE: u8 = 0xc0;
const DISCONNECT: u8 = 0xd0;
const WINDOW: u8 = 0xe0;

/// The largest size of a file in an open record.
const SIZE_MAX: u64 = (1 << 56) - 1;
/// The largest number that a field of a close record holds.
const TOTAL_MAX: u64 = i32::MAX as u64;

/// A record of the trace stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TraceRecord {
    /// A read or a write.
    Io {
        /// Offset in the file, at most 63 bits.
        offset: u64,
        /// Number of bytes; negative for a write.
        length: i32,
        /// Id of the file.
        file: u32,
    },
    /// A vector read of one file.
    Vector {
        /// The elements follow as records of reads.
        unwound: bool,
        /// Number of the vector in its session, modulo 256.
        vector: u8,
        /// Number of elements.
        elements: u16,
        /// Number of bytes.
        length: i32,
        /// Id of the file.
        file: u32,
    },
    /// An open.
    Open {
        /// Size of the file, at most 56 bits.
        size: u64,
        /// Id of the file.
        file: u32,
    },
    /// A close. The numbers are shifted to the right, so that they have 31 bits.
    Close {
        /// Bits by which `read` is shifted.
        read_shift: u8,
        /// Bits by which `written` is shifted.
        written_shift: u8,
        /// Bytes read, shifted.
        read: u32,
        /// Bytes written, shifted.
        written: u32,
        /// Id of the file.
        file: u32,
    },
    /// The end of a session.
    Disconnect {
        /// 1 forced, 2 a further connection of a session.
        flags: u8,
        /// Seconds since its begin.
        seconds: i32,
        /// Id of the user.
        user: u32,
    },
    /// The name of the application that sends the following requests.
    Application([u8; 12]),
    /// A mark of the time.
    Window {
        /// Id of the server, 48 bits.
        server: u64,
        /// End of the window before the mark, in seconds since the epoch.
        ended: u32,
        /// Begin of the window after the mark, in seconds since the epoch.
        begins: u32,
    },
    /// A record of an unknown kind.
    Unknown([u8; RECORD_BYTES]),
}

impl TraceRecord {
    /// Returns the record of a close with these totals.
    #[must_use]
    pub fn close(file: u32, read: u64, written: u64) -> Self {
        let (read, read_shift) = shifted(read);
        let (written, written_shift) = shifted(written);
        Self::Close { read_shift, written_shift, read, written, file }
    }

    /// Returns the encoded record.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; RECORD_BYTES] {
        match *self {
            Self::Io { offset, length, file } => {
                joined(offset & i64::MAX.cast_unsigned(), length.cast_unsigned(), file)
            }
            Self::Vector { unwound, vector, elements, length, file } => {
                let kind = if unwound { UNWOUND } else { VECTOR };
                let [e0, e1] = elements.to_be_bytes();
                joined(u64::from_be_bytes([kind, vector, e0, e1, 0, 0, 0, 0]), length.cast_unsigned(), file)
            }
            Self::Open { size, file } => joined(u64::from(OPEN) << 56 | size.min(SIZE_MAX), 0, file),
            Self::Close { read_shift, written_shift, read, written, file } => {
                let [r0, r1, r2, r3] = read.to_be_bytes();
                let first = [CLOSE, read_shift, written_shift, 0, r0, r1, r2, r3];
                joined(u64::from_be_bytes(first), written, file)
            }
            Self::Disconnect { flags, seconds, user } => {
                let first = u64::from_be_bytes([DISCONNECT, flags, 0, 0, 0, 0, 0, 0]);
                joined(first, seconds.cast_unsigned(), user)
            }
            Self::Application(text) => {
                let mut bytes = [0; RECORD_BYTES];
                let [kind, _, _, _, rest @ ..] = &mut bytes;
                *kind = APPLICATION;
                *rest = text;
                bytes
            }
            Self::Window { server, ended, begins } => {
                joined(u64::from(WINDOW) << 56 | server & SERVER_ID_MASK, ended, begins)
            }
            Self::Unknown(bytes) => bytes,
        }
    }

    /// Decodes a record.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; RECORD_BYTES]) -> Self {
        let record = Self::known(bytes);
        // A record with bits that have no meaning is kept as it is.
        record.filter(|record| record.to_bytes() == *bytes).unwrap_or(Self::Unknown(*bytes))
    }

    fn known(bytes: &[u8; RECORD_BYTES]) -> Option<Self> {
        let mut fields = FieldReader::new(bytes);
        let first = fields.array::<8>("first").ok()?;
        let third = fields.u32("third").ok()?;
        let last = fields.u32("last").ok()?;
        let [kind, b1, b2, b3, b4, b5, b6, b7] = first;
        let number = u64::from_be_bytes(first);
        Some(match kind {
            0..OPEN => Self::Io { offset: number, length: third.cast_signed(), file: last },
            OPEN => Self::Open { size: number & SIZE_MAX, file: last },
            VECTOR | UNWOUND => Self::Vector {
                unwound: kind == UNWOUND,
                vector: b1,
                elements: u16::from_be_bytes([b2, b3]),
                length: third.cast_signed(),
                file: last,
            },
            APPLICATION => Self::Application(*bytes.last_chunk()?),
            CLOSE => Self::Close {
                read_shift: b1,
                written_shift: b2,
                read: u32::from_be_bytes([b4, b5, b6, b7]),
                written: third,
                file: last,
            },
            DISCONNECT => Self::Disconnect { flags: b1, seconds: third.cast_signed(), user: last },
            WINDOW => Self::Window { server: number & SERVER_ID_MASK, ended: third, begins: last },
            _ => return None,
        })
    }
}

/// Returns the bytes of three numbers.
fn joined(first: u64, third: u32, last: u32) -> [u8; RECORD_BYTES] {
    (u128::from(first) << 64 | u128::from(third) << 32 | u128::from(last)).to_be_bytes()
}

/// Halves a total until it fits. Returns the number of halvings too.
fn shifted(total: u64) -> (u32, u8) {
    let mut shift = 0u8;
    while total >> shift > TOTAL_MAX {
        shift += 1;
    }
    (u32::try_from(total >> shift).unwrap_or(u32::MAX), shift)
}

/// The records of a packet.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct TraceRecords(pub Vec<TraceRecord>);

impl TraceRecords {
    /// Decodes the contents of a packet.
    ///
    /// # Errors
    /// The last record is incomplete.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireError> {
        let (records, rest) = bytes.as_chunks::<RECORD_BYTES>();
        FieldReader::new(rest).finish("trace records")?;
        Ok(Self(records.iter().map(TraceRecord::from_bytes).collect()))
    }
}

impl Encode for TraceRecords {
    fn encode(&self, out: &mut Vec<u8>) {
        self.0.iter().for_each(|record| out.extend_from_slice(&record.to_bytes()));
    }
}

impl<'a> Decode<'a> for TraceRecords {
    fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        Self::decode(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(text: &str) -> [u8; RECORD_BYTES] {
        u128::from_str_radix(&text.replace(' ', ""), 16).unwrap().to_be_bytes()
    }

    #[test]
    fn records_have_the_bytes_of_their_description() {
        for (record, text) in [
            (
                TraceRecord::Window { server: 0x49ab_89d1_1626, ended: 0x6b00_6610, begins: 0x6b00_6614 },
                "e00049ab89d11626 6b006610 6b006614",
            ),
            (
                TraceRecord::Io { offset: 0, length: -5_004_884, file: 2 },
                "0000000000000000 ffb3a1ac 00000002",
            ),
            (TraceRecord::Io { offset: 1 << 40, length: 8, file: 3 }, "0000010000000000 00000008 00000003"),
            (TraceRecord::Open { size: 0x1234, file: 5 }, "8000000000001234 00000000 00000005"),
            (TraceRecord::close(5, 16, 1 << 33), "c000030000000010 40000000 00000005"),
            (TraceRecord::Disconnect { flags: 1, seconds: 7, user: 9 }, "d001000000000000 00000007 00000009"),
            (
                TraceRecord::Vector { unwound: false, vector: 3, elements: 258, length: 99, file: 4 },
                "9003010200000000 00000063 00000004",
            ),
            (
                TraceRecord::Vector { unwound: true, vector: 0, elements: 1, length: 1, file: 4 },
                "9100000100000000 00000001 00000004",
            ),
            (TraceRecord::Application(*b"root.exe\0\0\0\0"), "a0000000 726f6f74 2e657865 00000000"),
        ] {
            assert_eq!(record.to_bytes(), bytes(text), "{record:?}");
            assert_eq!(TraceRecord::from_bytes(&bytes(text)), record);
        }
        let unknown = bytes("ff00000000000000 00000000 00000001");
        assert_eq!(TraceRecord::from_bytes(&unknown), TraceRecord::Unknown(unknown));
    }

    #[test]
    fn totals_are_halved_until_they_have_31_bits() {
        let most = u64::from(i32::MAX.cast_unsigned());
        assert_eq!(shifted(most), (i32::MAX.cast_unsigned(), 0));
        assert_eq!(shifted(most + 1), (1 << 30, 1));
        assert_eq!(shifted(u64::MAX), (i32::MAX.cast_unsigned(), 33));
        // Neither a size nor an offset reaches the bits of the kind.
        let record = TraceRecord::Open { size: u64::MAX, file: 1 }.to_bytes();
        assert_eq!(record, bytes("80ffffffffffffff 00000000 00000001"));
        let record = TraceRecord::Io { offset: u64::MAX, length: 1, file: 1 }.to_bytes();
        assert_eq!(record, bytes("7fffffffffffffff 00000001 00000001"));
    }

    #[test]
    fn an_incomplete_record_is_an_error() {
        assert!(TraceRecords::decode(&[0; 17]).is_err());
        assert_eq!(TraceRecords::decode(&[0; 32]).map(|records| records.0.len()), Ok(2));
    }
}
