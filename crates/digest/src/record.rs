//! The extended attribute that stores the checksum of a file.
//!
//! | bytes  | content |
//! |--------|---------|
//! | 0..16  | name of the type, padded with NUL |
//! | 16..24 | i64: modification time of the file (seconds) when the checksum was computed |
//! | 24..28 | i32: time of computation minus that modification time |
//! | 28..31 | fingerprint of the size and the fraction of the modification time; 0 is none |
//! | 31     | u8: length of the value |
//! | 32..96 | the value, padded with 0 |
//!
//! Integers are big-endian. The attribute's name is `user.XrdCks.` and the type. XRootD 4 to 6 read
//! and write the same form, so that both can serve the same disk. They do not write a fingerprint
//! and ignore it.

use crate::{Algorithm, Checksum};

/// Size of a record in bytes.
pub const RECORD_BYTES: usize = 96;
/// Full local name of the attribute, up to the name of the type.
pub const ATTRIBUTE_PREFIX: &str = "user.XrdCks.";

/// A stored checksum. It is stale if the modification time of the file differs from
/// [`ChecksumRecord::modified`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ChecksumRecord {
    /// The checksum.
    pub checksum: Checksum,
    /// Modification time of the file at the computation, in seconds since the epoch.
    pub modified: i64,
    /// Seconds from the modification to the computation.
    pub delay: i32,
    /// Fingerprint of the size of the file and the fraction of its modification time; 0 if unknown.
    fingerprint: u32,
}

/// Returns a nonzero number of 24 bits.
fn fingerprint(size: u64, nanoseconds: u32) -> u32 {
    let [a, b, c, d, e, f, g, h] = size.to_be_bytes();
    let [i, j, k, l] = nanoseconds.to_be_bytes();
    (crate::crc32c(&[a, b, c, d, e, f, g, h, i, j, k, l]) & 0x00ff_ffff).max(1)
}

impl ChecksumRecord {
    /// Returns the full local name of the attribute that stores the checksum of this type.
    pub fn attribute(algorithm: Algorithm) -> String {
        format!("{ATTRIBUTE_PREFIX}{algorithm}")
    }

    /// Creates the record of a checksum that was computed at `now` for a file modified at
    /// `modified`, both in seconds since the epoch.
    pub fn new(checksum: Checksum, modified: i64, now: i64) -> Self {
        let delay = now.saturating_sub(modified).clamp(0, i64::from(i32::MAX));
        Self { checksum, modified, delay: i32::try_from(delay).unwrap_or(i32::MAX), fingerprint: 0 }
    }

    /// Adds a fingerprint of the size and the fraction of the modification time, which detects
    /// changes within a second.
    #[must_use]
    pub fn of_file(self, size: u64, nanoseconds: u32) -> Self {
        Self { fingerprint: fingerprint(size, nanoseconds), ..self }
    }

    /// Reports whether the record is valid for a file with this modification time and size, that
    /// is, not stale. A record without a fingerprint is not valid if it was computed within the
    /// second of the modification: the file may have changed later in that second.
    pub fn fits(&self, modified: i64, nanoseconds: u32, size: u64) -> bool {
        let is_same = match self.fingerprint {
            0 => self.delay > 0,
            known => known == fingerprint(size, nanoseconds),
        };
        self.modified == modified && is_same
    }

    /// Encodes the value of the attribute.
    pub fn encode(&self) -> [u8; RECORD_BYTES] {
        let mut out = [0; RECORD_BYTES];
        let name = self.checksum.algorithm().name().as_bytes();
        let value = self.checksum.bytes();
        out[..name.len()].copy_from_slice(name);
        out[16..24].copy_from_slice(&self.modified.to_be_bytes());
        out[24..28].copy_from_slice(&self.delay.to_be_bytes());
        out[28..31].copy_from_slice(&self.fingerprint.to_be_bytes()[1..]);
        out[31] = value.len() as u8;
        out[32..32 + value.len()].copy_from_slice(value);
        out
    }

