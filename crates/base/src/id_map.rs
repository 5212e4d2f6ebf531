//! Maps by numbers that this process assigns itself.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by numbers that this process counts itself: connections, slots, tokens.
///
/// Its hash is one multiplication, several times cheaper than the keyed hash of the standard
/// library. It is not for numbers that a peer chooses: a peer could choose many that collide.
pub type IdMap<K, V> = HashMap<K, V, BuildHasherDefault<IdHasher>>;

/// The hash of [`IdMap`].
#[derive(Default)]
pub struct IdHasher(u64);

/// 2^64 divided by the golden ratio, odd: the multiples of successive numbers are far apart.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

impl Hasher for IdHasher {
    fn finish(&self) -> u64 {
        // A product mixes well only in its upper bits. The table takes the lowest bits for the
        // place and the highest seven for the comparison of a place.
        self.0 ^ (self.0 >> 32)
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = (self.0.rotate_left(5) ^ number).wrapping_mul(MULTIPLIER);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::hash::{BuildHasher, BuildHasherDefault};

    use super::*;

    /// Returns how many of 1,024 numbers fall into the fullest of 1,024 places, and the number of
    /// different marks among them.
    fn spread(numbers: impl Iterator<Item = u64>) -> (usize, usize) {
        let hasher = BuildHasherDefault::<IdHasher>::default();
        let (mut places, mut marks) = (HashMap::new(), HashMap::new());
        for number in numbers.take(1024) {
            let hash = hasher.hash_one(number);
            *places.entry(hash % 1024).or_insert(0) += 1;
            *marks.entry(hash >> 57).or_insert(0) += 1;
        }
        (places.values().copied().max().unwrap_or(0), marks.len())
    }

    #[test]
    fn numbers_in_a_row_or_with_equal_low_bits_fall_apart() {
        for (start, step) in [(0, 1), (1 << 63, 1), (7, 64), (0, 1 << 20), (0, 1 << 32)] {
            let (fullest, marks) = spread((0..).map(|n| start + n * step));
            assert!(fullest <= 8, "{fullest} in one place for the step {step}");
            assert!(marks >= 64, "{marks} marks for the step {step}");
        }
    }
}
