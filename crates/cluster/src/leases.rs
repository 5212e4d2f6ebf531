//! Leases: files that clients are on their way to create here.
//!
//! The parent that chooses this node for a new file grants a lease before it redirects the client. From then on this node is
//! the authority: whoever asks for the path is told that it is leased, until it exists or the lease ends.
//!
//! ```text
//!             grant                  begin
//! unknown -----------> running <---------------> creating --- created ---> unknown
//!                         |       end(Retried)       |
//!                         | deadline                 | end(Failed)
//!                         v                          v
//!                       ended  <---------------------+      creations are refused, until the next grant
//! ```
//!
//! Once [`Leases::is_running`] has returned `false` for a path, [`Leases::begin`] refuses it. So a parent that was told "not
//! here" may choose another node, however late the first client comes. See `docs/decisions/001-placement-leases.md`.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

/// How long a client has to reach the node that is to create its file. A client that needs longer asks again. Another creator
/// of the same file waits for so long when the first one never comes.
pub const LEASE: Duration = Duration::from_secs(30);
/// Leases that run at most; beyond, the oldest ends.
const RUNNING_MAX: usize = 16_384;
/// Ended leases that are remembered at most; beyond, the oldest is forgotten.
const ENDED_MAX: usize = 65_536;
/// How long an ended lease is remembered: no client is redirected for longer.
const ENDED_KEPT: Duration = Duration::from_secs(3600);
/// How often one ended lease refuses a creation, so that no client is sent in circles.
const REFUSALS_MAX: u8 = 16;

/// Whether a creation may begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// Nobody was given a lease: the client came by itself.
    Free,
    /// The lease is held until [`Leases::end`].
    Leased,
    /// The lease has ended: another node may be creating the file.
    Refused,
}

/// How a creation ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The file is there.
    Created,
    /// The client has an error.
    Failed,
    /// The client comes again.
    Retried,
}

#[derive(Debug)]
struct Running {
    until: Duration,
    /// Creations that have begun and not ended.
    creations: usize,
}

#[derive(Debug)]
struct Ended {
    at: Duration,
    refusals: u8,
}

/// All leases of a node.
#[derive(Default, Debug)]
pub struct Leases {
    running: HashMap<Arc<[u8]>, Running>,
    deadlines: BTreeSet<(Duration, Arc<[u8]>)>,
    /// By a hash of the path: a wrong match costs a client one more request.
    ended: HashMap<u64, Ended>,
    ended_order: VecDeque<(Duration, u64)>,
    /// Leases that ended since [`Self::take_ended`].
    news: Vec<Arc<[u8]>>,
    hasher: RandomState,
}

