//! What is stored beside a file, and what anyone who can write the file can put there.

use digest::Record;

/// `data` is the value of an extended attribute.
pub fn target(data: &[u8]) {
    if let Some(record) = Record::decode(data) {
        let bytes = record.encode();
        assert_eq!(Record::decode(&bytes), Some(record));
        assert_eq!(bytes.len(), data.len());
    }
}
