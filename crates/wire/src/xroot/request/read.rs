//! `kXR_read` (3013): reads `rlen` bytes at `offset` from an open file.
//!
//! | bytes  | field     | type   | meaning                                             |
//! |--------|-----------|--------|-----------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                               |
//! | 2..4   | requestid | u16    | 3013                                                |
//! | 4..8   | fhandle   | opaque | from the reply to `kXR_open`                        |
//! | 8..16  | offset    | i64    | bytes from the start of the file, not negative      |
//! | 16..20 | rlen      | i32    | number of bytes, not negative; 0 reads no bytes     |
//! | 20..24 | dlen      | i32    | 0, or 8 + 16·n for a path id and n pre-reads        |
//! | 24     | pathid    | u8     | connection for the data; 0: this one                |
//! | 25..32 | reserved  |        |                                                     |
//! | 32..   | pre-reads | list   | ranges that will be read soon; hints without answer |
//!
//! A list of pre-reads with an incomplete element is answered with 3000 "Invalid length for read
//! ahead list".
//!
//! Replies: any number of `kXR_oksofar`, then `kXR_ok`, because large reads are split into frames;
//! or `kXR_error` (3004 not open, 3000 negative length or offset, 3007 I/O).
//!
//! Source: xroot protocol 5.2.0, section 2.17. Recorded: `raw_open_read`, `cp_download_read`.

use super::body::{RequestBody, RequestHeader, WireError};
use super::segments::SegmentList;
use crate::xroot::header::FileHandle;
use crate::xroot::limits::READ_ARGUMENT_BYTES;

/// Reads a range of an open file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Read<'a> {
    /// The open file, from the reply to `kXR_open`.
    pub fhandle: FileHandle,
    /// Offset as sent; may be negative.
    pub offset: i64,
    /// Number of bytes to read as sent; may be negative.
    pub rlen: i32,
    /// The argument behind the header. XRootD clients always send it, others may omit it.
    pub argument: Option<ReadArgument<'a>>,
}

/// The optional argument of a read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadArgument<'a> {
    /// Connection for the data; 0 is the control connection.
    pub pathid: u8,
    /// Ranges that will be read soon.
    pub preread: SegmentList<'a>,
}

impl<'a> RequestBody<'a> for Read<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        let preread = SegmentList::new(payload.get(READ_ARGUMENT_BYTES..).unwrap_or_default());
        Ok(Self {
            fhandle: header.fhandle::<4>(),
            offset: header.i64::<8>(),
            rlen: header.i32::<16>(),
            // An argument of less than 8 bytes is accepted as well; it contains only the path id.
            argument: payload.first().map(|pathid| ReadArgument { pathid: *pathid, preread }),
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        let header = header
            .with::<4, 4>(self.fhandle.0)
            .with::<8, 8>(self.offset.to_be_bytes())
            .with::<16, 4>(self.rlen.to_be_bytes());
        header.finish_with(out, |out| {
            if let Some(argument) = self.argument {
                out.extend_from_slice(&[argument.pathid, 0, 0, 0, 0, 0, 0, 0]);
                out.extend_from_slice(argument.preread.bytes());
            }
        });
    }
}

impl<'a> Read<'a> {
    /// Returns the connection for the data; 0 is the control connection.
    #[must_use]
    pub fn pathid(&self) -> u8 {
        self.argument.map_or(0, |argument| argument.pathid)
    }

    /// Returns the ranges that will be read soon.
    #[must_use]
    pub fn preread(&self) -> SegmentList<'a> {
        self.argument.map_or(SegmentList::default(), |argument| argument.preread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xroot::codes::RequestCode;
    use crate::xroot::header::StreamId;

    #[test]
    fn a_short_argument_is_a_path_id() {
        let header = RequestHeader::new(StreamId([1, 0]), RequestCode::READ);
        assert_eq!(Read::decode(&header, &[]).unwrap().argument, None);
        let short = Read::decode(&header, &[7]).unwrap();
        assert_eq!(short.pathid(), 7);
        assert!(short.preread().is_empty());
        let read = Read::decode(&header, &[7; 9]).unwrap();
        assert!(!read.preread().is_whole());
        let mut out = Vec::new();
        read.encode(header, &mut out);
        assert_eq!(out[20..], [0, 0, 0, 9, 7, 0, 0, 0, 0, 0, 0, 0, 7]);
    }
}
