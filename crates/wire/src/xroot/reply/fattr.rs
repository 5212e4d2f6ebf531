//! The body of the `kXR_ok` to `kXR_fattr`.
//!
//! | subcode  | body                                                                   |
//! |----------|------------------------------------------------------------------------|
//! | set, del | `nerrs` u8, `nattrs` u8, nattrs × (`rc` u16 error code or 0, name NUL) |
//! | get      | as for set, then nattrs × (`vlen` i32, value); no value after an error |
//! | list     | names, each with NUL; with aData: name NUL `vlen` i32 value            |
//!
//! A list has no count, because it may be split into `kXR_oksofar` frames. The subcode of the
//! request selects the layout, so the decoders are functions and not
//! [`Decode`](crate::codec::Decode).
//!
//! Source: xroot protocol 5.2.0, section 2.8. Recorded: `api_fattr_path`, `api_fattr_handle`.

use crate::codec::Encode;
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;
use crate::xroot::codes::ErrorCode;
use crate::xroot::header::wire_length;

/// The result for one attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AttributeResult<'a> {
    /// The error; `None` on success. Codes above 65535 cannot be sent.
    pub error: Option<ErrorCode>,
    /// Name of the attribute.
    pub name: &'a [u8],
    /// Value of the attribute, for get only; empty after an error.
    pub value: &'a [u8],
}

/// One attribute of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedAttribute<'a> {
    /// Name of the attribute.
    pub name: &'a [u8],
    /// Value of the attribute, if values were requested.
    pub value: Option<&'a [u8]>,
}

/// Appends the answer to set and delete: at most 255 results.
pub fn encode_results(out: &mut Vec<u8>, results: &[AttributeResult<'_>]) {
    let errors = results.iter().filter(|result| result.error.is_some()).count();
    let count = |number: usize| u8::try_from(number).unwrap_or(u8::MAX);
    let mut writer = FieldWriter::new(out);
    writer.u8(count(errors)).u8(count(results.len()));
    for result in results {
        let code = result.error.map_or(0, |code| u16::try_from(code.0).unwrap_or(u16::MAX));
        writer.u16(code).bytes(result.name).u8(0);
    }
}

/// Appends the answer to get: at most 255 results.
pub fn encode_values(out: &mut Vec<u8>, results: &[AttributeResult<'_>]) {
    encode_results(out, results);
    let mut writer = FieldWriter::new(out);
    for result in results {
        let value = if result.error.is_some() { &[] } else { result.value };
        writer.i32(wire_length(value.len())).bytes(value);
    }
}

impl Encode for ListedAttribute<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = FieldWriter::new(out);
        writer.bytes(self.name).u8(0);
        if let Some(value) = self.value {
            writer.i32(wire_length(value.len())).bytes(value);
        }
    }
}

/// Decodes the answer to set and delete (`with_values` false) or to get.
///
/// # Errors
/// [`WireError::Short`] and [`WireError::Unterminated`] for a truncated body,
/// [`WireError::BadLength`] for a negative length, [`WireError::Trailing`] for bytes behind the
/// last attribute.
pub fn decode_results(body: &[u8], with_values: bool) -> Result<Vec<AttributeResult<'_>>, WireError> {
    let mut reader = FieldReader::new(body);
    let [_, count] = reader.array("fattr counts")?;
    let mut results = Vec::with_capacity(count.into());
    for _ in 0..count {
        let code = reader.u16("rc")?;
        let name = reader.until_nul("fattr name")?;
        let error = (code != 0).then_some(ErrorCode(code.into()));
        results.push(AttributeResult { error, name, value: &[] });
    }
    if with_values {
        for result in &mut results {
            result.value = value(&mut reader)?;
        }
    }
    reader.finish("fattr reply")?;
    Ok(results)
}

/// Decodes a list from the concatenated bodies of all frames.
///
/// # Errors
/// Those of [`decode_results`].
pub fn decode_list(body: &[u8], with_values: bool) -> Result<Vec<ListedAttribute<'_>>, WireError> {
    let mut reader = FieldReader::new(body);
    let mut list = Vec::new();
    while !reader.is_empty() {
        let name = reader.until_nul("fattr name")?;
        let value = if with_values { Some(value(&mut reader)?) } else { None };
        list.push(ListedAttribute { name, value });
    }
    Ok(list)
}

fn value<'a>(reader: &mut FieldReader<'a>) -> Result<&'a [u8], WireError> {
    let length = reader.i32("vlen")?;
    let length =
        usize::try_from(length).map_err(|_| WireError::BadLength { field: "vlen", bytes: length.into() })?;
    reader.bytes(length, "value")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_get_decodes_and_encodes() {
        let recorded = b"\x01\x02\0\0key1\0\x0b\xd3nokey\0\0\0\0\x04val1\0\0\0\0";
        let results = decode_results(recorded, true).unwrap();
        let found = AttributeResult { error: None, name: b"key1", value: b"val1" };
        let missing = AttributeResult { error: Some(ErrorCode::ATTR_NOT_FOUND), name: b"nokey", value: b"" };
        assert_eq!(results, [found, missing]);
        let mut out = Vec::new();
        encode_values(&mut out, &results);
        assert_eq!(out, recorded);
        assert!(decode_results(recorded, false).is_err());
    }

    #[test]
    fn the_recorded_list_decodes_and_encodes() {
        let recorded = b"key2\0\0\0\0\x09value twokey1\0\0\0\0\x04val1";
        let list = decode_list(recorded, true).unwrap();
        let listed = |name, value| ListedAttribute { name, value: Some(value) };
        assert_eq!(list, [listed(&b"key2"[..], &b"value two"[..]), listed(b"key1", b"val1")]);
        let mut out = Vec::new();
        list.iter().for_each(|attribute| attribute.encode(&mut out));
        assert_eq!(out, recorded);
        assert_eq!(
            decode_list(b"a\0\xff\xff\xff\xff", true),
            Err(WireError::BadLength { field: "vlen", bytes: -1 })
        );
    }
}
