//! Chance that can be replayed: the same seed gives the same run.

use std::time::Duration;

use base::Rng;

/// A generator of numbers (SplitMix64).
#[derive(Clone, Debug)]
pub struct Lot(u64);

impl Lot {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`, 0 when that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.draw() % end }
    }

    /// Whether an event of this probability, in parts per million, happens.
    pub fn happens(&mut self, per_million: u64) -> bool {
        self.below(1_000_000) < per_million
    }

    /// A time below `end`.
    pub fn time(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(end.as_nanos() as u64))
    }

    /// Brings a list into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

impl Rng for Lot {
    fn fill(&mut self, into: &mut [u8]) {
        for chunk in into.chunks_mut(8) {
            let bytes = self.draw().to_le_bytes();
            for (to, from) in chunk.iter_mut().zip(bytes) {
                *to = from;
            }
        }
    }
}
