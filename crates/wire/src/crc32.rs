//! CRC-32 (the polynomial of zlib) of paths, with which the cms protocol names a question for a path.
//!
//! Polynomial 04c11db7 reflected, start and final value inverted. Paths are short; a table is fast enough.

/// What a byte does to the rest of the register.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

/// The CRC-32 of `bytes`.
#[must_use]
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        let slot = usize::from(low ^ byte);
        // A byte is always within the 256 slots.
        TABLE.get(slot).copied().unwrap_or(0) ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::crc32;

    #[test]
    fn the_check_value_of_the_catalogue() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32(b""), 0);
    }
}
