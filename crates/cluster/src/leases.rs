//! Leases of files that clients are about to create here (decision 001).
//!
//! The parent that chooses this node for a new file grants a lease before it redirects the client.
//! From then on this node is the authority: it answers every query for the path with the lease,
//! until the file exists or the lease ends.
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
//! Once [`Leases::is_running`] has returned `false` for a path, [`Leases::begin`] refuses it. So a
//! parent that received "not here" may choose another node, however late the first client arrives.

use std::collections::hash_map::RandomState;
use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::time::Duration;

use crate::cache::PLACEMENT_HOLD;
use crate::lease_number::{LeaseNumber, LeaseReport};

/// The time for a client to reach the node that creates its file. A client that needs longer asks
/// again. If the client never arrives, another creator of the same file waits for this time.
pub const LEASE: Duration = Duration::from_secs(30);
/// The time after a grant during which clients with the lease can arrive. A parent counts on a
/// disconnected node for the same time.
pub const EXPECTED_FOR: Duration = PLACEMENT_HOLD;
/// The maximum number of running leases; beyond it, the oldest ends.
const RUNNING_MAX: usize = 16_384;
/// The maximum number of ended leases that are kept; beyond it, the oldest is forgotten.
const ENDED_MAX: usize = 65_536;
/// The time for which an ended lease is kept. A redirect is not valid for longer.
const ENDED_KEPT: Duration = Duration::from_secs(3600);
/// The delay before a client retries that may have arrived before its lease. At the manager it
/// would wait until the lease has ended.
pub const OVERTAKEN: Duration = Duration::from_secs(1);
/// The maximum number of creations that one ended lease refuses, so that a client is not redirected
/// in circles.
const REFUSALS_MAX: u8 = 16;

/// The decision on a creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Permit {
    /// The path has no lease: the client came without a redirect of a parent.
    Free,
    /// The lease is held until [`Leases::end`].
    Leased,
    /// The lease has ended: another node may be creating the file.
    Refused,
    /// The lease has ended, but a new one may be on its way and slower than the client, which
    /// retries after [`OVERTAKEN`].
    Later,
}

/// The result of a creation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CreationOutcome {
    /// The file exists.
    Created,
    /// The client received an error.
    Failed,
    /// The client retries.
    Retried,
}

#[derive(Debug)]
struct GrantedLease {
    until: Duration,
    number: LeaseNumber,
    /// Creations in progress. The lease has no deadline while there are any.
    creations: usize,
}

impl GrantedLease {
    /// Returns the lease as reported to parents. A creation in progress suspends the deadline. It
    /// is reported all the same, zero after it has passed: a parent that has known the lease since
    /// its grant counts from there too, and receives no report of the creation.
    fn report(&self, now: Duration) -> LeaseReport {
        let number = if self.creations > 0 { LeaseNumber::CREATING } else { self.number };
        LeaseReport { number, left: Some(self.until.saturating_sub(now)) }
    }
}

#[derive(Debug)]
struct Ended {
    at: Duration,
    refusals: u8,
    /// Set if no lease of this path is known to have ended: the refusals are those of the recovery,
    /// and end with it.
    is_assumed: bool,
}

/// All leases of a node.
#[derive(Default, Debug)]
pub struct Leases {
    running: HashMap<Arc<[u8]>, GrantedLease>,
    /// Deadlines of the leases without a creation in progress.
    deadlines: BTreeSet<(Duration, Arc<[u8]>)>,
    /// Ended leases by a hash of the path. A collision costs a client one more request.
    ended: HashMap<u64, Ended>,
    ended_order: VecDeque<(Duration, u64)>,
    /// Leases that ended since [`Self::take_ended`].
    news: Vec<Arc<[u8]>>,
    hasher: RandomState,
    /// The time until which clients with leases of an earlier run may arrive. This run does not
    /// know those leases.
    earlier_until: Option<Duration>,
    /// Set while a parent that grants no leases is connected. It sends clients without leases here.
    has_plain_parent: bool,
}

