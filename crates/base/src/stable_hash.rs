//! [`stable_hash`]: a hash that is the same in every build and on every machine.

/// Returns the FNV-1a hash of bytes. It is for names that outlive the process, and no protection against somebody who
/// chooses the bytes.
#[must_use]
pub fn stable_hash<'a>(bytes: impl IntoIterator<Item = &'a u8>) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    bytes.into_iter().fold(0xcbf2_9ce4_8422_2325, add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published values of FNV-1a.
    #[test]
    fn the_hash_is_that_of_every_build() {
        for (text, expected) in
            [("", 0xcbf2_9ce4_8422_2325), ("a", 0xaf63_dc4c_8601_ec8c), ("foobar", 0x8594_4171_f739_67e8)]
        {
            assert_eq!(stable_hash(text.as_bytes()), expected, "{text}");
        }
    }
}
