//! CRCs of short messages and of paths.
//!
//! Both are reflected, with initial and final value inverted. The tables are small and fast enough
//! for a few bytes. Page data is hundreds of times larger, so the `digest` crate computes its
//! checksums with instructions of the processor.

/// CRC32C (Castagnoli), polynomial 1edc6f41.
type Castagnoli = CrcTable<0x82f6_3b78>;

/// CRC-32 of zlib, polynomial 04c11db7.
type Zlib = CrcTable<0xedb8_8320>;

/// Computes the CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc(&Castagnoli::SLOTS, bytes)
}

/// Computes the CRC-32 of `bytes`. The cms protocol identifies the query for a path by it.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    crc(&Zlib::SLOTS, bytes)
}

/// The table of a polynomial with reversed bits: the effect of each byte on the register.
struct CrcTable<const REFLECTED: u32>;

impl<const REFLECTED: u32> CrcTable<REFLECTED> {
    const SLOTS: [u32; 256] = {
        let mut table = [0; 256];
        let mut byte = 0;
        while byte < 256 {
            let mut crc = byte as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 { (crc >> 1) ^ REFLECTED } else { crc >> 1 };
                bit += 1;
            }
            let (_, rest) = table.split_at_mut(byte);
            if let Some(slot) = rest.first_mut() {
                *slot = crc;
            }
            byte += 1;
        }
        table
    };
}

fn crc(table: &[u32; 256], bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        let slot = usize::from(low ^ byte);
        // A byte is always within the 256 slots.
        table.get(slot).copied().unwrap_or(0) ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::{crc32, crc32c};

    #[test]
    fn check_values_match_the_crc_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
