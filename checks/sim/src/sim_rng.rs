//! Random numbers that can be reproduced: the same seed gives the same run.
//!
//! All random decisions use it, because a failure must be reproducible by its seed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use base::{Rng, SplitMix64};

/// A random generator.
#[derive(Clone, Debug)]
pub struct SimRng(SplitMix64);

impl SimRng {
    /// Creates the sequence of this seed.
    pub fn new(seed: u64) -> Self {
        Self(SplitMix64::new(seed))
    }

    /// Returns the next number.
    pub fn draw(&mut self) -> u64 {
        self.0.draw()
    }

    /// Returns a number below `end`, 0 if that is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        if end == 0 { 0 } else { self.draw() % end }
    }

    /// Reports whether an event of this probability, in parts per million, happens.
    pub fn happens(&mut self, per_million: u64) -> bool {
        self.below(1_000_000) < per_million
    }

    /// Returns a time below `end`.
    pub fn time(&mut self, end: Duration) -> Duration {
        Duration::from_nanos(self.below(end.as_nanos() as u64))
    }

    /// Puts a list into a random order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for last in (1..list.len()).rev() {
            list.swap(last, self.below(last as u64 + 1) as usize);
        }
    }
}

/// Runs something for these seeds on all processors.
///
/// # Errors
/// The number of seeds that failed and the first few errors.
pub fn on_all_processors<T: Send>(
    seeds: &[u64],
    run: impl Fn(u64) -> Result<T, String> + Sync,
) -> Result<Vec<T>, String> {
    let next = AtomicUsize::new(0);
    let results = Mutex::new(Vec::new());
    let work = || {
        while let Some(seed) = seeds.get(next.fetch_add(1, Ordering::Relaxed)) {
            let result = catch_unwind(AssertUnwindSafe(|| run(*seed)))
                .unwrap_or_else(|_| Err(format!("seed {seed}: panic")));
            results.lock().unwrap_or_else(PoisonError::into_inner).push((*seed, result));
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(work);
        }
    });
    let mut results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    results.sort_by_key(|(seed, _)| *seed);
    let (mut outcomes, mut errors) = (Vec::new(), Vec::new());
    for (_, result) in results {
        match result {
            Ok(outcome) => outcomes.push(outcome),
            Err(error) => errors.push(error),
        }
    }
    if errors.is_empty() {
        return Ok(outcomes);
    }
    let shown = errors.get(..errors.len().min(5)).unwrap_or_default().join("\n");
    Err(format!("{} of {} seeds: {shown}", errors.len(), seeds.len()))
}

impl Rng for SimRng {
    fn fill(&mut self, into: &mut [u8]) {
        self.0.fill(into);
    }
}
