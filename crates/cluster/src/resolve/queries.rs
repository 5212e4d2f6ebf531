//! Open queries and the requests that wait for them.
//!
//! There is one query per path at a time, shared by all requests for the path. A query holds the
//! children that were asked and the query timeout; the cache holds the results.
//!
//! An event concerns all requests that wait for a query, and the loss of a child concerns all its
//! queries. Both are marked at once and handled in steps: [`Queries::take_unjudged`],
//! [`Queries::next_lost`].

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::IdMap;
use slab::Slab;

use super::select::Question;
use crate::request::LocateFlags;
use crate::slots::{Slot, SlotMask};

/// The maximum number of open queries; beyond it, clients are asked to retry.
pub const QUERIES_MAX: usize = 1 << 16;
/// The maximum number of bytes of the paths of queries: 512 for each.
pub(super) const QUERY_BYTES_MAX: usize = 512 * QUERIES_MAX;
/// The maximum number of waiting requests; beyond it, clients are asked to retry.
pub const WAITERS_MAX: usize = 1 << 18;

/// The number of requests in the list of a query that are looked at for each abandoned one.
const LOOKED_AT_PER_ABANDONED: usize = 2;

/// The maximum number of empty lists that are kept for other queries, and the maximum capacity of
/// each. A query lasts for seconds after its only request has been answered.
const SPARE_LISTS_MAX: usize = 64;
const SPARE_CAPACITY_MAX: usize = 16;

/// A token for a request that is answered later. Its meaning is up to the driver. Of requests with
/// the same token only the last can be abandoned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct RequestToken(pub u64);

/// The event after which the waiting requests of a query are judged again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Settle {
    /// A child replied, or was lost.
    Heard,
    /// A child replied, and all parents have received its reply.
    Announced,
    /// The query timed out.
    GivenUp,
}

/// The kind of answer that a request waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum WaiterRequest {
    /// A client waits for a child.
    Select(Question),
    /// A client waits for the list of holders.
    Locate(LocateFlags),
    /// A parent waits for the presence of a file.
    State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct QueryWaiter {
    pub(super) token: RequestToken,
    pub(super) request: WaiterRequest,
    /// The deadline of the hold, once the request was held.
    pub(super) held_until: Option<Duration>,
    /// The number of changes of slot owners that its avoided children account for: see `replaced`.
    pub(super) replacements: u64,
}

impl QueryWaiter {
    pub(super) const fn new(token: RequestToken, wish: WaiterRequest, replacements: u64) -> Self {
        Self { token, request: wish, held_until: None, replacements }
    }
}

#[derive(Debug)]
pub(super) struct ChildQuery {
    pub(super) path: Arc<[u8]>,
    /// Children without a reply; [`Queries::lose`] finds the query by each.
    outstanding: SlotMask,
    pub(super) started: Duration,
    /// The time at which a child was last queried.
    pub(super) queried_at: Duration,
    /// The children were asked not to answer from their caches.
    pub(super) refresh: bool,
    /// The driver was asked to look itself.
    pub(super) looking: bool,
    /// The look had no result.
    pub(super) blind: bool,
    /// Parents that rely on the path are notified if no child has it.
    pub(super) retracts: bool,
    waiters: VecDeque<QueryWaiter>,
    /// The number of waiters, from the front, that are to be judged again.
    unjudged: usize,
    /// The reason for judging them again.
    pub(super) why: Settle,
    /// Abandoned waiters that are still in the list.
    abandoned: HashSet<RequestToken>,
    /// The version of the cell for which its waiters were judged last.
    pub(super) judged: u64,
    /// [`Duration::MAX`] without a deadline.
    deadline: Duration,
}

impl ChildQuery {
    /// Returns the children that were queried and have not replied.
    pub(super) fn outstanding(&self) -> SlotMask {
        self.outstanding
    }

    /// Reports whether no request waits for it.
    pub(super) fn is_unwanted(&self) -> bool {
        self.waiters.len() == self.abandoned.len()
    }

    /// Reports whether replies are outstanding.
    pub(super) fn is_open(&self) -> bool {
        self.looking || !self.outstanding.is_empty()
    }
}

