//! Time and randomness as arguments, so that a test may let an hour pass in a microsecond and replay a seed.

use std::time::{Duration, SystemTime};

/// Where a machine gets the time from.
pub trait Clock: Send + Sync {
    /// Time since an arbitrary start; never goes back.
    fn now(&self) -> Duration;
    /// Time of day, for what is stored or shown.
    fn today(&self) -> SystemTime;
}

/// Where a machine gets random bytes from. Session ids need an unguessable one.
pub trait Rng: Send {
    /// Fills `into` with random bytes.
    fn fill(&mut self, into: &mut [u8]);
}
