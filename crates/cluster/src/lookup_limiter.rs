//! Rate limit, queue and negative cache of look-ups in a file system that all servers share
//! (`cms.dfs limit`, `qmax`, `mdhold`).
//!
//! Without limits a storm of requests would become a storm on the shared file system. Source: cms
//! protocol 3, section "shared file systems". A real cmsd of 5.5.3 reads `limit` and `qmax` and
//! does not apply them. `mdhold` counts from the first miss of a directory, and a client's refresh
//! does not override it.

use std::collections::{HashMap, VecDeque};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

/// The maximum number of directories recorded as missing; beyond it, the oldest is forgotten.
const DIRECTORIES_MAX: usize = 1 << 16;
const SECOND: Duration = Duration::from_secs(1);

/// The limits of look-ups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LookupLimits {
    /// The number of look-ups that begin per second; `None`: unlimited.
    pub rate: Option<NonZeroU32>,
    /// Space them evenly over the second, instead of allowing a burst after a pause.
    pub even: bool,
    /// The maximum number of waiting look-ups.
    pub queue_max: usize,
    /// The maximum wait, because the client stops waiting then.
    pub wait_max: Duration,
    /// The time for which a missing directory is recorded; zero: not at all.
    pub missing_hold: Duration,
}

impl Default for LookupLimits {
    /// Returns rules without limits.
    fn default() -> Self {
        Self { rate: None, even: false, queue_max: 0, wait_max: Duration::MAX, missing_hold: Duration::ZERO }
    }
}

/// The decision on a look-up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LookupDecision {
    /// It begins.
    Now,
    /// It waits: [`LookupLimiter::due`] returns it.
    Later,
    /// The queue is full.
    Refused,
    /// The directory is missing, and so is the path.
    Missing,
}

/// The look-ups of one node.
#[derive(Debug, Default)]
pub struct LookupLimiter {
    rules: LookupLimits,
    queue: VecDeque<Arc<[u8]>>,
    /// The time of the next look-up if all were evenly spaced.
    next: Duration,
    /// Missing directories, with the time until which they are recorded.
    missing: HashMap<Arc<[u8]>, Duration>,
    /// The same entries, oldest first; some were removed or recorded again since.
    order: VecDeque<(Duration, Arc<[u8]>)>,
}

impl LookupLimiter {
    /// Creates a queue with these rules.
    pub fn new(rules: LookupLimits) -> Self {
        Self { rules, ..Self::default() }
    }

    /// Reports whether missing directories are recorded.
    pub const fn remembers(&self) -> bool {
        !self.rules.missing_hold.is_zero()
    }

    /// Requests the look-up of a path.
    pub fn request(&mut self, path: &[u8], now: Duration) -> LookupDecision {
        if self.is_missing(path, now) {
            return LookupDecision::Missing;
        }
        if self.queue.is_empty() && self.begin(now) {
            return LookupDecision::Now;
        }
        let waiting = u32::try_from(self.queue.len()).unwrap_or(u32::MAX);
        let turn = self.earliest().saturating_add(self.interval().saturating_mul(waiting));
        if self.queue.len() >= self.rules.queue_max || turn.saturating_sub(now) > self.rules.wait_max {
            return LookupDecision::Refused;
        }
        self.queue.push_back(Arc::from(path));
        LookupDecision::Later
    }

    /// Returns a waiting look-up that may begin now. The caller repeats the call until it returns
    /// `None`.
    pub fn due(&mut self, now: Duration) -> Option<Arc<[u8]>> {
        if self.queue.is_empty() || !self.begin(now) {
            return None;
        }
        self.queue.pop_front()
    }

    /// Returns the time of the next result of [`Self::due`].
    pub fn next_deadline(&self) -> Option<Duration> {
        (!self.queue.is_empty()).then(|| self.earliest())
    }