#[derive(Default, Debug)]
pub(super) struct Queries {
    queries: Slab<ChildQuery>,
    by_path: HashMap<Arc<[u8]>, usize>,
    /// The queries with a deadline.
    deadlines: BTreeSet<(Duration, usize)>,
    /// Empty lists of waiting requests.
    spare: Vec<VecDeque<QueryWaiter>>,
    /// The query of each waiting request.
    by_token: IdMap<RequestToken, usize>,
    /// The queries to which each child has not replied.
    by_slot: IdMap<Slot, QuerySet>,
    /// Queries of lost children that are not settled yet.
    lost: IdMap<Slot, QuerySet>,
    waiters: usize,
    /// Bytes of the paths in `by_path`.
    bytes: usize,
    /// The number of queries and waiters that were looked at.
    steps: u64,
}

/// A set of queries: one bit for each.
#[derive(Default, Debug)]
struct QuerySet {
    words: Vec<u64>,
}

impl QuerySet {
    fn set(&mut self, id: usize, is_member: bool) {
        let (word, bit) = (id / 64, 1_u64 << (id % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        if let Some(word) = self.words.get_mut(word) {
            if is_member { *word |= bit } else { *word &= !bit }
        }
    }

    fn first(&self) -> Option<usize> {
        let (at, word) = self.words.iter().enumerate().find(|(_, word)| **word != 0)?;
        Some(at * 64 + word.trailing_zeros() as usize)
    }

    fn merge(&mut self, other: &Self) {
        if self.words.len() < other.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(word, other)| *word |= other);
    }
}

impl Queries {
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    pub(super) fn get(&self, id: usize) -> Option<&ChildQuery> {
        self.queries.get(id)
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut ChildQuery> {
        self.queries.get_mut(id)
    }

    pub(super) fn len(&self) -> usize {
        self.queries.len()
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }

    /// Returns the query for `path`, a new one if there is none; `None` if the limit is reached.
    pub(super) fn begin(&mut self, path: &[u8], now: Duration) -> Option<usize> {
        if let Some(id) = self.find(path) {
            return Some(id);
        }
        if self.queries.len() >= QUERIES_MAX || self.bytes + path.len() > QUERY_BYTES_MAX {
            return None;
        }
        self.bytes += path.len();
        let path: Arc<[u8]> = Arc::from(path);
        let id = self.queries.insert(ChildQuery {
            path: path.clone(),
            outstanding: SlotMask::EMPTY,
            started: now,
            queried_at: now,
            refresh: false,
            looking: false,
            blind: false,
            retracts: false,
            waiters: VecDeque::new(),
            unjudged: 0,
            why: Settle::Heard,
            abandoned: HashSet::new(),
            judged: 0,
            deadline: Duration::MAX,
        });
        self.by_path.insert(path, id);
        Some(id)
    }

    /// Adds a waiting request to a query; `false` if the limit is reached.
    pub(super) fn wait(&mut self, id: usize, waiter: QueryWaiter) -> bool {
        if self.waiters >= WAITERS_MAX {
            return false;
        }
        let Some(query) = self.queries.get_mut(id) else { return false };
        self.by_token.insert(waiter.token, id);
        if query.waiters.capacity() == 0 {
            query.waiters = self.spare.pop().unwrap_or_default();
        }
        query.waiters.push_back(waiter);
        self.waiters += 1;
        true
    }

    /// Marks all requests that wait for a query as to be judged again.
    pub(super) fn judge_again(&mut self, id: usize, why: Settle) {
        if let Some(query) = self.queries.get_mut(id) {
            (query.unjudged, query.why) = (query.waiters.len(), why);
        }
    }

    /// Reports whether a request that waits for a query is to be judged again.
    pub(super) fn has_unjudged(&self, id: usize) -> bool {
        self.queries.get(id).is_some_and(|query| query.unjudged > 0)
    }

    /// Takes the next request to be judged again; an inner `None` means that it was abandoned. A
    /// request that has to wait on is returned with [`Self::wait`].
    pub(super) fn take_unjudged(&mut self, id: usize) -> Option<Option<QueryWaiter>> {
        let query = self.queries.get_mut(id)?;
        query.unjudged = query.unjudged.checked_sub(1)?;
        let waiter = query.waiters.pop_front()?;
        self.steps += 1;
        if query.waiters.is_empty() {
            let list = std::mem::take(&mut query.waiters);
            if list.capacity() <= SPARE_CAPACITY_MAX && self.spare.len() < SPARE_LISTS_MAX {
                self.spare.push(list);
            }
        }
        if query.abandoned.remove(&waiter.token) {
            return Some(None);
        }
        if self.by_token.get(&waiter.token) == Some(&id) {
            self.by_token.remove(&waiter.token);
        }
        self.waiters -= 1;
        Some(Some(waiter))
    }

    /// Drops the request with this token, if it waits here.
    pub(super) fn abandon(&mut self, token: RequestToken) {
        let Some(id) = self.by_token.remove(&token) else { return };
        let Some(query) = self.queries.get_mut(id) else { return };
        self.waiters -= 1;
        query.abandoned.insert(token);
        self.steps += 1;
        // Each abandoned request pays for a look at two entries of the list, so at most half of the
        // list is abandoned.
        for _ in 0..LOOKED_AT_PER_ABANDONED {
            let Some(waiter) = query.waiters.pop_front() else { break };
            self.steps += 1;
            if !query.abandoned.remove(&waiter.token) {
                query.waiters.push_back(waiter);
            }
        }
        if query.unjudged > 0 {
            query.unjudged = query.waiters.len();
        }
    }

    /// Sets the children whose replies are outstanding.
    pub(super) fn set_outstanding(&mut self, id: usize, outstanding: SlotMask) {
        let Some(query) = self.queries.get_mut(id) else { return };
        let before = std::mem::replace(&mut query.outstanding, outstanding);
        for slot in before - outstanding {
            for set in [self.by_slot.get_mut(&slot), self.lost.get_mut(&slot)].into_iter().flatten() {
                set.set(id, false);
            }
        }
        for slot in outstanding - before {
            self.by_slot.entry(slot).or_default().set(id, true);
        }
    }

    /// Returns the number of queries and waiters looked at since the start.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn set_deadline(&mut self, id: usize, deadline: Duration) {
        if let Some(query) = self.queries.get_mut(id) {
            if query.deadline != Duration::MAX {
                self.deadlines.remove(&(query.deadline, id));
            }
            query.deadline = deadline;
            if deadline != Duration::MAX {
                self.deadlines.insert((deadline, id));
            }
        }
    }

