//! Backoff between connection attempts: doubled each time, half of each pause random.
//!
//! The random half prevents that many nodes that lost one parent reconnect to it in step.

use std::time::Duration;

use base::Rng;

use super::identity::mix;
use super::limits::{PAUSE_MAX, PAUSE_MIN};

/// The backoff of one node.
#[derive(Clone, Debug)]
pub struct Pauses {
    seed: u64,
    drawn: u64,
}

impl Pauses {
    /// Creates a backoff with its own random numbers.
    pub fn new(rng: &mut dyn Rng) -> Self {
        let mut seed = [0; 8];
        rng.fill(&mut seed);
        Self { seed: u64::from_le_bytes(seed), drawn: 0 }
    }

    /// Returns the pause after `failures` failed attempts in a row.
    pub fn after(&mut self, failures: u32) -> Duration {
        let whole = PAUSE_MIN.saturating_mul(1 << failures.min(16)).min(PAUSE_MAX);
        self.drawn += 1;
        let lot = mix(self.seed ^ self.drawn.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % 1024;
        whole / 2 + whole / 2 * lot as u32 / 1024
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(u8);

    impl Rng for Fixed {
        fn fill(&mut self, into: &mut [u8]) {
            into.fill(self.0);
        }
    }

    #[test]
    fn pauses_grow_to_a_limit_and_differ() {
        let mut pauses = Pauses::new(&mut Fixed(1));
        for failures in 0..40 {
            let pause = pauses.after(failures);
            let whole = (PAUSE_MIN * 2u32.pow(failures.min(10))).min(PAUSE_MAX);
            assert!(pause >= whole / 2 && pause <= whole, "{failures}: {pause:?}");
        }
        assert_ne!(Pauses::new(&mut Fixed(1)).after(3), Pauses::new(&mut Fixed(2)).after(3));
    }
}
