//! Paths that parents know as present here, so that they are notified when a path is removed.
//!
//! The record is needed because this node may have forgotten such a path: the windows of a parent
//! begin later than its own, and eviction removes locations early.
//!
//! Two Bloom filters take turns. A path is recorded for one to two windows, in 2 MiB whatever the
//! number of paths. A window is at least that of the default, because parents may keep locations
//! for longer than this node (`cms.fxhold`). A false positive costs one query.

use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

use crate::cache::WINDOW;

/// The bits of one filter. With a million paths the rate of false positives is 1 in 40.
const BITS: u64 = 1 << 23;

/// The bits for each path.
const BITS_PER_PATH: u64 = 4;

/// The paths on which parents rely.
pub(super) struct Reliance {
    /// The filters of the current window and of the one before; empty until the first report.
    filters: [Vec<u64>; 2],
    /// The end of the window.
    until: Duration,
    /// The length of a window.
    window: Duration,
    keys: RandomState,
}

impl Reliance {
    /// Creates the empty record of a node that keeps locations for this time.
    pub(super) fn new(window: Duration) -> Self {
        Self {
            filters: Default::default(),
            until: Duration::ZERO,
            window: window.max(WINDOW),
            keys: RandomState::new(),
        }
    }

    /// Records that a path is reported to parents as present.
    pub(super) fn note(&mut self, path: &[u8], now: Duration) {
        self.turn(now);
        let bits = self.bits(path);
        let filter = &mut self.filters[0];
        if filter.is_empty() {
            filter.resize((BITS / 64) as usize, 0);
        }
        for bit in bits {
            if let Some(word) = filter.get_mut((bit / 64) as usize) {
                *word |= 1 << (bit % 64);
            }
        }
    }

    /// Reports whether parents may rely on a path. False positives are rare.
    pub(super) fn contains(&mut self, path: &[u8], now: Duration) -> bool {
        self.turn(now);
        let bits = self.bits(path);
        let is_set = |filter: &Vec<u64>, bit: u64| {
            filter.get((bit / 64) as usize).is_some_and(|word| word & (1 << (bit % 64)) != 0)
        };
        self.filters.iter().any(|filter| bits.iter().all(|bit| is_set(filter, *bit)))
    }

    fn turn(&mut self, now: Duration) {
        if now < self.until {
            return;
        }
        let is_recent = now < self.until.saturating_add(self.window);
        let current = std::mem::take(&mut self.filters[0]);
        self.filters[1] = if is_recent { current } else { Vec::new() };
        self.until = now.saturating_add(self.window);
    }

    fn bits(&self, path: &[u8]) -> [u64; BITS_PER_PATH as usize] {
        let hash = self.keys.hash_one(path);
        let (first, step) = (hash >> 32, (hash & 0xffff_ffff) | 1);
        std::array::from_fn(|number| first.wrapping_add(step.wrapping_mul(number as u64)) % BITS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reported_path_is_recorded_for_one_to_two_windows() {
        let mut reliance = Reliance::new(Duration::from_secs(64));
        let begin = Duration::from_secs(7);
        assert!(!reliance.contains(b"/f", begin) && reliance.filters.iter().all(Vec::is_empty));
        reliance.note(b"/f", begin);
        let late = begin + WINDOW - Duration::from_secs(1);
        reliance.note(b"/g", late);
        for (time, known) in [(late, [true, true]), (late + WINDOW, [true, true])] {
            assert_eq!([reliance.contains(b"/f", time), reliance.contains(b"/g", time)], known);
        }
        reliance.note(b"/h", late + WINDOW);
        let next = late + 2 * WINDOW;
        assert_eq!([b"/f", b"/g", b"/h"].map(|path| reliance.contains(path, next)), [false, false, true]);
        assert!(!reliance.contains(b"/h", next + 3 * WINDOW));
    }

    #[test]
    fn longer_windows_of_the_configuration_apply() {
        let window = 3 * WINDOW;
        let mut reliance = Reliance::new(window);
        reliance.note(b"/f", Duration::ZERO);
        assert!(reliance.contains(b"/f", window - Duration::from_secs(1)));
        assert!(!reliance.contains(b"/f", 2 * window));
    }

    #[test]
    fn the_filters_have_a_fixed_size_and_few_false_positives() {
        let mut reliance = Reliance::new(WINDOW);
        let path = |number: u32| format!("/store/file{number}");
        (0..1_000_000).for_each(|number| reliance.note(path(number).as_bytes(), Duration::ZERO));
        assert_eq!(reliance.filters.iter().map(Vec::len).sum::<usize>() as u64 * 64, BITS);
        let mistaken = (2_000_000..2_010_000)
            .filter(|number| reliance.contains(path(*number).as_bytes(), Duration::ZERO))
            .count();
        assert!(mistaken < 500, "{mistaken} of 10,000");
        assert!((0..10_000).all(|number| reliance.contains(path(number).as_bytes(), Duration::ZERO)));
    }
}
