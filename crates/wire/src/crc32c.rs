//! CRC32C (Castagnoli) of the few bytes that messages cover themselves with.
//!
//! Polynomial 1edc6f41 reflected, start and final value inverted. Page data has hundreds of times more bytes and is
//! checked elsewhere, with the processor's instructions; here a table is small and fast enough.

/// What a byte does to the rest of the register.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0x82f6_3b78 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The CRC32C of `bytes`.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        let slot = usize::from(low ^ byte);
        // A byte is always within the 256 slots.
        TABLE.get(slot).copied().unwrap_or(0) ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::crc32c;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(b""), 0);
    }
}
