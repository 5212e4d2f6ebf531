//! Packing of arguments, whose first byte determines their form.
//!
//! | first byte       | form                                                     | bytes      |
//! |------------------|----------------------------------------------------------|------------|
//! | 0x00..=0x7f      | text: u16 length (with the text's NUL), the bytes        | 2 + length |
//! | 0x80, 0xa0, 0xc0 | u16, u32, u64                                            | 3, 5, 9    |
//! | 0x9n, 0xbn, 0xdn | u16, u32, u64 inline: nibble n, then the remaining bytes | 2, 4, 8    |
//!
//! An absent text has length 0; an empty text has length 1, its NUL. The payload may end before an
//! optional argument, and bytes behind the last argument are ignored, so that later versions can
//! append arguments. XRootD uses inline numbers only in `load` and `avail`.
//!
//! Source: cms protocol version 3, section 1.2.

use super::error::EncodeError;
use super::header::{Header, StreamId};
use super::limits::{HEADER_BYTES, TEXT_BYTES_MAX};
use crate::cms::codes::Code;
use crate::codec::{Encode, FixedLayout};
use crate::cursor::FieldReader;
use crate::error::WireError;

const U16: u8 = 0x80;
const U32: u8 = 0xa0;
const U64: u8 = 0xc0;
/// Added to the first byte of an inline number; below it the maximum of an inline u32.
const INLINE: u8 = 0x10;
const INLINE_U32_MAX: u32 = (1 << 28) - 1;

/// A reader of arguments from the front of a payload.
#[derive(Clone, Copy, Debug)]
pub struct Unpacker<'a> {
    rest: FieldReader<'a>,
    is_raw: bool,
}

impl<'a> Unpacker<'a> {
    /// Creates a reader at the start of a packed `payload`.
    #[must_use]
    pub const fn new(payload: &'a [u8]) -> Self {
        Self { rest: FieldReader::new(payload), is_raw: false }
    }

    /// Creates a reader of a `payload` that is a raw path if `is_raw` is set.
    pub(super) const fn with_raw(payload: &'a [u8], is_raw: bool) -> Self {
        Self { rest: FieldReader::new(payload), is_raw }
    }

