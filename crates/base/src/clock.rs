//! Traits for time and randomness, which state machines receive as arguments.
//!
//! With them a test can advance the time by an hour without waiting and can replay a run from its
//! seed.

use std::time::{Duration, SystemTime};

/// A source of time.
pub trait Clock: Send + Sync {
    /// Returns the time since an arbitrary start; it never goes back.
    fn now(&self) -> Duration;
    /// Returns the time of day, for stored and displayed times.
    fn today(&self) -> SystemTime;
}

/// A source of random bytes. Session ids need an unpredictable one.
pub trait Rng: Send {
    /// Fills `into` with random bytes.
    fn fill(&mut self, into: &mut [u8]);
}
