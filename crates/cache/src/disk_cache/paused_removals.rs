//! [`PausedRemovals`]: files of which nothing is removed for a while, because that has failed.
//!
//! A file can fail each time, for example because of an unreadable sector. It has many parts in the order of removals, and
//! each error of the disk stops all storing for a while.

use crate::CacheKey;
use std::collections::HashMap;

/// The pause in seconds after the first failure, and the longest one.
const PAUSE_MIN: i64 = 10;
const PAUSE_MAX: i64 = 3600;
/// Maximum number of files. Further ones are tried in each round.
const FILES_MAX: usize = 4096;

/// The files whose removal has failed. Each failure of a file doubles its pause.
#[derive(Default)]
pub(super) struct PausedRemovals(HashMap<CacheKey, RemovalPause>);

#[derive(Clone, Copy)]
struct RemovalPause {
    length: i64,
    /// Its end, in seconds of uptime.
    end: i64,
}

impl PausedRemovals {
    /// Begins the pause of a file.
    pub(super) fn add(&mut self, key: CacheKey, uptime: i64) {
        if self.0.len() >= FILES_MAX && !self.0.contains_key(&key) {
            self.0.retain(|_, pause| pause.end > uptime);
            if self.0.len() >= FILES_MAX {
                return;
            }
        }
        // A failure long ago does not count.
        let earlier = self.0.get(&key).filter(|pause| pause.end.saturating_add(PAUSE_MAX) > uptime);
        let length = earlier.map_or(PAUSE_MIN, |pause| pause.length.saturating_mul(2).min(PAUSE_MAX));
        self.0.insert(key, RemovalPause { length, end: uptime.saturating_add(length) });
    }

    /// Reports whether a file is in its pause.
    pub(super) fn contain(&self, key: &CacheKey, uptime: i64) -> bool {
        self.0.get(key).is_some_and(|pause| uptime < pause.end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::LogicalPath;

    fn key(number: usize) -> CacheKey {
        CacheKey::new(&LogicalPath::parse(format!("/{number}").as_bytes()).unwrap()).unwrap()
    }

    #[test]
    fn each_failure_of_a_file_doubles_its_pause() {
        let (mut paused, mut uptime) = (PausedRemovals::default(), 7);
        for length in [10, 20, 40, 80, 160, 320, 640, 1280, 2560, 3600, 3600] {
            paused.add(key(1), uptime);
            assert!(paused.contain(&key(1), uptime + length - 1) && !paused.contain(&key(2), uptime));
            uptime += length;
            assert!(!paused.contain(&key(1), uptime));
        }
        uptime += 3600;
        paused.add(key(1), uptime);
        assert!(!paused.contain(&key(1), uptime + 10), "the failure was long ago");
    }

    #[test]
    fn a_limited_number_of_files_has_pauses() {
        let mut paused = PausedRemovals::default();
        (0..FILES_MAX + 10).for_each(|number| paused.add(key(number), 0));
        assert!(paused.contain(&key(FILES_MAX - 1), 0) && !paused.contain(&key(FILES_MAX), 0));
        // Pauses that have ended make room.
        paused.add(key(FILES_MAX), 10);
        assert!(paused.contain(&key(FILES_MAX), 10) && paused.0.len() == 1);
    }
}
