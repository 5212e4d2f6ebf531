//! `kXR_status` (4007): the answer to `kXR_pgread` and `kXR_pgwrite`, with its own checksum.
//!
//! | bytes  | field    | type   | meaning                                                     |
//! |--------|----------|--------|-------------------------------------------------------------|
//! | 0..4   | crc32c   | u32    | of the bytes from 4 to the end of the info, not of the data |
//! | 4..6   | streamID | opaque | that of the request, as in the header                       |
//! | 6      | request  | u8     | requestid - 3000                                            |
//! | 7      | resptype | u8     | [`ResponseType`]                                            |
//! | 8..12  | reserved |        |                                                             |
//! | 12..16 | dlen     | i32    | data bytes behind this body, **not in the header's dlen**   |
//! | 16..24 | offset   | i64    | pgread: of this data in the file; pgwrite: of the request   |
//!
//! The header's dlen is therefore 24. The data of a pgread are pages, each behind its checksum;
//! that of a pgwrite is the list of bad pages ([`bad_pages`](super::bad_pages)) or empty.
//!
//! Source: xroot protocol 5.2.0, section 3.8. Recorded: `raw_open_read`, `raw_write`,
//! `api_pgwrite_bad`.

use super::bad_pages::BadPages;
use crate::codec::{Encode, FixedLayout, with_head};
use crate::crc::crc32c;
use crate::cursor::FieldReader;
use crate::error::WireError;
use crate::xroot::codes::{RequestCode, ResponseType, Status};
use crate::xroot::header::{ResponseHeader, StreamId, wire_length};
use crate::xroot::limits::{RESPONSE_HEADER_BYTES, STATUS_BODY_BYTES, STATUS_PAGE_INFO_BYTES};

/// Size in bytes of the frame of a page request in front of its data: header, status body and
/// offset.
pub const STATUS_FRAME_BYTES: usize = RESPONSE_HEADER_BYTES + STATUS_BODY_BYTES + STATUS_PAGE_INFO_BYTES;

const BODY_BYTES: usize = STATUS_BODY_BYTES + STATUS_PAGE_INFO_BYTES;

/// The part of a `kXR_status` frame in front of its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StatusFrame {
    /// The streamid of the request.
    pub streamid: StreamId,
    /// The answered request: [`RequestCode::PGREAD`] or [`RequestCode::PGWRITE`].
    pub request: RequestCode,
    /// Final or partial: a partial frame is followed by another one.
    pub resptype: ResponseType,
    /// Data bytes behind the frame, not negative.
    pub dlen: i32,
    /// Offset of the data in the file (pgread), or of the request (pgwrite).
    pub offset: i64,
}

impl StatusFrame {
    /// Returns the 32 bytes in front of the data. The caller must append `self.dlen` bytes of data.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; STATUS_FRAME_BYTES] {
        let dlen = BODY_BYTES as i32;
        let header = ResponseHeader { streamid: self.streamid, status: Status::STATUS, dlen }.to_bytes();
        let StreamId([s0, s1]) = self.streamid;
        let [d0, d1, d2, d3] = self.dlen.to_be_bytes();
        let [o0, o1, o2, o3, o4, o5, o6, o7] = self.offset.to_be_bytes();
        let request = self.request.short().unwrap_or(0);
        let covered =
            [s0, s1, request, self.resptype.0, 0, 0, 0, 0, d0, d1, d2, d3, o0, o1, o2, o3, o4, o5, o6, o7];
        let mut bytes = [0; STATUS_FRAME_BYTES];
        let (head, rest) = bytes.split_at_mut(RESPONSE_HEADER_BYTES);
        let (crc, rest) = rest.split_at_mut(4);
        head.copy_from_slice(&header);
        crc.copy_from_slice(&crc32c(&covered).to_be_bytes());
        rest.copy_from_slice(&covered);
        bytes
    }

    /// Decodes the body and verifies its checksum and its streamid. The latter needs the header, so
    /// this is not [`Decode`](crate::codec::Decode).
    ///
    /// # Errors
    /// [`WireError::BadChecksum`]; [`WireError::BadValue`] for a streamid that differs from the
    /// header; [`WireError::BadLength`] for a negative dlen; [`WireError::Short`] for a truncated
    /// body. The length of the data cannot be trusted then, so the connection must be closed.
    pub fn decode(header: &ResponseHeader, body: &[u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        let sent = reader.u32("status crc32c")?;
        let computed = crc32c(reader.rest());
        if sent != computed {
            return Err(WireError::BadChecksum { field: "status crc32c", sent, computed });
        }
        let streamid = StreamId(reader.array("streamID")?);
        if streamid != header.streamid {
            let value = u16::from_be_bytes(streamid.0).into();
            return Err(WireError::BadValue { field: "streamID", value });
        }
        let request = RequestCode(RequestCode::FIRST + u16::from(reader.u8("request")?));
        let resptype = ResponseType(reader.u8("resptype")?);
        reader.array::<4>("reserved")?;
        let dlen = reader.i32("dlen")?;
        if dlen < 0 {
            return Err(WireError::BadLength { field: "dlen", bytes: dlen.into() });
        }
        let offset = reader.i64("offset")?;
        Ok(Self { streamid, request, resptype, dlen, offset })
    }
}

/// Appends the answer to a `kXR_pgwrite` at `offset`: success, or the list of bad pages.
pub fn pgwrite_done(out: &mut Vec<u8>, streamid: StreamId, offset: i64, bad: Option<&BadPages<'_>>) {
    let (request, resptype) = (RequestCode::PGWRITE, ResponseType::FINAL);
    let encode_pages = |out: &mut Vec<u8>| {
        if let Some(bad) = bad {
            bad.encode(out);
        }
    };
    with_head(out, encode_pages, |length| {
        StatusFrame { streamid, request, resptype, dlen: wire_length(length), offset }.to_bytes()
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Recorded: `raw_open_read`, offset 4090, 10 bytes.
    const RECORDED: &[u8] = b"\x00\x14\x0f\xa7\0\0\0\x18\xa8\xd2\x51\xb7\0\x14\x1e\0\0\0\0\0\0\0\0\x12\
        \0\0\0\0\0\0\x0f\xfa";

    fn frame() -> StatusFrame {
        let streamid = StreamId([0, 0x14]);
        let resptype = ResponseType::FINAL;
        StatusFrame { streamid, request: RequestCode::PGREAD, resptype, dlen: 18, offset: 4090 }
    }

    #[test]
    fn the_recorded_frame_encodes_and_decodes() {
        assert_eq!(frame().to_bytes(), RECORDED);
        let (header, body) = RECORDED.split_first_chunk::<8>().unwrap();
        assert_eq!(StatusFrame::decode(&ResponseHeader::from_bytes(header), body), Ok(frame()));
    }

    #[test]
    fn every_flipped_bit_is_detected() {
        let (header, body) = RECORDED.split_first_chunk::<8>().unwrap();
        let header = ResponseHeader::from_bytes(header);
        for bit in 0..body.len() * 8 {
            let mut damaged = body.to_vec();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(StatusFrame::decode(&header, &damaged).is_err(), "bit {bit}");
        }
        let other = ResponseHeader { streamid: StreamId([0, 0x15]), ..header };
        assert_eq!(
            StatusFrame::decode(&other, body),
            Err(WireError::BadValue { field: "streamID", value: 0x14 })
        );
    }
}