    /// Records that a directory does not exist.
    pub fn missing(&mut self, directory: &[u8], now: Duration) {
        while self
            .order
            .front()
            .is_some_and(|(until, _)| *until <= now || self.order.len() >= DIRECTORIES_MAX)
        {
            if let Some((until, directory)) = self.order.pop_front()
                && self.missing.get(&directory) == Some(&until)
            {
                self.missing.remove(&directory);
            }
        }
        if self.remembers() && !self.missing.contains_key(directory) {
            let (until, directory) =
                (now.saturating_add(self.rules.missing_hold), Arc::<[u8]>::from(directory));
            self.order.push_back((until, directory.clone()));
            self.missing.insert(directory, until);
        }
    }

    /// Records that a path exists, and with it each of its parent directories.
    pub fn appeared(&mut self, path: &[u8]) {
        if !self.missing.is_empty() {
            self.missing.remove(path);
            for directory in directories(path) {
                self.missing.remove(directory);
            }
        }
    }

    fn is_missing(&self, path: &[u8], now: Duration) -> bool {
        !self.missing.is_empty()
            && directories(path)
                .any(|directory| self.missing.get(directory).is_some_and(|until| *until > now))
    }

    fn interval(&self) -> Duration {
        self.rules.rate.map_or(Duration::ZERO, |rate| SECOND / rate.get())
    }

    /// Returns the time at which the next look-up may begin: after a pause those of a whole second
    /// together, unless they are to be evenly spaced.
    fn earliest(&self) -> Duration {
        let ahead = if self.rules.even { Duration::ZERO } else { SECOND.saturating_sub(self.interval()) };
        self.next.saturating_sub(ahead)
    }

    fn begin(&mut self, now: Duration) -> bool {
        let may = self.earliest() <= now;
        if may {
            self.next = self.next.max(now).saturating_add(self.interval());
        }
        may
    }
}

/// Returns the directory of a path; `None` for the root.
pub fn parent_directory(path: &[u8]) -> Option<&[u8]> {
    let slash = path.iter().rposition(|byte| *byte == b'/').filter(|_| path.len() > 1)?;
    path.get(..slash.max(1))
}

