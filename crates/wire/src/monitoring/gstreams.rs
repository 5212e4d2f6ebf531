//! Contents of packets of the streams of JSON records (code `g`).
//!
//! ```text
//! 0  u32  time of the first record         8  u8   letter of the stream
//! 4  u32  time of the last record          9  u56  id of the server, 48 bits
//! 16 the records, each on a line; a NUL replaces the end of the last line
//! ```

use super::{SERVER_ID_BITS, SERVER_ID_MASK};
use crate::codec::{Decode, Encode};
use crate::cursor::{FieldReader, FieldWriter};
use crate::error::WireError;

/// Length of the fields before the records in bytes.
pub const GSTREAM_HEADER_BYTES: usize = 16;

/// Bits before the letter of the stream.
const LETTER_SHIFT: u32 = SERVER_ID_BITS + 8;

/// The contents of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct GStreamRecords<'a> {
    /// Time of the first record, in seconds since the epoch.
    pub begin: u32,
    /// Time of the last record.
    pub end: u32,
    /// The letter of the stream.
    pub letter: u8,
    /// Id of the server, 48 bits.
    pub server: u64,
    /// The records, separated by line feeds.
    pub records: &'a [u8],
}

impl Encode for GStreamRecords<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let Self { begin, end, letter, server, records } = *self;
        let server = u64::from(letter) << LETTER_SHIFT | server & SERVER_ID_MASK;
        FieldWriter::new(out).u32(begin).u32(end).u64(server).bytes(records).u8(0);
    }
}

impl<'a> Decode<'a> for GStreamRecords<'a> {
    /// Decodes the contents of a packet.
    ///
    /// # Errors
    /// The fields are incomplete, or no NUL ends the records.
    fn decode(bytes: &'a [u8]) -> Result<Self, WireError> {
        let mut fields = FieldReader::new(bytes);
        let (begin, end, server) = (fields.u32("tBeg")?, fields.u32("tEnd")?, fields.u64("sID")?);
        let rest = fields.take_rest();
        let records = rest.strip_suffix(&[0]).ok_or(WireError::BadItem { field: "records", index: 0 })?;
        // The shift leaves eight bits.
        let letter = (server >> LETTER_SHIFT) as u8;
        if letter == 0 || server & !SERVER_ID_MASK != u64::from(letter) << LETTER_SHIFT {
            return Err(WireError::BadItem { field: "sID", index: 0 });
        }
        Ok(Self { begin, end, letter, server: server & SERVER_ID_MASK, records })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The contents of a packet of XRootD 5.5.3, with another record.
    #[test]
    fn a_recorded_packet_decodes_and_encodes() {
        let bytes = b"k\rj<k\rj?P\x00%\xb4E\xe3+;{\"TPC\":\"xroot\"}\n{\"a\":1}\x00";
        let found = GStreamRecords::decode(bytes).unwrap();
        let expected = GStreamRecords {
            begin: 1_796_041_276,
            end: 1_796_041_279,
            letter: b'P',
            server: 41_456_196_856_635,
            records: b"{\"TPC\":\"xroot\"}\n{\"a\":1}",
        };
        assert_eq!(found, expected);
        assert_eq!(found.encoded(), bytes);
        for end in 0..bytes.len() {
            assert!(GStreamRecords::decode(&bytes[..end]).is_err(), "{end}");
        }
    }

    #[test]
    fn a_packet_without_a_letter_is_none_of_a_stream() {
        assert!(GStreamRecords::decode(&[0; 17]).is_err());
        let mut bytes = [0; 17];
        (bytes[8], bytes[9]) = (b'P', 1);
        assert!(GStreamRecords::decode(&bytes).is_err());
    }
}
