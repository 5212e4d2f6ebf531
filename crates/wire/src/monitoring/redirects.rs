//! Records of the redirect stream `r`.
//!
//! ```text
//! 0  u64  id of the server with 0xf0 in the first byte
//! 8  marks of the time: u32 window as configured, in seconds, less than 2^24; u32 time
//!    redirects: u8 0x80 | operation (0x90 | operation: within the server), u8 units of text,
//!    u16 port, u32 id of the user; then host:path, in units of 8 bytes, padded with NULs
//! ```
//!
//! Source: the description of XRootD's monitoring, and packets of XRootD.

use super::SERVER_ID_MASK;
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::newtypes::codes;

/// Length of the units of a packet in bytes.
pub const UNIT_BYTES: usize = 8;
/// Maximum length of the name of a host in bytes.
pub const HOST_BYTES_MAX: usize = 256;
/// Maximum length of a path in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// The kind of the record is in the first byte of the field.
const WINDOW_MAX: u32 = (1 << 24) - 1;

const SERVER: u64 = 0xf0 << 56;
const REDIRECT: u8 = 0x80;
const LOCAL: u8 = 0x10;
const OPERATION: u8 = 0x0f;

codes! {
    /// The operation for which a client was redirected.
    RedirectOperation(u8) {
        CHMOD = 1 "chmod",
        LOCATE = 2 "locate",
        OPENDIR = 3 "opendir",
        CREATE = 4 "open create",
        OPEN_READ = 5 "open r",
        OPEN_WRITE = 6 "open w",
        MKDIR = 7 "mkdir",
        MV = 8 "mv",
        PREPARE = 9 "prep",
        QUERY = 10 "query",
        RM = 11 "rm",
        RMDIR = 12 "rmdir",
        STAT = 13 "stat",
        TRUNCATE = 14 "trunc",
    }
}

/// A record of the redirect stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedirectRecord<'a> {
    /// A mark of the time.
    Window {
        /// The configured time between two marks in seconds, less than 2^24. It is not the time that has passed.
        window: u32,
        /// The time, in seconds since the epoch.
        time: u32,
    },
    /// A redirect.
    Redirect {
        /// The operation.
        operation: RedirectOperation,
        /// The target is a path of the same server.
        is_local: bool,
        /// Port of the target.
        port: u16,
        /// Id of the user.
        user: u32,
        /// `host:path`, without NULs.
        target: &'a [u8],
    },
}

impl Encode for RedirectRecord<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Window { window, time } => {
                FieldWriter::new(out).u32(window.min(WINDOW_MAX)).u32(time);
            }
            Self::Redirect { operation, is_local, port, user, target } => {
                let most = HOST_BYTES_MAX + 1 + PATH_BYTES_MAX;
                let target = target.get(..most).unwrap_or(target);
                let units = target.len() / UNIT_BYTES + 1;
                let kind = REDIRECT | if is_local { LOCAL } else { 0 } | operation.0 & OPERATION;
                let mut fields = FieldWriter::new(out);
                fields.u8(kind).u8(u8::try_from(units).unwrap_or(u8::MAX)).u16(port).u32(user);
                let padding = [0; UNIT_BYTES];
                fields.bytes(target).bytes(padding.get(target.len() % UNIT_BYTES..).unwrap_or_default());
            }
        }
    }
}

const _: () = assert!((HOST_BYTES_MAX + 1 + PATH_BYTES_MAX) / UNIT_BYTES < u8::MAX as usize);

/// The contents of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedirectRecords<'a> {
    /// Id of the server, 48 bits.
    pub server: u64,
    /// The records.
    pub records: Vec<RedirectRecord<'a>>,
}

impl<'a> Decode<'a> for RedirectRecords<'a> {
    /// Decodes the contents of a packet.
    ///
    /// # Errors
    /// A record is incomplete or of an unknown kind, whose length is not known.
    fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = FieldReader::new(bytes);
        let server = fields.u64("sID")?;
        if server & !SERVER_ID_MASK != SERVER {
            return Err(WireError::BadItem { field: "sID", index: 0 });
        }
        let mut records = Vec::new();
        while !fields.is_empty() {
            let [kind, units, p0, p1] = fields.array("record")?;
            let second = fields.u32("record")?;
            let bad = WireError::BadItem { field: "redirects", index: records.len() };
            records.push(match kind {
                0 => {
                    RedirectRecord::Window { window: u32::from_be_bytes([kind, units, p0, p1]), time: second }
                }
                _ if kind & !(LOCAL | OPERATION) == REDIRECT => {
                    let text = fields.bytes(usize::from(units) * UNIT_BYTES, "text")?;
                    let target = text.split(|&byte| byte == 0).next().unwrap_or_default();
                    RedirectRecord::Redirect {
                        operation: RedirectOperation(kind & OPERATION),
                        is_local: kind & LOCAL != 0,
                        port: u16::from_be_bytes([p0, p1]),
                        user: second,
                        target,
                    }
                }
                _ => return Err(bad),
            });
        }
        Ok(Self { server: server & SERVER_ID_MASK, records })
    }
}

impl Encode for RedirectRecords<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        Self::encode_server(self.server, out);
        self.records.iter().for_each(|record| record.encode(out));
    }
}

impl RedirectRecords<'_> {
    /// Appends the id of the server, which is before the records.
    pub fn encode_server(server: u64, out: &mut Vec<u8>) {
        FieldWriter::new(out).u64(SERVER | server & SERVER_ID_MASK);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_recorded_packet_decodes_and_encodes() {
        let bytes = b"\xf0\x00\x49\xab\x89\xd1\x16\x26\x00\x00\x00\x02\x6b\x00\x66\x14\x8d\x03\x5d\xc0\x00\x00\x00\x02\
            127.0.0.1:/data/big\0\0\0\0\0\x00\x00\x00\x02\x6b\x00\x66\x1a";
        let records = RedirectRecords::decode(bytes).unwrap();
        let (window, user) = (2, 2);
        let expected = [
            RedirectRecord::Window { window, time: 0x6b00_6614 },
            RedirectRecord::Redirect {
                operation: RedirectOperation::STAT,
                is_local: false,
                port: 24000,
                user,
                target: b"127.0.0.1:/data/big",
            },
            RedirectRecord::Window { window, time: 0x6b00_661a },
        ];
        assert_eq!((records.server, &records.records[..]), (0x49ab_89d1_1626, &expected[..]));
        assert_eq!(records.encoded(), bytes);
        for end in 0..bytes.len() {
            let part = RedirectRecords::decode(&bytes[..end]);
            assert_eq!(part.is_ok(), [8, 16, 48].contains(&end), "{end}");
        }
    }

    #[test]
    fn a_long_window_does_not_change_the_kind_of_a_mark() {
        let bytes = RedirectRecord::Window { window: u32::MAX, time: 7 }.encoded();
        assert_eq!(bytes, [0, 0xff, 0xff, 0xff, 0, 0, 0, 7]);
    }

    #[test]
    fn long_targets_are_cut() {
        let operation = RedirectOperation::OPEN_READ;
        let target = &[b'x'; 5000];
        let record = RedirectRecord::Redirect { operation, is_local: true, port: 1, user: 1, target };
        let bytes = record.encoded();
        assert_eq!((bytes[0], bytes[1], bytes.len()), (0x95, 161, 8 + 161 * 8));
    }
}
