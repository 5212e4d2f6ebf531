//! Held requests, indexed by path, token, deadline and order of arrival (decision 026).
//!
//! No operation looks at more entries than it returns, so a message costs the same beside ten held
//! requests and beside 100,000. A change of the cell concerns all of them, a message all entries of
//! a path. [`HeldRequests::review_all`] and [`HeldRequests::take_path`] mark these entries, and
//! [`HeldRequests::take_due`] returns them in steps, in the order of arrival.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::queries::{QueryWaiter, RequestToken, WaiterRequest};

/// The maximum number of bytes of the paths of held requests; beyond it, clients are asked to
/// retry. 100,000 paths of 300 bytes fit.
pub(super) const HELD_BYTES_MAX: usize = 32 * 1024 * 1024;

/// A held request.
#[derive(Debug)]
pub(super) struct HeldRequest {
    pub(super) path: Arc<[u8]>,
    pub(super) waiter: QueryWaiter,
    until: Duration,
}

/// All held requests.
#[derive(Default, Debug)]
pub(super) struct HeldRequests {
    /// The entries by number; numbers rise in the order of arrival.
    entries: BTreeMap<u64, HeldRequest>,
    by_path: HashMap<Arc<[u8]>, BTreeSet<u64>>,
    by_token: HashMap<RequestToken, u64>,
    deadlines: BTreeSet<(Duration, u64)>,
    /// The number of the next entry.
    next: u64,
    /// Entries below this number are to be judged again.
    review_below: u64,
    /// The same limit for the entries of some paths.
    path_reviews: HashMap<Arc<[u8]>, u64>,
    /// The number of parents' queries among the entries.
    states: usize,
    /// Bytes of the paths in `by_path`.
    bytes: usize,
    /// The number of entries that were looked at.
    steps: u64,
}

impl HeldRequests {
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Reports whether a parent's query is held.
    pub(super) fn has_states(&self) -> bool {
        self.states > 0
    }

    /// Returns the number of entries looked at since the start.
    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// Reports whether there is room for the bytes of a path.
    pub(super) fn has_room(&self, path: &[u8]) -> bool {
        self.bytes + path.len() <= HELD_BYTES_MAX || self.by_path.contains_key(path)
    }

    /// Holds a request until this deadline.
    pub(super) fn insert(&mut self, path: &[u8], waiter: QueryWaiter, until: Duration) {
        let known = self.by_path.get_key_value(path).map(|(path, _)| path.clone());
        let path = known.unwrap_or_else(|| {
            self.bytes += path.len();
            Arc::from(path)
        });
        let number = self.next;
        self.next += 1;
        self.by_path.entry(path.clone()).or_default().insert(number);
        self.by_token.insert(waiter.token, number);
        self.deadlines.insert((until, number));
        self.states += usize::from(matches!(waiter.request, WaiterRequest::State));
        self.entries.insert(number, HeldRequest { path, waiter, until });
    }

    /// Marks all entries as to be judged again, because a change may concern them.
    pub(super) fn review_all(&mut self) {
        self.review_below = self.next;
    }

    /// Reports whether an entry is to be judged again.
    pub(super) fn has_reviews(&self) -> bool {
        let is_below = |(number, _): (&u64, &HeldRequest)| *number < self.review_below;
        !self.path_reviews.is_empty() || self.entries.first_key_value().is_some_and(is_below)
    }

    /// Returns the earliest deadline of an entry.
    pub(super) fn next_deadline(&self) -> Option<Duration> {
        self.deadlines.first().map(|(until, _)| *until)
    }

    /// Takes an entry whose deadline has passed, otherwise one that is to be judged again.
    pub(super) fn take_due(&mut self, now: Duration) -> Option<HeldRequest> {
        let over = self.deadlines.first().filter(|(until, _)| *until <= now).map(|(_, number)| *number);
        if let Some(number) = over.or_else(|| self.next_path_review()) {
            return self.take(number);
        }
        let review = || self.entries.first_key_value().map(|(number, _)| *number);
        let number = review().filter(|number| *number < self.review_below)?;
        self.take(number)
    }

    /// Takes the oldest entries of a path, in the order of arrival. Those beyond `most` are due.
    pub(super) fn take_path(&mut self, path: &[u8], most: usize) -> Vec<HeldRequest> {
        let Some((path, numbers)) = self.by_path.get_key_value(path) else { return Vec::new() };
        if numbers.len() > most {
            self.path_reviews.insert(path.clone(), self.next);
        }
        let numbers: Vec<u64> = numbers.iter().copied().take(most).collect();
        numbers.into_iter().filter_map(|number| self.take(number)).collect()
    }

    /// Returns the next entry that is due because of its path.
    fn next_path_review(&mut self) -> Option<u64> {
        while let Some((path, below)) = self.path_reviews.iter().next() {
            let (path, below) = (path.clone(), *below);
            let first = self.by_path.get(&path).and_then(BTreeSet::first).copied();
            if let Some(number) = first.filter(|number| *number < below) {
                return Some(number);
            }
            self.path_reviews.remove(&path);
        }
        None
    }

    /// Takes the entry with this token.
    pub(super) fn take_token(&mut self, token: RequestToken) -> Option<HeldRequest> {
        let number = self.by_token.get(&token).copied()?;
        self.take(number)
    }

    fn take(&mut self, number: u64) -> Option<HeldRequest> {
        self.steps += 1;
        let held = self.entries.remove(&number)?;
        self.deadlines.remove(&(held.until, number));
        self.states -= usize::from(matches!(held.waiter.request, WaiterRequest::State));
        if self.by_token.get(&held.waiter.token) == Some(&number) {
            self.by_token.remove(&held.waiter.token);
        }
        if let Some(numbers) = self.by_path.get_mut(&held.path) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_path.remove(&held.path);
                self.bytes -= held.path.len();
            }
        }
        Some(held)
    }
}
