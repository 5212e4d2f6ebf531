//! The list of bad pages behind the `kXR_status` answer to a `kXR_pgwrite`.
//!
//! | bytes | field   | type | meaning                                                       |
//! |-------|---------|------|---------------------------------------------------------------|
//! | 0..4  | cseCRC  | u32  | crc32c of all following bytes                                 |
//! | 4..6  | dlFirst | i16  | data bytes of the first bad page                              |
//! | 6..8  | dlLast  | i16  | data bytes of the last bad page, equal to dlFirst if only one |
//! | 8..   | offsets | list | i64 for each bad page, ascending, at most 127                 |
//!
//! Pages between the first and the last have 4096 bytes, so only the lengths of these two are sent.
//!
//! Source: xroot protocol 5.2.0, section 2.14. Recorded: `api_pgwrite_bad`, `raw_write`.

use crate::codec::{Decode, Encode};
use crate::crc::crc32c;
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;

/// A list of bad pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadPages<'a> {
    /// Data bytes of the first bad page as sent.
    pub first_bytes: i16,
    /// Data bytes of the last bad page as sent.
    pub last_bytes: i16,
    /// Offsets as sent, in ascending order; see [`BadPages::offsets`].
    pub offsets: &'a [[u8; 8]],
}

impl Encode for BadPages<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let at = out.len();
        FieldWriter::new(out)
            .u32(0)
            .i16(self.first_bytes)
            .i16(self.last_bytes)
            .bytes(self.offsets.as_flattened());
        let crc = crc32c(out.get(at + 4..).unwrap_or_default());
        if let Some(place) = out.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
            *place = crc.to_be_bytes();
        }
    }
}

impl<'a> Decode<'a> for BadPages<'a> {
    /// Decodes a list and verifies its checksum.
    ///
    /// # Errors
    /// [`WireError::Short`] for a truncated list, [`WireError::BadChecksum`], and
    /// [`WireError::BadLength`] for an incomplete offset.
    fn decode(data: &'a [u8]) -> Result<Self, WireError> {
        let mut reader = FieldReader::new(data);
        let sent = reader.u32("cseCRC")?;
        let computed = crc32c(reader.rest());
        if sent != computed {
            return Err(WireError::BadChecksum { field: "cseCRC", sent, computed });
        }
        let first_bytes = reader.i16("dlFirst")?;
        let last_bytes = reader.i16("dlLast")?;
        let (offsets, ragged) = reader.take_rest().as_chunks::<8>();
        if !ragged.is_empty() {
            return Err(WireError::BadLength {
                field: "bad pages",
                bytes: i64::try_from(data.len()).unwrap_or(i64::MAX),
            });
        }
        Ok(Self { first_bytes, last_bytes, offsets })
    }
}

impl<'a> BadPages<'a> {
    /// Returns the offsets of the bad pages in the file. The offset of a page is that of its first
    /// byte sent, so the first one need not be a multiple of the page size.
    pub fn offsets(&self) -> impl ExactSizeIterator<Item = i64> + use<'a> {
        self.offsets.iter().map(|bytes| i64::from_be_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recorded_list_decodes_and_encodes() {
        let recorded = b"\xde\x70\x4e\xf7\x0f\x9c\x07\x10\0\0\0\0\0\0\0\x64\0\0\0\0\0\0\x20\0";
        let offsets = [100, 8192].map(i64::to_be_bytes);
        let list = BadPages { first_bytes: 3996, last_bytes: 1808, offsets: &offsets };
        assert_eq!(list.encoded(), recorded);
        assert_eq!(BadPages::decode(recorded), Ok(list));
        assert_eq!(list.offsets().collect::<Vec<_>>(), [100, 8192]);
        assert!(BadPages::decode(&recorded[..23]).is_err());
        assert!(BadPages::decode(&recorded[..3]).is_err());
    }
}