    /// Decodes the value of the attribute; returns `None` if it is not a record of a supported
    /// type.
    pub fn decode(raw: &[u8]) -> Option<Self> {
        let raw: &[u8; RECORD_BYTES] = raw.try_into().ok()?;
        let (name, rest) = raw.split_first_chunk::<16>()?;
        let (modified, rest) = rest.split_first_chunk::<8>()?;
        let (delay, rest) = rest.split_first_chunk::<4>()?;
        let ([high, middle, low, length], value) = rest.split_first_chunk::<4>()?;
        let name = name.split(|&byte| byte == 0).next()?;
        let algorithm = Algorithm::from_name(std::str::from_utf8(name).ok()?)?;
        let checksum = Checksum::from_bytes(algorithm, value.get(..usize::from(*length))?)?;
        Some(Self {
            checksum,
            modified: i64::from_be_bytes(*modified),
            delay: i32::from_be_bytes(*delay),
            fingerprint: u32::from_be_bytes([0, *high, *middle, *low]),
        })
    }
}

const _: () = assert!(crate::CHECKSUM_BYTES_MAX <= RECORD_BYTES - 32);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RunningChecksum;
    use proptest::prelude::*;

    #[test]
    fn records_survive_encoding_and_decoding() {
        for algorithm in Algorithm::ALL {
            let record = ChecksumRecord::new(
                RunningChecksum::of(algorithm, b"123456789"),
                1_700_000_000,
                1_700_000_009,
            );
            assert_eq!(record.delay, 9);
            assert_eq!(ChecksumRecord::decode(&record.encode()), Some(record));
        }
        let early = ChecksumRecord::new(RunningChecksum::of(Algorithm::Md5, b""), i64::MAX, i64::MIN);
        assert_eq!(early.delay, 0);
    }

    #[test]
    fn a_fingerprint_detects_changes_within_a_second() {
        let plain = ChecksumRecord::new(RunningChecksum::of(Algorithm::Adler32, b"x"), 7, 8);
        assert!(plain.fits(7, 1, 2) && plain.fits(7, 3, 4) && !plain.fits(8, 1, 2));
        let early = ChecksumRecord::new(RunningChecksum::of(Algorithm::Adler32, b"x"), 7, 7);
        assert!(!early.fits(7, 1, 2), "the file may have changed after it");
        assert!(early.of_file(2, 1).fits(7, 1, 2));
        let full = ChecksumRecord::decode(&plain.of_file(1, 500).encode()).unwrap();
        assert!(full.fits(7, 500, 1));
        for (modified, nanoseconds, size) in [(8, 500, 1), (7, 501, 1), (7, 500, 2), (7, 0, 1)] {
            assert!(!full.fits(modified, nanoseconds, size), "{modified} {nanoseconds} {size}");
        }
    }

    #[test]
    fn records_equal_those_of_xrootd() {
        // Recorded: attributes that XRootD 5.5.3 wrote for a file of the bytes `123456789`.
        let recorded: [(&[u8], &[u8]); 2] = [
            (b"crc32\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x6b\x01\x73\xb7\0\0\0\x02\0\0\0\x04", b"\x37\x7a\x60\x11"),
            (b"zcrc32\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x6b\x01\x73\xb7\0\0\0\x02\0\0\0\x04", b"\x26\x39\xf4\xcb"),
        ];
        for ((head, value), algorithm) in recorded.into_iter().zip([Algorithm::Crc32, Algorithm::Zcrc32]) {
            let mut raw = [head, value].concat();
            raw.resize(RECORD_BYTES, 0);
            let ours = ChecksumRecord::new(
                RunningChecksum::of(algorithm, b"123456789"),
                1_795_257_271,
                1_795_257_273,
            );
            assert_eq!(ours.encode().as_slice(), raw);
            assert_eq!(ChecksumRecord::decode(&raw), Some(ours));
        }
    }

    #[test]
    fn invalid_records_are_refused() {
        let good = ChecksumRecord::new(RunningChecksum::of(Algorithm::Adler32, b"x"), 7, 8).encode();
        assert_eq!(ChecksumRecord::decode(&good[..95]), None);
        assert_eq!(ChecksumRecord::decode(&[&good[..], &[0]].concat()), None);
        for (at, byte) in [(0, b'X'), (31, 0), (31, 3), (31, 5), (31, 65), (31, 255)] {
            let mut bad = good;
            bad[at] = byte;
            assert_eq!(ChecksumRecord::decode(&bad), None, "{at} {byte}");
        }
    }

    proptest! {
        #[test]
        fn decoding_any_bytes_never_panics(raw in prop::collection::vec(any::<u8>(), 90..100)) {
            if let Some(record) = ChecksumRecord::decode(&raw) {
                prop_assert_eq!(ChecksumRecord::decode(&record.encode()), Some(record));
            }
        }
    }
}
