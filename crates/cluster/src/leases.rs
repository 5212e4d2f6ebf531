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

use crate::cache::PLACEMENT_HOLD;
use crate::lease_number::LeaseNumber;

/// How long a client has to reach the node that is to create its file. A client that needs longer asks again. Another creator
/// of the same file waits for so long when the first one never comes.
pub const LEASE: Duration = Duration::from_secs(30);
/// How long clients come that were given a lease: as long as a parent counts on a node that says nothing more.
pub const EXPECTED_FOR: Duration = PLACEMENT_HOLD;
/// Leases that run at most; beyond, the oldest ends.
const RUNNING_MAX: usize = 16_384;
/// Ended leases that are remembered at most; beyond, the oldest is forgotten.
const ENDED_MAX: usize = 65_536;
/// How long an ended lease is remembered: no client is redirected for longer.
const ENDED_KEPT: Duration = Duration::from_secs(3600);
/// After this time a client asks again that may have come before its lease: at the manager it would wait until that has ended.
pub const OVERTAKEN: Duration = Duration::from_secs(1);
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
    /// The same, but a new lease may be on its way, which the client has overtaken: it asks again after [`OVERTAKEN`].
    Later,
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
    number: LeaseNumber,
    /// Creations that have begun and not ended. As long as there are any, the lease has no deadline.
    creations: usize,
}

impl Running {
    fn reported(&self) -> LeaseNumber {
        if self.creations > 0 { LeaseNumber::CREATING } else { self.number }
    }
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
    /// Deadlines of the leases for which no creation has begun.
    deadlines: BTreeSet<(Duration, Arc<[u8]>)>,
    /// By a hash of the path: a wrong match costs a client one more request.
    ended: HashMap<u64, Ended>,
    ended_order: VecDeque<(Duration, u64)>,
    /// Leases that ended since [`Self::take_ended`].
    news: Vec<Arc<[u8]>>,
    hasher: RandomState,
    /// Until then clients may be on their way that have leases of an earlier run, which this one does not know.
    earlier_until: Option<Duration>,
}