impl Leases {
    /// Reports whether nothing is known of any path.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.ended.is_empty()
    }

    /// Grants a lease, or prolongs it.
    pub fn grant(&mut self, path: &[u8], until: Duration, now: Duration) {
        self.forget_ended(path);
        let known = self.running.get_key_value(path).map(|(path, running)| (path.clone(), running.until));
        let path = match known {
            Some((path, before)) => {
                self.deadlines.remove(&(before, path.clone()));
                path
            }
            None => Arc::from(path),
        };
        self.deadlines.insert((until, path.clone()));
        self.running.entry(path).or_insert(Running { until, creations: 0 }).until = until;
        if self.running.len() > RUNNING_MAX {
            let idle = |(_, path): &&(Duration, Arc<[u8]>)| {
                self.running.get(path).is_some_and(|running| running.creations == 0)
            };
            let oldest = self.deadlines.iter().take(RUNNING_MAX).find(idle).map(|(_, path)| path.clone());
            oldest.into_iter().for_each(|path| self.lapse(&path, now));
        }
    }

    /// Grants a lease for this long, as a parent says; zero ends it, unless a creation has begun.
    pub fn grant_for(&mut self, path: &[u8], time: Duration, now: Duration) {
        if !time.is_zero() {
            return self.grant(path, now.saturating_add(time.min(2 * LEASE)), now);
        }
        if self.running.get(path).is_none_or(|running| running.creations == 0) {
            // It may have been forgotten in a restart: the parent is told of its end all the same.
            self.grant(path, now, now);
            self.lapse(path, now);
        }
    }

    /// Reports whether a client may still create this path. When the time is over, the lease ends by this call.
    pub fn is_running(&mut self, path: &[u8], now: Duration) -> bool {
        let Some(running) = self.running.get(path) else { return false };
        let runs = running.creations > 0 || now < running.until;
        if !runs {
            self.lapse(path, now);
        }
        runs
    }

    /// Reports whether the lease of this path has ended without a file.
    pub fn has_ended(&self, path: &[u8]) -> bool {
        self.ended.contains_key(&self.hasher.hash_one(path))
    }

    /// A client wants to create this path.
    pub fn begin(&mut self, path: &[u8], now: Duration) -> Permit {
        if self.is_running(path, now) {
            if let Some(running) = self.running.get_mut(path) {
                running.creations += 1;
            }
            return Permit::Leased;
        }
        let key = self.hasher.hash_one(path);
        let Some(ended) = self.ended.get_mut(&key) else { return Permit::Free };
        ended.refusals = ended.refusals.saturating_add(1);
        let is_current = now < ended.at.saturating_add(ENDED_KEPT);
        if !is_current || ended.refusals >= REFUSALS_MAX {
            self.ended.remove(&key);
        }
        if is_current { Permit::Refused } else { Permit::Free }
    }

    /// A creation that was [`Permit::Leased`] has ended.
    pub fn end(&mut self, path: &[u8], outcome: Outcome, now: Duration) {
        let Some(running) = self.running.get_mut(path) else { return };
        running.creations = running.creations.saturating_sub(1);
        match outcome {
            Outcome::Created => self.exists(path),
            // Another client that is creating it may succeed.
            Outcome::Failed if running.creations == 0 => self.lapse(path, now),
            Outcome::Failed | Outcome::Retried => {}
        }
    }

    /// The path exists: its lease is over, and the next creation is judged by what is there.
    pub fn exists(&mut self, path: &[u8]) {
        self.forget_ended(path);
        if let Some((path, running)) = self.running.remove_entry(path) {
            self.deadlines.remove(&(running.until, path));
        }
    }

    /// When [`Self::take_ended`] has something to return.
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.news.is_empty() {
            return Some(Duration::ZERO);
        }
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Ends leases whose time is over. Returns all that ended without a file since the last call.
    pub fn take_ended(&mut self, now: Duration) -> Vec<Arc<[u8]>> {
        while let Some((until, path)) = self.deadlines.first().cloned()
            && until <= now
        {
            if self.is_running(&path, now) {
                // A slow disk is creating it.
                self.deadlines.remove(&(until, path.clone()));
                let later = now.saturating_add(LEASE);
                self.deadlines.insert((later, path.clone()));
                self.running.entry(path).and_modify(|running| running.until = later);
            }
        }
        while let Some((at, key)) = self.ended_order.front().copied()
            && (self.ended_order.len() > ENDED_MAX || at.saturating_add(ENDED_KEPT) <= now)
        {
            self.ended_order.pop_front();
            if self.ended.get(&key).is_some_and(|ended| ended.at == at) {
                self.ended.remove(&key);
            }
        }
        std::mem::take(&mut self.news)
    }

    fn lapse(&mut self, path: &[u8], now: Duration) {
        let Some((path, running)) = self.running.remove_entry(path) else { return };
        self.deadlines.remove(&(running.until, path.clone()));
        let key = self.hasher.hash_one(&*path);
        self.ended.insert(key, Ended { at: now, refusals: 0 });
        self.ended_order.push_back((now, key));
        self.news.push(path);
    }

    fn forget_ended(&mut self, path: &[u8]) {
        if !self.ended.is_empty() {
            self.ended.remove(&self.hasher.hash_one(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(100);
    const UNTIL: Duration = Duration::from_secs(130);
    const LATER: Duration = Duration::from_secs(131);

    fn leased() -> Leases {
        let mut leases = Leases::default();
        leases.grant(b"/f", UNTIL, NOW);
        leases
    }

    #[test]
    fn a_creation_is_refused_once_a_parent_was_told_that_the_lease_has_ended() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/other", NOW), Permit::Free);
        assert!(leases.is_running(b"/f", NOW));
        assert!(!leases.is_running(b"/f", LATER));
        // Even by a clock that is behind.
        assert_eq!(leases.begin(b"/f", NOW), Permit::Refused);
        assert!(leases.has_ended(b"/f"));
        assert_eq!(leases.take_ended(LATER), [Arc::from(&b"/f"[..])]);
        leases.grant(b"/f", LATER + LEASE, LATER);
        assert_eq!(leases.begin(b"/f", LATER), Permit::Leased);
    }

    #[test]
    fn a_lease_does_not_end_while_a_slow_disk_creates_the_file() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
        assert_eq!(leases.take_ended(LATER), []);
        assert!(leases.is_running(b"/f", LATER));
        assert!(leases.next_deadline() > Some(LATER));
        leases.end(b"/f", Outcome::Created, LATER);
        assert!(leases.is_empty() && leases.next_deadline().is_none());
        assert_eq!(leases.begin(b"/f", LATER), Permit::Free);
    }

    #[test]
    fn a_creation_that_failed_ends_the_lease_and_one_that_is_retried_does_not() {
        let mut leases = leased();
        for (outcome, running) in [(Outcome::Retried, true), (Outcome::Failed, false)] {
            assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
            leases.end(b"/f", outcome, NOW);
            assert_eq!(leases.is_running(b"/f", NOW), running);
        }
        assert_eq!(leases.next_deadline(), Some(Duration::ZERO));
        assert_eq!(leases.take_ended(NOW).len(), 1);
        assert_eq!(leases.begin(b"/f", NOW), Permit::Refused);
        leases.exists(b"/f");
        assert_eq!(leases.begin(b"/f", NOW), Permit::Free, "it is truncated or refused as what exists");
    }

    #[test]
    fn a_parent_ends_a_lease_unless_a_creation_has_begun() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
        leases.grant_for(b"/f", Duration::ZERO, NOW);
        assert!(leases.is_running(b"/f", NOW));
        leases.end(b"/f", Outcome::Retried, NOW);
        leases.grant_for(b"/f", Duration::ZERO, NOW);
        assert_eq!(leases.begin(b"/f", NOW), Permit::Refused);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
        // Forgotten in a restart, for example.
        let mut leases = Leases::default();
        leases.grant_for(b"/f", Duration::ZERO, NOW);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
        assert_eq!(leases.begin(b"/f", NOW), Permit::Refused);
    }

    #[test]
    fn nothing_grows_and_nobody_is_sent_in_circles() {
        let mut leases = Leases::default();
        for number in 0..3 * RUNNING_MAX {
            leases.grant(format!("/{number}").as_bytes(), UNTIL, NOW);
            assert!(leases.running.len() <= RUNNING_MAX && leases.deadlines.len() <= RUNNING_MAX);
        }
        leases.take_ended(LATER);
        assert!(leases.running.is_empty() && leases.deadlines.is_empty());
        assert_eq!(leases.ended_order.len(), 3 * RUNNING_MAX);
        let refused = (0..100).filter(|_| leases.begin(b"/1", LATER) == Permit::Refused).count();
        assert_eq!(refused, usize::from(REFUSALS_MAX));
        leases.take_ended(LATER + ENDED_KEPT);
        assert!(leases.is_empty() && leases.ended_order.is_empty());
    }
}