    /// Reads the path of a message without other arguments: raw with its NUL, or packed.
    pub(super) fn path(&mut self) -> Result<&'a [u8], WireError> {
        if self.is_raw { Ok(until_nul(self.take_rest())) } else { self.text("path") }
    }

    /// Reads all remaining bytes.
    pub(super) fn take_rest(&mut self) -> &'a [u8] {
        self.rest.take_rest()
    }

    /// Reports whether no bytes are left.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads a required text, which may be empty. It ends at its first NUL, or with the argument if
    /// it has no NUL.
    ///
    /// # Errors
    /// [`WireError::Short`] if the payload ends, [`WireError::BadLength`] if the text is absent,
    /// [`WireError::BadValue`] if the argument is a number.
    pub fn text(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        if self.rest.is_empty() {
            return Err(WireError::Short { field, need: 1, have: 0 });
        }
        self.optional(field)?.ok_or(WireError::BadLength { field, bytes: 0 })
    }

    /// Reads a text that may be absent. Returns `None` also at the end of the payload.
    ///
    /// # Errors
    /// [`WireError::Short`] if the payload ends within it, [`WireError::BadValue`] if it is a
    /// number.
    pub fn optional(&mut self, field: &'static str) -> Result<Option<&'a [u8]>, WireError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let bytes = self.binary(field)?;
        Ok((!bytes.is_empty()).then(|| until_nul(bytes)))
    }

    /// Reads bytes with a length, without interpreting them.
    ///
    /// # Errors
    /// [`WireError::Short`] if the payload ends within them, [`WireError::BadValue`] if the
    /// argument is a number.
    pub fn binary(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let mut rest = self.rest;
        let bytes = rest.u16(field)?;
        let [tag, _] = bytes.to_be_bytes();
        if tag >= U16 {
            return Err(WireError::BadValue { field, value: tag.into() });
        }
        let bytes = rest.bytes(bytes.into(), field)?;
        self.rest = rest;
        Ok(bytes)
    }

    /// Reads a number of 16 bits, or an inline number of 12 bits.
    ///
    /// # Errors
    /// [`WireError::Short`] if the payload ends, [`WireError::BadValue`] for any other kind of
    /// argument.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        match self.number::<1, 2>(U16, field)? {
            Number::Long(bytes) => Ok(u16::from_be_bytes(bytes)),
            Number::Inline(high, [low]) => Ok(u16::from_be_bytes([high, low])),
        }
    }

    /// Reads a number of 32 bits, or an inline number of 28 bits.
    ///
    /// # Errors
    /// [`WireError::Short`] if the payload ends, [`WireError::BadValue`] for any other kind of
    /// argument.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        match self.number::<3, 4>(U32, field)? {
            Number::Long(bytes) => Ok(u32::from_be_bytes(bytes)),
            Number::Inline(a, [b, c, d]) => Ok(u32::from_be_bytes([a, b, c, d])),
        }
    }

    /// Reads a number of 64 bits, or an inline number of 60 bits. Only extensions of Scalla use it.
    ///
    /// # Errors
    /// [`WireError::Short`] if the payload ends, [`WireError::BadValue`] for any other kind of
    /// argument.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        match self.number::<7, 8>(U64, field)? {
            Number::Long(bytes) => Ok(u64::from_be_bytes(bytes)),
            Number::Inline(a, [b, c, d, e, f, g, h]) => Ok(u64::from_be_bytes([a, b, c, d, e, f, g, h])),
        }
    }

    fn number<const INLINE_BYTES: usize, const BYTES: usize>(
        &mut self,
        long: u8,
        field: &'static str,
    ) -> Result<Number<INLINE_BYTES, BYTES>, WireError> {
        let mut rest = self.rest;
        let tag = rest.u8(field)?;
        let number = if tag == long {
            Number::Long(rest.array(field)?)
        } else if tag & 0xf0 == long + INLINE {
            Number::Inline(tag & 0x0f, rest.array(field)?)
        } else {
            return Err(WireError::BadValue { field, value: tag.into() });
        };
        self.rest = rest;
        Ok(number)
    }
}

enum Number<const INLINE_BYTES: usize, const BYTES: usize> {
    Long([u8; BYTES]),
    Inline(u8, [u8; INLINE_BYTES]),
}

/// Returns the part of `bytes` before its first NUL, or all of it without a NUL.
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or_default()
}

/// A writer that appends arguments to the payload of a frame.
#[derive(Debug)]
pub(super) struct Packer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Packer<'a> {
    /// Creates a writer that appends to `out`.
    pub(super) const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends a text with its NUL.
    pub(super) fn text(&mut self, field: &'static str, text: &[u8]) -> Result<(), EncodeError> {
        self.long_text(field, text, TEXT_BYTES_MAX)
    }

    /// Appends a text with a maximum of `limit` bytes including its NUL.
    pub(super) fn long_text(
        &mut self,
        field: &'static str,
        text: &[u8],
        limit: usize,
    ) -> Result<(), EncodeError> {
        let bytes = checked_text(field, text, limit)?;
        // All limits are below 32767, the maximum of the length field.
        let length = u16::try_from(bytes).map_err(|_| EncodeError::TooLong { field, limit, bytes })?;
        self.bytes(&length.to_be_bytes());
        self.bytes(text);
        self.bytes(&[0]);
        Ok(())
    }

    /// Appends a text that must not be empty.
    pub(super) fn filled(&mut self, field: &'static str, text: &[u8]) -> Result<(), EncodeError> {
        if text.is_empty() {
            return Err(EncodeError::Missing { field });
        }
        self.text(field, text)
    }

    /// Appends a text that may be absent.
    pub(super) fn optional(&mut self, field: &'static str, text: Option<&[u8]>) -> Result<(), EncodeError> {
        match text {
            Some(text) => self.text(field, text),
            None => {
                self.bytes(&[0, 0]);
                Ok(())
            }
        }
    }

    /// Appends bytes with a length.
    pub(super) fn binary<const BYTES: usize>(&mut self, bytes: &[u8; BYTES]) {
        const { assert!(BYTES < 128) };
        let [.., length] = BYTES.to_be_bytes();
        self.bytes(&[0, length]);
        self.bytes(bytes);
    }

    pub(super) fn u16(&mut self, value: u16) {
        self.bytes(&[U16]);
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u32(&mut self, value: u32) {
        self.bytes(&[U32]);
        self.bytes(&value.to_be_bytes());
    }

    pub(super) fn u64(&mut self, value: u64) {
        self.bytes(&[U64]);
        self.bytes(&value.to_be_bytes());
    }

    /// Appends a number, inline if it fits, as XRootD does in `load` and `avail`.
    pub(super) fn u32_inline(&mut self, value: u32) {
        if value > INLINE_U32_MAX {
            return self.u32(value);
        }
        let [a, b, c, d] = value.to_be_bytes();
        self.bytes(&[U32 + INLINE + a, b, c, d]);
    }

    /// Appends an unpacked path with its NUL, which is the whole payload.
    pub(super) fn raw_path(&mut self, path: &[u8]) -> Result<(), EncodeError> {
        if path.is_empty() {
            return Err(EncodeError::Missing { field: "path" });
        }
        checked_text("path", path, TEXT_BYTES_MAX)?;
        self.bytes(path);
        self.bytes(&[0]);
        Ok(())
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }
}

