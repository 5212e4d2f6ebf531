//! Fuzz target for the extended attributes that the server stores with a file.
//!
//! Everyone who can write the file can change them, so decoding must accept any bytes.

use digest::ChecksumRecord;

/// Checks `data` as the value of an extended attribute.
pub fn target(data: &[u8]) {
    if let Some(record) = ChecksumRecord::decode(data) {
        let bytes = record.encode();
        assert_eq!(ChecksumRecord::decode(&bytes), Some(record));
        assert_eq!(bytes.len(), data.len());
    }
}