impl Leases {
    /// Reports whether every path is free.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty() && self.ended.is_empty() && self.earlier_until.is_none()
    }

    /// Expects clients with leases of an earlier run of this node for `time`: [`EXPECTED_FOR`] from
    /// the last such lease. Until then only files with a lease of this run are created, because a
    /// parent may choose another node when this one reports no lease.
    pub fn recover(&mut self, time: Duration, now: Duration) {
        self.earlier_until = Some(now.saturating_add(time));
    }

    /// Sets whether a parent that grants no leases is connected. Such a parent may choose two nodes
    /// for one file in any case, so the recovery does not refuse its clients.
    pub fn set_plain_parent(&mut self, is_connected: bool) {
        self.has_plain_parent = is_connected;
    }

    /// Grants a lease, or extends it.
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
        let running =
            self.running.entry(path.clone()).or_insert(GrantedLease { until, number, creations: 0 });
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

    /// Carries out the order of a parent: grants a lease for this time, or ends one with a lower
    /// number if the time is zero. Returns a lease that has to be reported to the parent, because
    /// it is later than the one to be ended. A lease with a creation in progress
    /// stays, too; the file follows.
    pub fn order(
        &mut self,
        path: &[u8],
        time: Duration,
        number: LeaseNumber,
        now: Duration,
    ) -> Option<LeaseReport> {
        if !time.is_zero() {
            self.grant(path, number, now.saturating_add(time.min(2 * LEASE)), now);
            return None;
        }
        match self.running.get(path) {
            Some(running) if running.creations > 0 => None,
            Some(running) if running.number > number => Some(running.report(now)),
            // Two nodes report the same lease while its holder moves from one to the other.
            Some(running) if running.number == number => None,
            Some(_) => {
                self.lapse(path, now);
                None
            }
            // The lease has ended before, or was lost in a restart: its end is reported to the
            // parent in either case.
            None => {
                self.note_ended(Arc::from(path), now);
                None
            }
        }
    }

    /// Returns the lease of a path, as reported to parents, if it is running.
    pub fn report(&mut self, path: &[u8], now: Duration) -> Option<LeaseReport> {
        if !self.is_running(path, now) {
            return None;
        }
        self.running.get(path).map(|running| running.report(now))
    }

    /// Returns all running leases, for a new parent.
    pub fn running(&self, now: Duration) -> impl Iterator<Item = (&Arc<[u8]>, LeaseReport)> {
        let runs = move |running: &GrantedLease| running.creations > 0 || now < running.until;
        let all = self.running.iter().filter(move |(_, running)| runs(running));
        all.map(move |(path, running)| (path, running.report(now)))
    }

    /// Reports whether a client may still create this path. After its deadline the lease ends by
    /// this call.
    pub fn is_running(&mut self, path: &[u8], now: Duration) -> bool {
        let Some(running) = self.running.get(path) else { return false };
        let runs = running.creations > 0 || now < running.until;
        if !runs {
            self.lapse(path, now);
        }
        runs
    }

    /// Reports whether a query of a parent for this path, which does not exist here, is answered
    /// with the end of its lease. During the recovery after a restart every path is answered so,
    /// because its lease may be one of the earlier run.
    pub fn has_ended(&mut self, path: &[u8], now: Duration) -> bool {
        if self.is_running(path, now) {
            return false;
        }
        let ended = self.ended.get(&self.hasher.hash_one(path));
        ended.is_some_and(|ended| !ended.is_assumed) || self.expects_earlier(now)
    }

    /// Decides whether a client may create this path.
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
            self.refuse(key, true, now);
        }
        let Some(ended) = self.ended.get_mut(&key) else { return Permit::Free };
        if ended.is_assumed && !is_earlier {
            self.ended.remove(&key);
            return Permit::Free;
        }
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

    /// Ends a creation that was [`Permit::Leased`].
    pub fn end(&mut self, path: &[u8], outcome: CreationOutcome, now: Duration) {
        let Some(running) = self.running.get_mut(path) else { return };
        running.creations = running.creations.saturating_sub(1);
        // Another client with a creation in progress may succeed.
        let is_idle = running.creations == 0;
        let until = running.until;
        match outcome {
            CreationOutcome::Created => self.exists(path),
            CreationOutcome::Failed if is_idle => self.lapse(path, now),
            CreationOutcome::Retried if is_idle => {
                let known = self.running.get_key_value(path).map(|(path, _)| path.clone());
                self.deadlines.extend(known.map(|path| (until, path)));
            }
            CreationOutcome::Failed | CreationOutcome::Retried => {}
        }
    }

    /// Ends a lease that another node received from here and has ended. Clients that were sent here
    /// for it arrive too late.
    pub fn ended_below(&mut self, path: &[u8], now: Duration) {
        if !self.is_running(path, now) {
            self.refuse(self.hasher.hash_one(path), false, now);
        }
    }

    /// Ends the lease of a path that exists now. The next creation is judged by the existing file.
    pub fn exists(&mut self, path: &[u8]) {
        self.forget_ended(path);
        if let Some((path, running)) = self.running.remove_entry(path) {
            self.deadlines.remove(&(running.until, path));
        }
    }

    /// Returns the time of the next result of [`Self::take_ended`].
    pub fn next_deadline(&self) -> Option<Duration> {
        if !self.news.is_empty() {
            return Some(Duration::ZERO);
        }
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Ends leases whose deadline has passed. Returns all that ended without a file since the last
    /// call.
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
        self.refuse(self.hasher.hash_one(&*path), false, now);
        self.news.push(path);
    }

    /// Refuses creations of a path from now on. Earlier refusals count, because the end of one
    /// lease may be ordered several times.
    fn refuse(&mut self, key: u64, is_assumed: bool, now: Duration) {
        let ended = self.ended.entry(key).or_insert(Ended { at: now, refusals: 0, is_assumed });
        ended.at = now;
        ended.is_assumed &= is_assumed;
        self.ended_order.push_back((now, key));
        self.forget_old(now);
    }

    /// Forgets leases that ended long ago, and the oldest ones beyond the limit.
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

    /// Reports whether only files with leases of this run are created, because clients with leases
    /// of an earlier one may arrive.
    pub(crate) fn expects_earlier(&mut self, now: Duration) -> bool {
        self.earlier_until = self.earlier_until.filter(|until| now < *until);
        self.earlier_until.is_some() && !self.has_plain_parent
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

    /// Returns a report with so many seconds until the deadline.
    fn left(number: LeaseNumber, seconds: u64) -> Option<LeaseReport> {
        Some(LeaseReport { number, left: Some(Duration::from_secs(seconds)) })
    }

    /// Returns the decisions for the next two clients.
    fn refusals(leases: &mut Leases, path: &[u8], now: Duration) -> [Permit; 2] {
        [(); 2].map(|()| leases.begin(path, now))
    }

    #[test]
    fn a_creation_is_refused_once_the_end_of_its_lease_was_reported() {
        let mut leases = leased();
        assert_eq!(leases.begin(b"/other", NOW), Permit::Free);
        assert!(leases.is_running(b"/f", NOW));
        assert!(!leases.is_running(b"/f", LATER));
        // The same holds for a clock that is behind.
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
        leases.end(b"/f", CreationOutcome::Created, LATER);
        assert!(leases.is_empty() && leases.next_deadline().is_none());
        assert_eq!(leases.begin(b"/f", LATER), Permit::Free);
    }

    #[test]
    fn a_creation_that_failed_ends_the_lease_and_one_that_is_retried_does_not() {
        let mut leases = leased();
        for (outcome, running) in [(CreationOutcome::Retried, true), (CreationOutcome::Failed, false)] {
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
        leases.end(b"/f", CreationOutcome::Retried, NOW);
        leases.order(b"/f", Duration::ZERO, NEXT, NOW);
        assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
        // The lease was lost, for example by a restart.
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
        assert_eq!(leases.order(b"/f", Duration::ZERO, LeaseNumber(0), NOW), left(FIRST, 30));
        assert_eq!(leases.order(b"/f", Duration::ZERO, FIRST, NOW), None, "it is the same");
        assert_eq!(leases.report(b"/f", NOW), left(FIRST, 30));
        // An order to end the predecessor does not end a successor that is on its way here.
        leases.grant(b"/f", NEXT, UNTIL, NOW);
        leases.grant(b"/f", FIRST, UNTIL, NOW);
        assert_eq!(leases.order(b"/f", Duration::ZERO, FIRST, NOW), left(NEXT, 30));
        assert_eq!(leases.begin(b"/f", NOW), Permit::Leased);
        assert_eq!(leases.report(b"/f", LATER), left(LeaseNumber::CREATING, 0));
        assert_eq!(leases.order(b"/f", Duration::ZERO, LeaseNumber::CREATING, NOW), None);
        assert_eq!(leases.running(LATER).count(), 1);
        leases.end(b"/f", CreationOutcome::Retried, NOW);
        assert_eq!(leases.running(LATER).count(), 0);
        assert_eq!(leases.order(b"/f", Duration::ZERO, LeaseNumber::CREATING, NOW), None);
        assert_eq!(leases.report(b"/f", NOW), None);
        assert_eq!(leases.take_ended(NOW), [Arc::from(&b"/f"[..])]);
    }

    #[test]
    fn the_tables_are_bounded_and_no_client_is_redirected_in_circles() {
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
        leases.end(b"/0", CreationOutcome::Retried, NOW);
        assert_eq!(leases.next_deadline(), Some(UNTIL));
        leases.end(b"/1", CreationOutcome::Retried, LATER);
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
        leases.end(b"/g", CreationOutcome::Created, NOW);
        let over = NOW + EXPECTED_FOR;
        assert!(!leases.has_ended(b"/h", over), "no parent counts on an earlier run any longer");
        for path in [&b"/f"[..], b"/h"] {
            assert_eq!(leases.begin(path, over), Permit::Free);
        }
    }

    #[test]
    fn after_a_restart_clients_of_a_parent_that_grants_no_leases_are_served() {
        let mut leases = Leases::default();
        leases.recover(EXPECTED_FOR, NOW);
        leases.order(b"/ended", Duration::ZERO, NEXT, NOW);
        assert_eq!(leases.begin(b"/f", NOW), Permit::Later);
        leases.set_plain_parent(true);
        assert!(!leases.has_ended(b"/f", NOW), "no creation is refused after this reply");
        assert_eq!(leases.begin(b"/f", NOW), Permit::Free);
        assert_eq!(leases.begin(b"/ended", NOW), Permit::Later, "the end of this lease was reported");
        leases.set_plain_parent(false);
        assert_eq!(refusals(&mut leases, b"/f", NOW), [Permit::Later, Permit::Refused]);
    }
}
