//! `kXR_fattr` (3020): deletes, gets, lists and sets extended attributes.
//!
//! | bytes  | field     | type   | meaning                                           |
//! |--------|-----------|--------|---------------------------------------------------|
//! | 0..2   | streamid  | opaque | echoed in every reply                             |
//! | 2..4   | requestid | u16    | 3020                                              |
//! | 4..8   | fhandle   | opaque | open file if the target is empty                  |
//! | 8      | subcode   | u8     | [`FattrSubcode`]                                  |
//! | 9      | numattr   | u8     | number of attributes, 0 to list, at most 16       |
//! | 10     | options   | u8     | [`FattrOptions`]                                  |
//! | 11..20 | reserved  |        |                                                   |
//! | 20..24 | dlen      | i32    | length of the following bytes, at least 1         |
//! | 24..   | target    | text   | `path[?cgi]` NUL; a single NUL selects the handle |
//! |        | nvec      | list   | numattr × (`rc` u16 = 0, name NUL)                |
//! |        | vvec      | list   | set: numattr × (`vlen` i32, value)                |
//!
//! Replies: see [`reply::fattr`](crate::xroot::reply::fattr). Errors: 3000, 3001 no payload, 3026
//! malformed vectors, 3013, 3004, 3006. The vectors are validated separately from the header
//! ([`Fattr::arguments`]), because their error is specific.
//!
//! Source: xroot protocol 5.2.0, section 2.8. Recorded: `api_fattr_path`, `api_fattr_handle`.

use super::body::{RequestBody, RequestHeader, WireError};
use crate::cursor::{FieldReader, FieldWriter};
use crate::xroot::codes::FattrSubcode;
use crate::xroot::flags::FattrOptions;
use crate::xroot::header::{FileHandle, wire_length};

/// Reads or changes extended attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fattr<'a> {
    /// The open file, if the target is empty.
    pub fhandle: FileHandle,
    /// The operation.
    pub subcode: FattrSubcode,
    /// Number of attributes as sent.
    pub numattr: u8,
    /// Options of the operation.
    pub options: FattrOptions,
    /// Target and vectors as sent; see [`Fattr::arguments`].
    pub payload: &'a [u8],
}

impl<'a> RequestBody<'a> for Fattr<'a> {
    fn decode(header: &RequestHeader, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(Self {
            fhandle: header.fhandle::<4>(),
            subcode: FattrSubcode(header.u8::<8>()),
            numattr: header.u8::<9>(),
            options: FattrOptions(header.u8::<10>()),
            payload,
        })
    }

    fn encode(&self, header: RequestHeader, out: &mut Vec<u8>) {
        header
            .with::<4, 4>(self.fhandle.0)
            .with::<8, 1>([self.subcode.0])
            .with::<9, 1>([self.numattr])
            .with::<10, 1>([self.options.0])
            .finish(self.payload, out);
    }
}

impl<'a> Fattr<'a> {
    /// Parses the payload. Every name and value is validated, so that later iteration cannot fail.
    ///
    /// # Errors
    /// [`WireError::Unterminated`] for a target without NUL; [`WireError::BadItem`] for the first
    /// name or value that is truncated or has a negative length; [`WireError::Trailing`] for bytes
    /// behind the last one.
    pub fn arguments(&self) -> Result<FattrArguments<'a>, WireError> {
        let mut reader = FieldReader::new(self.payload);
        let target = reader.until_nul("fattr target")?;
        let names = NameVector { rest: reader.rest() };
        for index in 0..usize::from(self.numattr) {
            let item = reader.array::<2>("rc").and_then(|_| reader.until_nul("fattr name"));
            item.map_err(|_| WireError::BadItem { field: "fattr name", index })?;
        }
        let names = NameVector { rest: before(names.rest, reader.rest()) };
        let values = ValueVector { rest: reader.rest() };
        if self.subcode == FattrSubcode::SET {
            for index in 0..usize::from(self.numattr) {
                let bad = WireError::BadItem { field: "fattr value", index };
                take_value(&mut reader).ok_or(bad)?;
            }
        }
        let values = ValueVector { rest: before(values.rest, reader.rest()) };
        reader.finish("kXR_fattr")?;
        Ok(FattrArguments { target, names, values })
    }
}

/// Returns the part of `whole` before its suffix `rest`.
fn before<'a>(whole: &'a [u8], rest: &[u8]) -> &'a [u8] {
    whole.get(..whole.len() - rest.len()).unwrap_or_default()
}

fn take_value<'a>(reader: &mut FieldReader<'a>) -> Option<&'a [u8]> {
    let length = usize::try_from(reader.i32("vlen").ok()?).ok()?;
    reader.bytes(length, "value").ok()
}

/// The parsed payload of a `kXR_fattr`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FattrArguments<'a> {
    /// `path[?cgi]`; empty for the open file.
    pub target: &'a [u8],
    /// The names.
    pub names: NameVector<'a>,
    /// The values: one for each name for set, otherwise none.
    pub values: ValueVector<'a>,
}

/// An iterator over the names of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NameVector<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for NameVector<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut reader = FieldReader::new(self.rest);
        reader.array::<2>("rc").ok()?;
        let name = reader.until_nul("fattr name").ok()?;
        self.rest = reader.rest();
        Some(name)
    }
}

/// An iterator over the values of attributes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ValueVector<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for ValueVector<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut reader = FieldReader::new(self.rest);
        let value = take_value(&mut reader)?;
        self.rest = reader.rest();
        Some(value)
    }
}

/// Appends the payload of a client's request: target, names and values (`values` only for set).
pub fn encode_arguments(out: &mut Vec<u8>, target: &[u8], names: &[&[u8]], values: &[&[u8]]) {
    let mut writer = FieldWriter::new(out);
    writer.bytes(target).u8(0);
    for name in names {
        writer.u16(0).bytes(name).u8(0);
    }
    for value in values {
        writer.i32(wire_length(value.len())).bytes(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(subcode: FattrSubcode, numattr: u8, payload: &[u8]) -> Fattr<'_> {
        Fattr { fhandle: FileHandle::default(), subcode, numattr, options: FattrOptions::NONE, payload }
    }

    #[test]
    fn names_and_values_encode_and_parse() {
        let mut payload = Vec::new();
        encode_arguments(&mut payload, b"/data/f", &[b"key1", b""], &[b"", b"\0\0value"]);
        let arguments = request(FattrSubcode::SET, 2, &payload).arguments().unwrap();
        assert_eq!(arguments.target, b"/data/f");
        assert_eq!(arguments.names.collect::<Vec<_>>(), [&b"key1"[..], b""]);
        assert_eq!(arguments.values.collect::<Vec<_>>(), [&b""[..], b"\0\0value"]);
    }

    #[test]
    fn the_error_names_the_malformed_element() {
        let bad = |subcode, numattr, payload| request(subcode, numattr, payload).arguments().unwrap_err();
        assert_eq!(bad(FattrSubcode::GET, 0, b""), WireError::Unterminated { field: "fattr target" });
        let names = b"/f\0\0\0a\0\0\0b";
        assert_eq!(bad(FattrSubcode::GET, 2, names), WireError::BadItem { field: "fattr name", index: 1 });
        assert_eq!(bad(FattrSubcode::GET, 1, names), WireError::Trailing { message: "kXR_fattr", bytes: 3 });
        let negative = b"\0\0\0a\0\xff\xff\xff\xff";
        assert_eq!(
            bad(FattrSubcode::SET, 1, negative),
            WireError::BadItem { field: "fattr value", index: 0 }
        );
    }
}
