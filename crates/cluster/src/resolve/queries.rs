//! Queries under way and who waits for them.
//!
//! One query for a path at a time, however many ask: they wait for it together. What was asked of whom, and until when
//! silence is listened to, stands here; what became known stands in the cache.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::select::Question;
use crate::request::LocateOptions;
use crate::slots::{Slot, SlotMask};

/// Queries under way at most; beyond, clients are told to come again.
pub const QUERIES_MAX: usize = 1 << 16;
/// Bytes of the paths of queries at most: 512 for each.
pub(super) const QUERY_BYTES_MAX: usize = 512 * QUERIES_MAX;
/// Requests that wait at most; beyond, clients are told to come again.
pub const WAITERS_MAX: usize = 1 << 18;

/// Stands for a request that is answered later. Its meaning is the driver's. Of requests with the same token only the last
/// can be abandoned.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Token(pub u64);

/// What somebody waits for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Wish {
    /// A client: a child to go to.
    Select(Question),
    /// A client: the list of holders.
    Locate(LocateOptions),
    /// A parent: whether it is here.
    State,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) token: Token,
    pub(super) wish: Wish,
    /// Until when it may be held, once it was.
    pub(super) held_until: Option<Duration>,
    /// Changes of occupants of slots that its avoided children account for: see `replaced`.
    pub(super) replacements: u64,
}

impl Waiter {
    pub(super) const fn new(token: Token, wish: Wish, replacements: u64) -> Self {
        Self { token, wish, held_until: None, replacements }
    }
}

#[derive(Debug)]
pub(super) struct Query {
    pub(super) path: Arc<[u8]>,
    /// Asked and not heard yet; [`Queries::awaiting`] finds the query by each.
    outstanding: SlotMask,
    pub(super) started: Duration,
    /// When somebody was last asked.
    pub(super) asked: Duration,
    /// Asked not to answer from what is remembered.
    pub(super) refresh: bool,
    /// The driver was asked to look itself.
    pub(super) looking: bool,
    /// That showed nothing.
    pub(super) blind: bool,
    /// Parents that rely on the path are told if no child has it.
    pub(super) retracts: bool,
    waiters: Vec<Waiter>,
    /// Waiters that were abandoned and are still in the list.
    abandoned: HashSet<Token>,
    /// The version of the cell for which its waiters were judged last.
    pub(super) judged: u64,
    deadline: Duration,
}

impl Query {
    /// Children that were asked and have not answered.
    pub(super) fn outstanding(&self) -> SlotMask {
        self.outstanding
    }

    /// Reports whether no request waits for it.
    pub(super) fn is_unwanted(&self) -> bool {
        self.waiters.len() == self.abandoned.len()
    }

    /// Whether somebody has yet to be heard.
    pub(super) fn is_open(&self) -> bool {
        self.looking || !self.outstanding.is_empty()
    }
}

#[derive(Default, Debug)]
pub(super) struct Queries {
    queries: Slab<Query>,
    by_path: HashMap<Arc<[u8]>, usize>,
    deadlines: BTreeSet<(Duration, usize)>,
    /// For which query each request waits.
    by_token: HashMap<Token, usize>,
    /// Which queries each child has yet to answer.
    by_slot: HashMap<Slot, QuerySet>,
    waiters: usize,
    /// Bytes of the paths in `by_path`.
    bytes: usize,
    /// Queries and waiters that were looked at.
    steps: u64,
}

/// A set of queries: a bit for each.
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

    fn members(&self) -> impl Iterator<Item = usize> + '_ {
        let bits = |word: u64| (0..64).filter(move |bit| word & (1 << bit) != 0);
        let words = self.words.iter().enumerate().filter(|(_, word)| **word != 0);
        words.flat_map(move |(at, word)| bits(*word).map(move |bit| at * 64 + bit))
    }
}

impl Queries {
    pub(super) fn find(&self, path: &[u8]) -> Option<usize> {
        self.by_path.get(path).copied()
    }

    pub(super) fn get(&self, id: usize) -> Option<&Query> {
        self.queries.get(id)
    }

    pub(super) fn get_mut(&mut self, id: usize) -> Option<&mut Query> {
        self.queries.get_mut(id)
    }

    pub(super) fn len(&self) -> usize {
        self.queries.len()
    }

    pub(super) fn waiters(&self) -> usize {
        self.waiters
    }

