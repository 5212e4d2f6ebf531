//! Chance that can be replayed: the same seed gives the same run.

use std::time::Duration;

use base::{Rng, SplitMix64};

/// A generator of numbers, and what is drawn with them.
#[derive(Clone, Debug)]
pub struct Lot(SplitMix64);

impl Lot {
    /// The sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
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
        self.0.fill(into);
    }
}