    /// Returns the deadline of the next query.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// Returns a query whose deadline has passed.
    pub(super) fn due(&self, now: Duration) -> Option<usize> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, id)| *id)
    }

    /// Marks the queries of the child in `slot`, because it will not reply.
    pub(super) fn lose(&mut self, slot: Slot) {
        if let Some(set) = self.by_slot.remove(&slot) {
            self.lost.entry(slot).or_default().merge(&set);
        }
    }

    /// Takes one of the queries of a lost child.
    pub(super) fn next_lost(&mut self) -> Option<(Slot, usize)> {
        while let Some((slot, set)) = self.lost.iter_mut().next() {
            let slot = *slot;
            if let Some(id) = set.first() {
                set.set(id, false);
                self.steps += 1;
                return Some((slot, id));
            }
            self.lost.remove(&slot);
        }
        None
    }

    /// Reports whether queries of lost children are to be settled.
    pub(super) fn has_lost(&self) -> bool {
        self.lost.values().any(|set| set.first().is_some())
    }

    pub(super) fn end(&mut self, id: usize) {
        self.judge_again(id, Settle::Heard);
        while self.take_unjudged(id).is_some() {}
        self.set_outstanding(id, SlotMask::EMPTY);
        if let Some(query) = self.queries.try_remove(id) {
            self.deadlines.remove(&(query.deadline, id));
            self.by_path.remove(&query.path);
            self.bytes -= query.path.len();
        }
    }
}
