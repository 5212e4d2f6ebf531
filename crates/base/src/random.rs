//! Fast random numbers that a seed reproduces, for uses where predictability is harmless.
//!
//! Secrets such as session ids need a generator of the operating system instead.

use crate::Rng;

/// The SplitMix64 generator: a permutation of all 2^64 numbers. Not for secrets, because one output
/// reveals all others.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// Creates the generator for this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns the next number.
    pub const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Rng for SplitMix64 {
    fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            let bytes = self.draw().to_le_bytes();
            chunk.iter_mut().zip(bytes).for_each(|(to, byte)| *to = byte);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares with the first outputs of the published reference for seed 1234567.
    #[test]
    fn outputs_match_the_published_reference() {
        let mut numbers = SplitMix64::new(1_234_567);
        let drawn = [numbers.draw(), numbers.draw(), numbers.draw()];
        assert_eq!(drawn, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn bytes_are_those_of_the_numbers_in_order() {
        let mut bytes = [0; 11];
        SplitMix64::new(5).fill(&mut bytes);
        let mut numbers = SplitMix64::new(5);
        let expected = [numbers.draw().to_le_bytes(), numbers.draw().to_le_bytes()].concat();
        assert_eq!(bytes[..], expected[..11]);
    }
}
