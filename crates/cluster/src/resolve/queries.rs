//! Queries under way and who waits for them.
//!
//! One query for a path at a time, however many ask: they wait for it together. What was asked of whom, and until when
//! silence is listened to, stands here; what became known stands in the cache.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use slab::Slab;

use super::select::Question;
use crate::request::LocateOptions;
use crate::slots::{Slot, SlotMask};

/// Queries under way at most; beyond, clients are told to come again.
pub const QUERIES_MAX: usize = 1 << 16;
/// Requests that wait at most; beyond, clients are told to come again.
pub const WAITERS_MAX: usize = 1 << 18;

/// Stands for a request that is answered later. Its meaning is the driver's.
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
}

impl Waiter {
    pub(super) const fn new(token: Token, wish: Wish) -> Self {
        Self { token, wish, held_until: None }
    }

    /// Another child sits in `slot` now than when it was asked for: whoever avoids its predecessor does not avoid it.
    pub(super) fn forget(&mut self, slot: Slot) {
        if let Wish::Select(question) = &mut self.wish {
            question.avoided.forget(slot);
        }
    }
}

#[derive(Debug)]
pub(super) struct Query {
    pub(super) path: Arc<[u8]>,
    /// Asked and not heard yet.
    pub(super) outstanding: SlotMask,
    pub(super) started: Duration,
    /// When somebody was last asked.
    pub(super) asked: Duration,
    /// Asked not to answer from what is remembered.
    pub(super) refresh: bool,
    /// The driver was asked to look itself.
    pub(super) looking: bool,
    /// That showed nothing.
    pub(super) blind: bool,
    pub(super) waiters: Vec<Waiter>,
    deadline: Duration,
}

impl Query {
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
    waiters: usize,
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
        if self.queries.len() >= QUERIES_MAX {
            return None;
        }
        let path: Arc<[u8]> = Arc::from(path);
        let id = self.queries.insert(Query {
            path: path.clone(),
            outstanding: SlotMask::EMPTY,
            started: now,
            asked: now,
            refresh: false,
            looking: false,
            blind: false,
            waiters: Vec::new(),
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
        query.waiters.push(waiter);
        self.waiters += 1;
        true
    }

    /// Takes all who wait for a query; those who have to wait on are given back with [`Self::wait`].
    pub(super) fn take_waiters(&mut self, id: usize) -> Vec<Waiter> {
        let taken =
            self.queries.get_mut(id).map(|query| std::mem::take(&mut query.waiters)).unwrap_or_default();
        self.waiters -= taken.len();
        taken
    }

    /// All who wait. Looks at all queries.
    pub(super) fn all_waiters(&mut self) -> impl Iterator<Item = &mut Waiter> {
        self.queries.iter_mut().flat_map(|(_, query)| &mut query.waiters)
    }

    /// Those with these tokens, which are in order, do not wait any more. Looks at all queries.
    pub(super) fn abandon(&mut self, gone: &[Token]) {
        for (_, query) in &mut self.queries {
            let before = query.waiters.len();
            query.waiters.retain(|waiter| gone.binary_search(&waiter.token).is_err());
            self.waiters -= before - query.waiters.len();
        }
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

    /// The queries in which one of `slots` has yet to be heard. Looks at all of them: for when a child is lost.
    pub(super) fn outstanding(&self, slots: SlotMask) -> Vec<usize> {
        self.queries.iter().filter(|(_, query)| query.outstanding.meets(slots)).map(|(id, _)| id).collect()
    }

    pub(super) fn end(&mut self, id: usize) {
        if let Some(query) = self.queries.try_remove(id) {
            self.deadlines.remove(&(query.deadline, id));
            self.by_path.remove(&query.path);
            self.waiters -= query.waiters.len();
        }
    }
}
