//! The body of the `kXR_ok` to `kXR_open`.
//!
//! | bytes | field   | type   | meaning                                                    |
//! |-------|---------|--------|------------------------------------------------------------|
//! | 0..4  | fhandle | opaque | the open file                                              |
//! | 4..8  | cpsize  | i32    | only with compress or retstat: compression block, always 0 |
//! | 8..12 | cptype  | opaque | only with compress or retstat: algorithm, always zeros     |
//! | 12..  | stat    | text   | only with retstat: stat text, NUL terminated               |
//!
//! The fields may be absent from the end, so the length of the body determines its form.
//!
//! Source: xroot protocol 5.2.0, section 2.12. Recorded: `raw_open_read`, `api_posc`.

use super::stat_text::StatText;
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::header::FileHandle;

/// The reply to a successful open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenReply<'a> {
    /// Handle of the open file.
    pub fhandle: FileHandle,
    /// The fields behind the handle.
    pub detail: OpenDetail<'a>,
}

/// The fields of the reply to an open behind the handle.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenDetail<'a> {
    /// No fields were requested.
    None,
    /// Compression information was requested; files are never compressed.
    Compression,
    /// The status was requested.
    Stat(StatText<'a>),
}

impl Encode for OpenReply<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = FieldWriter::new(out);
        writer.bytes(&self.fhandle.0);
        if self.detail != OpenDetail::None {
            writer.u64(0);
        }
        if let OpenDetail::Stat(stat) = &self.detail {
            stat.encode(out);
            out.push(0);
        }
    }
}

impl<'a> Decode<'a> for OpenReply<'a> {
    /// # Errors
    /// [`WireError::Short`] for a truncated body, [`WireError::BadText`] for an invalid stat text.
    fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(body);
        let fhandle = FileHandle(reader.array("fhandle")?);
        if reader.is_empty() {
            return Ok(Self { fhandle, detail: OpenDetail::None });
        }
        reader.array::<8>("compression")?;
        if reader.is_empty() {
            return Ok(Self { fhandle, detail: OpenDetail::Compression });
        }
        let stat = StatText::decode(reader.take_rest())?;
        Ok(Self { fhandle, detail: OpenDetail::Stat(stat) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_three_forms_differ_in_length() {
        let stat = StatText::decode(b"1 2 48 4 5 6 0644 o g").unwrap();
        let details =
            [(OpenDetail::None, 4), (OpenDetail::Compression, 12), (OpenDetail::Stat(stat), 12 + 22)];
        for (detail, bytes) in details {
            let reply = OpenReply { fhandle: FileHandle([0, 0, 0, 9]), detail };
            let out = reply.encoded();
            assert_eq!(out.len(), bytes);
            assert_eq!(OpenReply::decode(&out), Ok(reply));
        }
        assert!(OpenReply::decode(&[0; 11]).is_err());
    }
}
