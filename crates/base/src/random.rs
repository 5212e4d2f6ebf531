//! Random numbers that are fast and can be replayed from a seed, where nothing hangs on their being guessed.

use crate::Rng;

/// The generator of that name: 2^64 numbers, each once. Not for secrets: who sees one number knows all.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The sequence of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
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

    /// First numbers of the published reference, seed 1234567.
    #[test]
    fn it_is_the_generator_of_that_name() {
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