impl Leases {
    /// Reports whether every path is free.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.ended.is_empty() && self.earlier_until.is_none()
    }

    /// Clients with leases of an earlier run of this node may come for `time`: [`EXPECTED_FOR`] from the last such lease. Until
    /// then only files with a lease of this run are created, because a parent may choose another node that is told of no lease.
    pub fn recover(&mut self, time: Duration, now: Duration) {
        self.earlier_until = Some(now.saturating_add(time));
    }

    /// Grants a lease, or prolongs it.
    pub fn grant(&mut self, path: &[u8], number: LeaseNumber, until: Duration, now: Duration) {
        self.forget_ended(path);
        let known = self.running.get_key_value(path).map(|(path, running)| (path.clone(), running.until));
        let path = match known {
            Some((path, before)) => {
                self.deadlines.remove(&(before, path.clone()));
                path
            }
            None => Arc::from(path),
        };
        let running = self.running.entry(path.clone()).or_insert(Running { until, number, creations: 0 });
        running.until = until;
        running.number = running.number.max(number);
        if running.creations == 0 {
            self.deadlines.insert((until, path));
        }
        if self.running.len() > RUNNING_MAX
            && let Some((_, oldest)) = self.deadlines.first().cloned()
        {
            self.lapse(&oldest, now);
        }
    }

    /// Does what a parent orders: grants a lease for this long, or ends one with a lower number when the time is zero. Returns the
    /// number of a lease that stays although it was to end, because it is the later one: the parent is to be told of it. A lease
    /// within which a creation has begun stays, too, and the file follows.
    pub fn order(
        &mut self,
        path: &[u8],
        time: Duration,
        number: LeaseNumber,
        now: Duration,
    ) -> Option<LeaseNumber> {
        if !time.is_zero() {
            self.grant(path, number, now.saturating_add(time.min(2 * LEASE)), now);
            return None;
        }
        match self.running.get(path) {
            Some(running) if running.creations > 0 => None,
            Some(running) if running.number > number => Some(running.number),
            // Two nodes report the same lease while its holder moves from one to the other.
            Some(running) if running.number == number => None,
            Some(_) => {
                self.lapse(path, now);
                None
            }
            // It has ended before, or was forgotten in a restart: the parent is told of its end all the same.
            None => {
                self.note_ended(Arc::from(path), now);
                None
            }
        }
    }

    /// Returns the number of the lease of a path as parents are told, if it runs.
    pub fn number(&mut self, path: &[u8], now: Duration) -> Option<LeaseNumber> {
        if !self.is_running(path, now) {
            return None;
        }
        self.running.get(path).map(Running::reported)
    }

    /// Returns all leases that run, for a new parent.
    pub fn running(&self, now: Duration) -> impl Iterator<Item = (&Arc<[u8]>, LeaseNumber)> {
        let runs = move |running: &Running| running.creations > 0 || now < running.until;
        let all = self.running.iter().filter(move |(_, running)| runs(running));
        all.map(|(path, running)| (path, running.reported()))
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

    /// Reports whether a parent that asks for this path, which is not here, has to be told that its lease has ended. After a
    /// restart that is so for every path: the lease may be one of the earlier run.
    pub fn has_ended(&mut self, path: &[u8], now: Duration) -> bool {
        if self.is_running(path, now) {
            return false;
        }
        self.ended.contains_key(&self.hasher.hash_one(path)) || self.expects_earlier(now)
    }

    /// A client wants to create this path.
    pub fn begin(&mut self, path: &[u8], now: Duration) -> Permit {
        if self.is_running(path, now) {
            if let Some((path, running)) = self.running.get_key_value(path)
                && running.creations == 0
            {
                self.deadlines.remove(&(running.until, path.clone()));
            }
            if let Some(running) = self.running.get_mut(path) {
                running.creations += 1;
            }
            return Permit::Leased;
        }
        let key = self.hasher.hash_one(path);
        let is_earlier = self.expects_earlier(now);
        if is_earlier && !self.ended.contains_key(&key) {
            self.refuse(key, now);
        }
        let Some(ended) = self.ended.get_mut(&key) else { return Permit::Free };
        ended.refusals = ended.refusals.wrapping_add(1);
        let (is_first, is_last) = (ended.refusals % 2 == 1, ended.refusals >= REFUSALS_MAX);
        let is_current = is_earlier || now < ended.at.saturating_add(ENDED_KEPT);
        if !is_current || is_last && !is_earlier {
            self.ended.remove(&key);
        }
        match (is_current, is_first) {
            (false, _) => Permit::Free,
            (true, true) => Permit::Later,
            (true, false) => Permit::Refused,
        }
    }

    /// A creation that was [`Permit::Leased`] has ended.
    pub fn end(&mut self, path: &[u8], outcome: Outcome, now: Duration) {
        let Some(running) = self.running.get_mut(path) else { return };
        running.creations = running.creations.saturating_sub(1);
        // Another client that is creating it may succeed.
        let is_idle = running.creations == 0;
        let until = running.until;
        match outcome {
            Outcome::Created => self.exists(path),
            Outcome::Failed if is_idle => self.lapse(path, now),
            Outcome::Retried if is_idle => {
                let known = self.running.get_key_value(path).map(|(path, _)| path.clone());
                self.deadlines.extend(known.map(|path| (until, path)));
            }
            Outcome::Failed | Outcome::Retried => {}
        }
    }

    /// Another node that had this lease from here has ended it: clients that were sent here for it come too late.
    pub fn ended_below(&mut self, path: &[u8], now: Duration) {
        if !self.is_running(path, now) {
            self.refuse(self.hasher.hash_one(path), now);
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
            self.lapse(&path, now);
        }
        self.forget_old(now);
        self.expects_earlier(now);
        std::mem::take(&mut self.news)
    }

    fn lapse(&mut self, path: &[u8], now: Duration) {
        let Some((path, running)) = self.running.remove_entry(path) else { return };
        self.deadlines.remove(&(running.until, path.clone()));
        self.note_ended(path, now);
    }

    fn note_ended(&mut self, path: Arc<[u8]>, now: Duration) {
        self.refuse(self.hasher.hash_one(&*path), now);
        self.news.push(path);
    }

    /// Creations of a path are refused from now on. Those that were refused before count, because the end of one lease may be
    /// ordered several times.
    fn refuse(&mut self, key: u64, now: Duration) {
        self.ended.entry(key).or_insert(Ended { at: now, refusals: 0 }).at = now;
        self.ended_order.push_back((now, key));
        self.forget_old(now);
    }

    /// Forgets leases that ended long ago, and the oldest of too many.
    fn forget_old(&mut self, now: Duration) {
        while let Some((at, key)) = self.ended_order.front().copied()
            && (self.ended_order.len() > ENDED_MAX || at.saturating_add(ENDED_KEPT) <= now)
        {
            self.ended_order.pop_front();
            if self.ended.get(&key).is_some_and(|ended| ended.at == at) {
                self.ended.remove(&key);
            }
        }
    }

    /// Reports whether clients may come with leases of an earlier run.
    pub(crate) fn expects_earlier(&mut self, now: Duration) -> bool {
        self.earlier_until = self.earlier_until.filter(|until| now < *until);
        self.earlier_until.is_some()
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

    const FIRST: LeaseNumber = LeaseNumber(1);
    const NEXT: LeaseNumber = LeaseNumber(2);
    const NOW: Duration = Duration::from_secs(100);
    const UNTIL: Duration = Duration::from_secs(130);
    const LATER: Duration = Duration::from_secs(131);

    fn leased() -> Leases {
        let mut leases = Leases::default();
        leases.grant(b"/f", FIRST, UNTIL, NOW);
        leases
    }

    /// What the next two clients are told.
    fn refusals(leases: &mut Leases, path: &[u8], now: Duration) -> [Permit; 2] {
        [(); 2].map(|()| leases.begin(path, now))
    }

    #[test]
    fn a_creation_is_refused_once_a_parent_was_told_that_the_lease_has_ended() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/other", NOW), Permit::Free);
        assert!(leases.is_running(b"/f", NOW));
        assert!(!leases.is_running(b"/f", LATER));
        // Even by a clock that is behind.
        assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
        assert!(leases.has_ended(b"/f", NOW));
        assert_eq!(leases.take_ended(LATER), [Arc::from(&b"/f"[..])]);
        leases.grant(b"/f", NEXT, LATER + LEASE, LATER);
        assert_eq!(leases.begin(b"/f", LATER), Permit::Leased);
    }

    #[test]
    fn a_lease_does_not_end_while_a_slow_disk_creates_the_file() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
        assert_eq!(leases.take_ended(LATER), []);
        assert!(leases.is_running(b"/f", LATER));
        assert_eq!(leases.next_deadline(), None);
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
        assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
        leases.exists(b"/f");
        assert_eq!(leases.begin(b"/f", NOW), Permit::Free, "it is truncated or refused as what exists");
    }

    #[test]
    fn a_parent_ends_a_lease_unless_a_creation_has_begun() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
        leases.order(b"/f", Duration::ZERO, NEXT, NOW);
        assert!(leases.is_running(b"/f", NOW));
        leases.end(b"/f", Outcome::Retried, NOW);
        leases.order(b"/f", Duration::ZERO, NEXT, NOW);
        assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
        // Forgotten in a restart, for example.
        let mut leases = Leases::default();
        leases.order(b"/f", Duration::ZERO, NEXT, NOW);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
        assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
    }

    #[test]
    fn a_client_that_has_overtaken_its_lease_asks_again() {
        let mut leases = leased();
        leases.order(b"/f", Duration::ZERO, NEXT, NOW);
        assert_eq!(leases.begin(b"/f", NOW), Permit::Later);
        leases.grant(b"/f", FIRST, UNTIL, NOW);
        assert_eq!(leases.begin(b"/f", NOW + OVERTAKEN), Permit::Leased);
    }

    #[test]
    fn a_lease_that_is_ended_again_sends_its_clients_back_all_the_same() {
        let mut leases = leased();
        let mut permits = Vec::new();
        for _ in 0..4 {
            leases.order(b"/f", Duration::ZERO, NEXT, NOW);
            assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])], "the parent is told each time");
            permits.push(leases.begin(b"/f", NOW));
        }
        assert_eq!(permits, [Permit::Later, Permit::Refused, Permit::Later, Permit::Refused]);
    }

    #[test]
    fn of_two_leases_the_earlier_one_ends() {
        let mut leases = leased();
        assert_eq!(leases.order(b"/f", Duration::ZERO, LeaseNumber(0), NOW), Some(FIRST));
        assert_eq!(leases.order(b"/f", Duration::ZERO, FIRST, NOW), None, "it is the same");
        assert_eq!(leases.number(b"/f", NOW), Some(FIRST));
        // A successor on the way here is not ended by what was meant for its predecessor.
        leases.grant(b"/f", NEXT, UNTIL, NOW);
        leases.grant(b"/f", FIRST, UNTIL, NOW);
        assert_eq!(leases.order(b"/f", Duration::ZERO, FIRST, NOW), Some(NEXT));
        assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
        assert_eq!(leases.number(b"/f", LATER), Some(LeaseNumber::CREATING));
        assert_eq!(leases.order(b"/f", Duration::ZERO, LeaseNumber::CREATING, NOW), None);
        assert_eq!(leases.running(LATER).count(), 1);
        leases.end(b"/f", Outcome::Retried, NOW);
        assert_eq!(leases.running(LATER).count(), 0);
        assert_eq!(leases.order(b"/f", Duration::ZERO, LeaseNumber::CREATING, NOW), None);
        assert_eq!(leases.number(b"/f", NOW), None);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
    }

    #[test]
    fn nothing_grows_and_nobody_is_sent_in_circles() {
        let mut leases = Leases::default();
        for number in 0..3 * RUNNING_MAX {
            leases.grant(format!("/{number}").as_bytes(), FIRST, UNTIL, NOW);
            assert!(leases.running.len() <= RUNNING_MAX && leases.deadlines.len() <= RUNNING_MAX);
        }
        leases.take_ended(LATER);
        assert!(leases.running.is_empty() && leases.deadlines.is_empty());
        assert_eq!(leases.ended_order.len(), 3 * RUNNING_MAX);
        assert_eq!(leases.begin(b"/0", NOW), Permit::Later, "the oldest ended, and its client asks again");
        let refused = (0..100).filter(|_| leases.begin(b"/1", LATER) != Permit::Free).count();
        assert_eq!(refused, usize::from(REFUSALS_MAX));
        leases.take_ended(LATER + ENDED_KEPT);
        assert!(leases.is_empty() && leases.ended_order.is_empty());
    }

    #[test]
    fn creations_that_hang_do_not_lengthen_the_search_for_the_oldest_lease() {
        let mut leases = Leases::default();
        for number in 0..2 * RUNNING_MAX {
            let path = format!("/{number}");
            leases.grant(path.as_bytes(), FIRST, UNTIL, NOW);
            if leases.begin(path.as_bytes(), NOW) == Permit::Leased {
                assert!(leases.deadlines.is_empty(), "what hangs is not looked at");
            }
        }
        assert_eq!(leases.running.len(), RUNNING_MAX, "the next ones end at once");
        assert_eq!(leases.take_ended(NOW).len(), RUNNING_MAX);
        leases.end(b"/0", Outcome::Retried, NOW);
        assert_eq!(leases.next_deadline(), Some(UNTIL));
        leases.end(b"/1", Outcome::Retried, LATER);
        assert_eq!(leases.take_ended(LATER).len(), 2);
    }

    #[test]
    fn after_a_restart_nothing_is_created_without_a_lease_as_long_as_clients_with_earlier_ones_may_come() {
        let mut leases = Leases::default();
        leases.recover(EXPECTED_FOR, NOW);
        assert!(!leases.is_empty() && leases.has_ended(b"/f", NOW));
        for _ in 0..300 {
            assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
        }
        leases.grant(b"/g", FIRST, UNTIL, NOW);
        assert_eq!(leases.begin(b"/g", NOW), Permit::Leased);
        leases.end(b"/g", Outcome::Created, NOW);
        let over = NOW + EXPECTED_FOR;
        assert!(!leases.has_ended(b"/h", over), "no parent counts on an earlier run any longer");
        assert_eq!(leases.begin(b"/h", over), Permit::Free);
    }
}