/// Returns the length in bytes of `text` with its NUL, if the text can be sent.
fn checked_text(field: &'static str, text: &[u8], limit: usize) -> Result<usize, EncodeError> {
    let bytes = text.len().saturating_add(1);
    if bytes > limit {
        return Err(EncodeError::TooLong { field, limit, bytes });
    }
    if text.contains(&0) {
        return Err(EncodeError::Malformed { field });
    }
    Ok(bytes)
}

/// The arguments of a message, behind a header with a modifier.
///
/// Unlike [`Encode`] it can fail, because a text can be too long or malformed. The caller must then
/// choose another answer, and no byte of the frame may stay in the buffer.
pub(super) trait Arguments<'a>: Sized {
    /// Reads the arguments. `modifier` has no raw bit.
    fn unpack(modifier: u8, arguments: &mut Unpacker<'a>) -> Result<Self, WireError>;

    /// Appends the arguments.
    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError>;
}

/// The parts of a frame other than its payload.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub(super) streamid: StreamId,
    pub(super) code: Code,
    pub(super) modifier: u8,
    /// Maximum payload in bytes.
    pub(super) limit: usize,
}

/// Appends a frame whose payload `fill` writes. Appends no bytes if `fill` fails or the payload is
/// too long.
pub(super) fn frame(
    out: &mut Vec<u8>,
    envelope: Envelope,
    fill: impl FnOnce(&mut Packer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let start = out.len();
    let framed = append_frame(out, envelope, fill);
    if framed.is_err() {
        out.truncate(start);
    }
    framed
}

fn append_frame(
    out: &mut Vec<u8>,
    envelope: Envelope,
    fill: impl FnOnce(&mut Packer<'_>) -> Result<(), EncodeError>,
) -> Result<(), EncodeError> {
    let Envelope { streamid, code, modifier, limit } = envelope;
    let mut header = Header { streamid, code, modifier, datalen: 0 };
    let start = out.len();
    header.encode(out);
    let payload_start = out.len();
    fill(&mut Packer::new(out))?;
    let bytes = out.len().saturating_sub(payload_start);
    let too_long = EncodeError::TooLong { field: "payload", limit, bytes };
    if bytes > limit {
        return Err(too_long);
    }
    header.datalen = u16::try_from(bytes).map_err(|_| too_long)?;
    if let Some(place) = out.get_mut(start..).and_then(<[u8]>::first_chunk_mut::<HEADER_BYTES>) {
        *place = header.to_bytes();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cms::limits::PAYLOAD_BYTES_MAX;

    fn packed(fill: impl FnOnce(&mut Packer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        fill(&mut Packer::new(&mut out));
        out
    }

    #[test]
    fn numbers_match_the_recording() {
        assert_eq!(packed(|p| p.u32_inline(74421)), [0xb0, 0x01, 0x22, 0xb5]);
        assert_eq!(packed(|p| p.u32(0x8000_0100)), [0xa0, 0x80, 0, 1, 0]);
        assert_eq!(packed(|p| p.u32_inline(0x8000_0100)), [0xa0, 0x80, 0, 1, 0]);
        assert_eq!(packed(|p| p.u32_inline((1 << 28) - 1)), [0xbf, 0xff, 0xff, 0xff]);
        assert_eq!(packed(|p| p.u16(22021)), [0x80, 0x56, 5]);
        assert_eq!(Unpacker::new(&[0xb0, 0x01, 0x22, 0xb5]).u32("n"), Ok(74421));
        assert_eq!(Unpacker::new(&[0x9f, 0x01]).u16("n"), Ok(0xf01));
        assert_eq!(Unpacker::new(&[0xd1, 0, 0, 0, 0, 0, 0, 2]).u64("n"), Ok(0x0100_0000_0000_0002));
        assert_eq!(Unpacker::new(&[0xc0, 1, 0, 0, 0, 0, 0, 0, 2]).u64("n"), Ok(0x0100_0000_0000_0002));
    }

    #[test]
    fn a_number_of_another_size_is_refused_and_nothing_is_consumed() {
        let mut unpacker = Unpacker::new(&[0x80, 0, 7, 0x9a, 0xbc]);
        assert_eq!(unpacker.u32("n"), Err(WireError::BadValue { field: "n", value: 0x80 }));
        assert_eq!(unpacker.text("n"), Err(WireError::BadValue { field: "n", value: 0x80 }));
        assert_eq!(unpacker.u16("n"), Ok(7));
        assert_eq!(unpacker.u32("n"), Err(WireError::BadValue { field: "n", value: 0x9a }));
        assert_eq!(unpacker.u16("n"), Ok(0xabc));
        for reserved in [0x81, 0x8f, 0xa1, 0xc1, 0xe0, 0xff] {
            let bytes = [reserved; 9];
            assert!(Unpacker::new(&bytes).u16("n").is_err());
            assert!(Unpacker::new(&bytes).u32("n").is_err());
            assert!(Unpacker::new(&bytes).u64("n").is_err());
            assert!(Unpacker::new(&bytes).binary("n").is_err());
        }
    }

    #[test]
    fn absent_and_empty_texts_differ() {
        let mut unpacker = Unpacker::new(b"\0\x01\0\0\0\0\x04/f1\0\0\x02ab");
        assert_eq!(unpacker.text("ident"), Ok(&b""[..]));
        assert_eq!(unpacker.optional("opaque"), Ok(None));
        assert_eq!(unpacker.text("path"), Ok(&b"/f1"[..]));
        // A text without a NUL is accepted.
        assert_eq!(unpacker.optional("x"), Ok(Some(&b"ab"[..])));
        assert_eq!(unpacker.optional("x"), Ok(None));
        assert_eq!(unpacker.text("x"), Err(WireError::Short { field: "x", need: 1, have: 0 }));
        let absent = Err(WireError::BadLength { field: "path", bytes: 0 });
        assert_eq!(Unpacker::new(b"\0\0\0\x01\0").text("path"), absent);
        assert_eq!(Unpacker::new(b"\0\0").text("path"), absent);
    }

    #[test]
    fn a_failed_frame_appends_no_bytes() {
        let envelope = |limit| Envelope { streamid: StreamId::NONE, code: Code::STATE, modifier: 0, limit };
        let mut out = b"before".to_vec();
        let long = [b'a'; 2047];
        assert_eq!(
            frame(&mut out, envelope(PAYLOAD_BYTES_MAX), |p| p.text("path", &long)),
            Err(EncodeError::TooLong { field: "path", limit: 2047, bytes: 2048 })
        );
        assert_eq!(
            frame(&mut out, envelope(PAYLOAD_BYTES_MAX), |p| p.text("path", b"/a\0b")),
            Err(EncodeError::Malformed { field: "path" })
        );
        assert_eq!(
            frame(&mut out, envelope(4), |p| p.text("path", b"/f1")),
            Err(EncodeError::TooLong { field: "payload", limit: 4, bytes: 6 })
        );
        assert_eq!(out, b"before");
        assert_eq!(frame(&mut out, envelope(4), |p| p.raw_path(b"/f1")), Ok(()));
        assert_eq!(out, b"before\0\0\0\0\x14\0\0\x04/f1\0");
    }
}