/// Returns the parent directories of a path, from the nearest up, without the root, which always
/// exists.
fn directories(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::successors(parent_directory(path), |path| parent_directory(path))
        .filter(|directory| directory.len() > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    fn paced(rate: u32, even: bool, queue_max: usize) -> LookupLimiter {
        LookupLimiter::new(LookupLimits {
            rate: NonZeroU32::new(rate),
            even,
            queue_max,
            ..LookupLimits::default()
        })
    }

    /// Returns the start times of `count` simultaneous look-ups, and the number of refused ones.
    fn times(looks: &mut LookupLimiter, count: usize, now: Duration) -> (Vec<u64>, usize) {
        let (mut begun, mut refused) = (Vec::new(), 0);
        for number in 0..count {
            match looks.request(format!("/f{number}").as_bytes(), now) {
                LookupDecision::Now => begun.push(now),
                LookupDecision::Refused => refused += 1,
                LookupDecision::Later => {}
                LookupDecision::Missing => panic!("nothing is missing"),
            }
        }
        while let Some(due) = looks.next_deadline() {
            assert!(looks.due(due - ms(1)).is_none(), "not before its time");
            begun.push(due);
            looks.due(due).unwrap();
        }
        (begun.iter().map(|time| u64::try_from(time.as_millis()).unwrap()).collect(), refused)
    }

    #[test]
    fn without_a_rate_nothing_waits() {
        let mut looks = LookupLimiter::default();
        assert!((0..1000).all(|_| looks.request(b"/f", ms(5)) == LookupDecision::Now));
        assert_eq!(looks.next_deadline(), None);
    }

    #[test]
    fn look_ups_follow_the_configured_rate() {
        let (begun, refused) = times(&mut paced(5, false, 100), 9, ms(10_000));
        let expected = [10_000, 10_000, 10_000, 10_000, 10_000, 10_200, 10_400, 10_600, 10_800];
        assert_eq!(
            (begun.as_slice(), refused),
            (expected.as_slice(), 0),
            "those of a second at once, then one by one"
        );
        let (begun, _) = times(&mut paced(5, true, 100), 4, ms(10_000));
        assert_eq!(begun, [10_000, 10_200, 10_400, 10_600], "evenly");
    }

    #[test]
    fn those_that_came_first_go_first() {
        let mut looks = paced(1, true, 10);
        assert_eq!(looks.request(b"/a", ms(0)), LookupDecision::Now);
        assert_eq!(looks.request(b"/b", ms(0)), LookupDecision::Later);
        // It is due, but another one waits.
        assert_eq!(looks.request(b"/c", ms(1500)), LookupDecision::Later);
        assert_eq!(looks.due(ms(1500)).as_deref(), Some(b"/b".as_slice()));
        assert_eq!(looks.due(ms(1500)), None);
        assert_eq!(looks.due(ms(2500)).as_deref(), Some(b"/c".as_slice()));
    }

    #[test]
    fn waiting_look_ups_are_limited_in_number_and_time() {
        let (begun, refused) = times(&mut paced(5, true, 3), 9, ms(0));
        assert_eq!((begun.len(), refused), (4, 5));
        let mut impatient = paced(5, true, 100);
        impatient.rules.wait_max = ms(500);
        let (begun, refused) = times(&mut impatient, 9, ms(0));
        assert_eq!((begun.as_slice(), refused), ([0, 200, 400].as_slice(), 6));
    }

    #[test]
    fn a_path_in_a_missing_directory_is_missing_for_the_hold_time() {
        let rules = LookupLimits { missing_hold: ms(6000), ..LookupLimits::default() };
        let mut looks = LookupLimiter::new(rules);
        looks.missing(b"/a/b", ms(1000));
        assert_eq!(looks.request(b"/a/b/f", ms(2000)), LookupDecision::Missing);
        assert_eq!(looks.request(b"/a/b/c/f", ms(2000)), LookupDecision::Missing, "also further below");
        assert_eq!(looks.request(b"/a/b", ms(2000)), LookupDecision::Now, "it may be there by now");
        assert_eq!(looks.request(b"/a/bc/f", ms(2000)), LookupDecision::Now);
        looks.missing(b"/a/b", ms(5000));
        assert_eq!(looks.request(b"/a/b/f", ms(6999)), LookupDecision::Missing);
        assert_eq!(looks.request(b"/a/b/f", ms(7000)), LookupDecision::Now, "from when it was first missed");
    }

    #[test]
    fn a_missing_directory_that_appears_is_not_missing() {
        let rules = LookupLimits { missing_hold: ms(6000), ..LookupLimits::default() };
        let mut looks = LookupLimiter::new(rules);
        looks.missing(b"/a", ms(0));
        looks.missing(b"/a/b", ms(0));
        looks.missing(b"/c", ms(0));
        looks.appeared(b"/a/b/f");
        assert_eq!(looks.request(b"/a/b/g", ms(1)), LookupDecision::Now);
        assert_eq!(looks.request(b"/c/g", ms(1)), LookupDecision::Missing);
        looks.appeared(b"/c");
        assert_eq!(looks.request(b"/c/g", ms(1)), LookupDecision::Now);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let rules = LookupLimits { missing_hold: ms(10_000), ..LookupLimits::default() };
        let mut looks = LookupLimiter::new(rules);
        for number in 0..DIRECTORIES_MAX + 10 {
            looks.missing(format!("/d{number}").as_bytes(), ms(1));
        }
        assert!(looks.missing.len() <= DIRECTORIES_MAX && looks.order.len() <= DIRECTORIES_MAX);
        assert_eq!(looks.request(b"/d0/f", ms(2)), LookupDecision::Now, "the oldest went");
        looks.missing(b"/last", ms(20_000));
        assert_eq!((looks.missing.len(), looks.order.len()), (1, 1), "what is over goes");
    }

    #[test]
    fn directories_of_paths() {
        assert_eq!(parent_directory(b"/a/b/c"), Some(b"/a/b".as_slice()));
        assert_eq!(parent_directory(b"/a"), Some(b"/".as_slice()));
        assert_eq!(parent_directory(b"/"), None);
        assert_eq!(directories(b"/a/b/c").count(), 2);
    }
}