    /// The query for `path`, begun if there is none; `None` when there are too many.
    pub(super) fn begin(&mut self, path: &[u8], now: Duration) -> Option<usize> {
        if let Some(id) = self.find(path) {
            return Some(id);
        }
        if self.queries.len() >= QUERIES_MAX || self.bytes + path.len() > QUERY_BYTES_MAX {
            return None;
        }
        self.bytes += path.len();
        let path: Arc<[u8]> = Arc::from(path);
        let id = self.queries.insert(Query {
            path: path.clone(),
            outstanding: SlotMask::EMPTY,
            started: now,
            asked: now,
            refresh: false,
            looking: false,
            blind: false,
            retracts: false,
            waiters: Vec::new(),
            abandoned: HashSet::new(),
            judged: 0,
            deadline: Duration::MAX,
        });
        self.by_path.insert(path, id);
        self.deadlines.insert((Duration::MAX, id));
        Some(id)
    }

    /// Lets somebody wait for a query; false when there are too many.
    pub(super) fn wait(&mut self, id: usize, waiter: Waiter) -> bool {
        if self.waiters >= WAITERS_MAX {
            return false;
        }
        let Some(query) = self.queries.get_mut(id) else { return false };
        self.by_token.insert(waiter.token, id);
        query.waiters.push(waiter);
        self.waiters += 1;
        true
    }

    /// Takes all who wait for a query; those who have to wait on are given back with [`Self::wait`].
    pub(super) fn take_waiters(&mut self, id: usize) -> Vec<Waiter> {
        let Some(query) = self.queries.get_mut(id) else { return Vec::new() };
        let mut taken = std::mem::take(&mut query.waiters);
        let abandoned = std::mem::take(&mut query.abandoned);
        self.steps += taken.len() as u64;
        if !abandoned.is_empty() {
            taken.retain(|waiter| !abandoned.contains(&waiter.token));
        }
        for waiter in &taken {
            if self.by_token.get(&waiter.token) == Some(&id) {
                self.by_token.remove(&waiter.token);
            }
        }
        self.waiters -= taken.len();
        taken
    }

    /// Drops the requests of a query whose clients have disconnected.
    pub(super) fn drop_gone(&mut self, id: usize, is_gone: &dyn Fn(Token) -> bool) {
        let waiters = self.queries.get(id).map(|query| query.waiters.as_slice()).unwrap_or_default();
        self.steps += waiters.len() as u64;
        let gone: Vec<Token> =
            waiters.iter().map(|waiter| waiter.token).filter(|token| is_gone(*token)).collect();
        gone.into_iter().for_each(|token| self.abandon(token));
    }

    /// Drops the request with this token, if it waits here.
    pub(super) fn abandon(&mut self, token: Token) {
        let Some(id) = self.by_token.remove(&token) else { return };
        let Some(query) = self.queries.get_mut(id) else { return };
        self.waiters -= 1;
        query.abandoned.insert(token);
        self.steps += 1;
        // Each request that is dropped pays for one other that is passed by.
        if query.abandoned.len() * 2 > query.waiters.len() {
            self.steps += query.waiters.len() as u64;
            let abandoned = std::mem::take(&mut query.abandoned);
            query.waiters.retain(|waiter| !abandoned.contains(&waiter.token));
        }
    }

    /// Sets which children have yet to answer.
    pub(super) fn set_outstanding(&mut self, id: usize, outstanding: SlotMask) {
        let Some(query) = self.queries.get_mut(id) else { return };
        let before = std::mem::replace(&mut query.outstanding, outstanding);
        for slot in before - outstanding {
            self.by_slot.entry(slot).or_default().set(id, false);
        }
        for slot in outstanding - before {
            self.by_slot.entry(slot).or_default().set(id, true);
        }
    }

    /// Queries and waiters that were looked at since the start.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    pub(super) fn set_deadline(&mut self, id: usize, deadline: Duration) {
        if let Some(query) = self.queries.get_mut(id) {
            self.deadlines.remove(&(query.deadline, id));
            query.deadline = deadline;
            self.deadlines.insert((deadline, id));
        }
    }

    /// When the next query's time is up.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(deadline, _)| *deadline)
    }

    /// A query whose time is up.
    pub(super) fn due(&self, now: Duration) -> Option<usize> {
        self.deadlines.first().filter(|(deadline, _)| *deadline <= now).map(|(_, id)| *id)
    }

    /// The queries that the child in `slot` has yet to answer.
    pub(super) fn awaiting(&mut self, slot: Slot) -> Vec<usize> {
        let ids: Vec<usize> = self.by_slot.get(&slot).into_iter().flat_map(QuerySet::members).collect();
        self.steps += ids.len() as u64;
        ids
    }

    pub(super) fn end(&mut self, id: usize) {
        self.take_waiters(id);
        self.set_outstanding(id, SlotMask::EMPTY);
        if let Some(query) = self.queries.try_remove(id) {
            self.deadlines.remove(&(query.deadline, id));
            self.by_path.remove(&query.path);
            self.bytes -= query.path.len();
        }
    }
}
