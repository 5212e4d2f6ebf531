//! A bounds-checked reader of big-endian fields, and a writer that appends them to a buffer.
//!
//! All decoders use the reader, so that no decoder needs slice indexing, which could panic on input
//! of a peer.

use crate::error::WireError;

/// A reader of fields from the front of a byte slice.
#[derive(Clone, Copy, Debug)]
pub struct FieldReader<'a> {
    rest: &'a [u8],
}

impl<'a> FieldReader<'a> {
    /// Creates a reader at the start of `bytes`.
    #[must_use]
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the unread bytes.
    #[must_use]
    pub const fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// Returns the number of unread bytes.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.rest.len()
    }

    /// Reports whether all bytes have been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    /// Reads the next `N` bytes.
    ///
    /// # Errors
    /// [`WireError::Short`] with the name of the incomplete field.
    pub fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let have = self.rest.len();
        let (head, rest) =
            self.rest.split_first_chunk::<N>().ok_or(WireError::Short { field, need: N, have })?;
        self.rest = rest;
        Ok(*head)
    }

    /// Reads the next `count` bytes.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn bytes(&mut self, count: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let have = self.rest.len();
        let (head, rest) =
            self.rest.split_at_checked(count).ok_or(WireError::Short { field, need: count, have })?;
        self.rest = rest;
        Ok(head)
    }

    /// Reads all remaining bytes.
    pub fn take_rest(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Reads the bytes before the next NUL and consumes the NUL.
    ///
    /// # Errors
    /// [`WireError::Unterminated`] without a NUL.
    pub fn until_nul(&mut self, field: &'static str) -> Result<&'a [u8], WireError> {
        let end = self.rest.iter().position(|&b| b == 0).ok_or(WireError::Unterminated { field })?;
        let text = self.bytes(end, field)?;
        self.array::<1>(field)?;
        Ok(text)
    }

    /// Reads the next byte.
    ///
    /// # Errors
    /// [`WireError::Short`] if no byte is left.
    pub fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array(field).map(u8::from_be_bytes)
    }

    /// Reads the next two bytes as a big-endian integer.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn u16(&mut self, field: &'static str) -> Result<u16, WireError> {
        self.array(field).map(u16::from_be_bytes)
    }

    /// Reads the next two bytes as a big-endian signed integer.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn i16(&mut self, field: &'static str) -> Result<i16, WireError> {
        self.array(field).map(i16::from_be_bytes)
    }

    /// Reads the next four bytes as a big-endian integer.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_be_bytes)
    }

    /// Reads the next four bytes as a big-endian signed integer.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_be_bytes)
    }

    /// Reads the next eight bytes as a big-endian integer.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn u64(&mut self, field: &'static str) -> Result<u64, WireError> {
        self.array(field).map(u64::from_be_bytes)
    }

    /// Reads the next eight bytes as a big-endian signed integer.
    ///
    /// # Errors
    /// [`WireError::Short`] if fewer bytes are left.
    pub fn i64(&mut self, field: &'static str) -> Result<i64, WireError> {
        self.array(field).map(i64::from_be_bytes)
    }

    /// Ends a message and refuses unread bytes, because ignoring them could hide an error of the
    /// peer.
    ///
    /// # Errors
    /// [`WireError::Trailing`] if bytes are left.
    pub const fn finish(self, message: &'static str) -> Result<(), WireError> {
        if self.rest.is_empty() {
            Ok(())
        } else {
            Err(WireError::Trailing { message, bytes: self.rest.len() })
        }
    }
}

/// A writer that appends fields to a buffer, which the caller keeps and reuses. Integers are
/// big-endian.
#[derive(Debug)]
pub struct FieldWriter<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> FieldWriter<'a> {
    /// Creates a writer that appends to `out`.
    #[must_use]
    pub const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Appends bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.out.extend_from_slice(bytes);
        self
    }

    /// Appends one byte.
    pub fn u8(&mut self, value: u8) -> &mut Self {
        self.out.push(value);
        self
    }

    /// Appends two bytes.
    pub fn u16(&mut self, value: u16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends two bytes, signed.
    pub fn i16(&mut self, value: i16) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends four bytes.
    pub fn u32(&mut self, value: u32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends four bytes, signed.
    pub fn i32(&mut self, value: i32) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends eight bytes.
    pub fn u64(&mut self, value: u64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }

    /// Appends eight bytes, signed.
    pub fn i64(&mut self, value: i64) -> &mut Self {
        self.bytes(&value.to_be_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_incomplete_field_is_named_and_not_consumed() {
        let mut reader = FieldReader::new(&[1, 2, 3]);
        assert_eq!(reader.u16("port"), Ok(0x0102));
        assert_eq!(reader.u32("offset"), Err(WireError::Short { field: "offset", need: 4, have: 1 }));
        assert_eq!(reader.rest(), &[3]);
        assert_eq!(reader.finish("test"), Err(WireError::Trailing { message: "test", bytes: 1 }));
    }

    #[test]
    fn text_ends_at_the_first_nul() {
        let mut reader = FieldReader::new(b"ab\0\0c");
        assert_eq!(reader.until_nul("name"), Ok(&b"ab"[..]));
        assert_eq!(reader.until_nul("name"), Ok(&b""[..]));
        assert_eq!(reader.until_nul("name"), Err(WireError::Unterminated { field: "name" }));
        assert_eq!(reader.rest(), b"c");
    }

    #[test]
    fn written_fields_read_back() {
        let mut out = Vec::new();
        FieldWriter::new(&mut out).u8(1).u16(2).i16(-3).u32(4).i32(-5).u64(6).i64(-7).bytes(b"end");
        let mut reader = FieldReader::new(&out);
        assert_eq!(reader.u8("a"), Ok(1));
        assert_eq!(reader.u16("b"), Ok(2));
        assert_eq!(reader.i16("c"), Ok(-3));
        assert_eq!(reader.u32("d"), Ok(4));
        assert_eq!(reader.i32("e"), Ok(-5));
        assert_eq!(reader.u64("f"), Ok(6));
        assert_eq!(reader.i64("g"), Ok(-7));
        assert_eq!(reader.take_rest(), b"end");
        assert!(reader.is_empty());
    }
}
