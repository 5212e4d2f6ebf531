//! A fair queue: round-robin scheduling over the owners of its entries.
//!
//! It exists so that one session with a long backlog cannot starve the others: in the pools of storage
//! threads, and in the requests of a proxy to an origin.
//! Each owner has its own queue. An owner has one place in the round while it has a waiting entry
//! and fewer running ones than its share. [`FairShareQueue::pop`] takes one entry of the owner
//! whose turn it is. An entry therefore waits for at most one entry of each other owner, and for
//! earlier entries of its own owner.
//!
//! The queue of the cluster's requests (`cluster::work_queue`) has no shares: its single thread
//! takes one entry at a time, so nothing runs beside it and nothing reports an end. With this queue
//! it would have to report one for each entry, only to be ignored.

use crate::Owner;
use std::collections::{HashMap, VecDeque};

/// Maximum number of empty queues kept for reuse, so that an entry that need not wait causes no
/// allocation.
const SPARE_QUEUES_MAX: usize = 16;

/// A queue of entries, which serves their owners in turn.
#[derive(Debug)]
pub struct FairShareQueue<T> {
    owners: HashMap<Owner, OwnerQueue<T>>,
    /// Owners that have a waiting entry and may run one more.
    round: VecDeque<Owner>,
    /// Maximum number of running entries per owner. It does not apply to the server itself.
    share: usize,
    waiting: usize,
    running: usize,
    spare: Vec<VecDeque<T>>,
}

#[derive(Debug)]
struct OwnerQueue<T> {
    entries: VecDeque<T>,
    running: usize,
    in_round: bool,
}

impl<T> FairShareQueue<T> {
    /// Creates an empty queue. `share` is the maximum number of running entries of one owner.
    #[must_use]
    pub fn new(share: usize) -> Self {
        let (owners, round, spare) = (HashMap::new(), VecDeque::new(), Vec::new());
        Self { owners, round, share: share.max(1), waiting: 0, running: 0, spare }
    }

    /// Returns the number of waiting entries.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Returns the number of waiting entries of this owner.
    #[must_use]
    pub fn waiting_of(&self, owner: Owner) -> usize {
        self.owners.get(&owner).map_or(0, |queue| queue.entries.len())
    }

    /// Returns the number of running entries.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running
    }

    /// Reports whether [`FairShareQueue::pop`] would return an entry.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        !self.round.is_empty()
    }

    /// Returns the number of running entries of this owner.
    #[must_use]
    pub fn running_of(&self, owner: Owner) -> usize {
        self.owners.get(&owner).map_or(0, |queue| queue.running)
    }

    /// Reports whether this owner may run one more entry.
    #[must_use]
    pub fn may_run(&self, owner: Owner) -> bool {
        owner.is_server() || self.owners.get(&owner).is_none_or(|queue| queue.running < self.share)
    }

    /// Appends an entry.
    pub fn push(&mut self, owner: Owner, entry: T) {
        self.waiting += 1;
        self.queue_of(owner).entries.push_back(entry);
        self.enter_round(owner);
    }

    /// Takes an entry of the owner whose turn it is. It counts as running until
    /// [`FairShareQueue::record_end`].
    pub fn pop(&mut self) -> Option<(Owner, T)> {
        self.pop_if(|_, _| true)
    }

    /// Takes an entry as [`FairShareQueue::pop`] does, but passes over owners for whose first entry
    /// `may_run` returns `false`. It gets the entry and the number of running entries of its owner.
    pub fn pop_if(&mut self, may_run: impl Fn(&T, usize) -> bool) -> Option<(Owner, T)> {
        loop {
            let is_next = |owner: &Owner| {
                let queue = self.owners.get(owner);
                let entry = queue.and_then(|queue| Some((queue.entries.front()?, queue.running)));
                entry.is_none_or(|(entry, running)| may_run(entry, running))
            };
            let at = self.round.iter().position(is_next)?;
            let owner = self.round.remove(at)?;
            let Some(queue) = self.owners.get_mut(&owner) else { continue };
            queue.in_round = false;
            let Some(entry) = queue.entries.pop_front() else { continue };
            queue.running += 1;
            self.waiting -= 1;
            self.running += 1;
            self.enter_round(owner);
            return Some((owner, entry));
        }
    }

    /// Records the start of an entry of this owner that was not taken from this queue.
    pub fn record_start(&mut self, owner: Owner) {
        self.running += 1;
        self.queue_of(owner).running += 1;
    }

    /// Records the end of a running entry of this owner.
    pub fn record_end(&mut self, owner: Owner) {
        let Some(queue) = self.owners.get_mut(&owner) else { return };
        self.running = self.running.saturating_sub(1);
        queue.running = queue.running.saturating_sub(1);
        if queue.running > 0 || !queue.entries.is_empty() {
            return self.enter_round(owner);
        }
        if let Some(queue) = self.owners.remove(&owner)
            && self.spare.len() < SPARE_QUEUES_MAX
        {
            self.spare.push(queue.entries);
        }
    }

    /// Keeps the waiting entries for which `keep` returns `true`.
    pub fn retain(&mut self, mut keep: impl FnMut(&T) -> bool) {
        let mut waiting = 0;
        self.owners.retain(|_, queue| {
            queue.entries.retain(&mut keep);
            waiting += queue.entries.len();
            queue.running > 0 || !queue.entries.is_empty()
        });
        self.waiting = waiting;
        // An owner without entries has no place in the round.
        let Self { owners, round, .. } = self;
        round.retain(|owner| match owners.get_mut(owner) {
            Some(queue) => {
                queue.in_round = !queue.entries.is_empty();
                queue.in_round
            }
            None => false,
        });
    }

    fn queue_of(&mut self, owner: Owner) -> &mut OwnerQueue<T> {
        let spare = &mut self.spare;
        self.owners.entry(owner).or_insert_with(|| {
            let entries = spare.pop().unwrap_or_default();
            OwnerQueue { entries, running: 0, in_round: false }
        })
    }

    /// Appends an owner to the round, if it may run an entry, has one waiting and is not in the
    /// round.
    fn enter_round(&mut self, owner: Owner) {
        let share = self.share;
        let Some(queue) = self.owners.get_mut(&owner) else { return };
        let may_run = owner.is_server() || queue.running < share;
        if may_run && !queue.in_round && !queue.entries.is_empty() {
            queue.in_round = true;
            self.round.push_back(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GREEDY: Owner = Owner(1);
    const POLITE: Owner = Owner(2);

    #[test]
    fn an_entry_waits_for_at_most_one_entry_of_each_other_owner() {
        let mut queue = FairShareQueue::new(usize::MAX);
        for owner in [GREEDY, Owner(7), Owner(8)] {
            (0..10_000).for_each(|n| queue.push(owner, n));
        }
        queue.push(POLITE, 0);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(owner, _)| owner).collect();
        assert_eq!(order.iter().position(|owner| *owner == POLITE), Some(3));
        assert_eq!((order.len(), queue.waiting()), (30_001, 0));
    }

    #[test]
    fn entries_of_one_owner_keep_their_order() {
        let mut queue = FairShareQueue::new(usize::MAX);
        for n in 0..5 {
            queue.push(GREEDY, n);
            queue.push(POLITE, n);
        }
        let all: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        for owner in [GREEDY, POLITE] {
            let of: Vec<_> = all.iter().filter(|(who, _)| *who == owner).map(|(_, n)| *n).collect();
            assert_eq!(of, [0, 1, 2, 3, 4]);
        }
    }

    #[test]
    fn the_share_limits_every_owner_except_the_server() {
        let mut queue = FairShareQueue::new(2);
        for n in 0..4 {
            queue.push(GREEDY, n);
            queue.push(Owner::SERVER, n);
        }
        let running: Vec<_> = std::iter::from_fn(|| queue.pop()).map(|(owner, _)| owner).collect();
        assert_eq!(running.iter().filter(|owner| **owner == GREEDY).count(), 2);
        assert_eq!(running.iter().filter(|owner| owner.is_server()).count(), 4);
        assert!(!queue.is_ready() && !queue.may_run(GREEDY) && queue.may_run(POLITE));
        assert_eq!((queue.waiting(), queue.waiting_of(GREEDY)), (2, 2));
        queue.record_end(GREEDY);
        assert_eq!(queue.pop(), Some((GREEDY, 2)));
        assert_eq!(queue.pop(), None);
    }

    #[test]
    fn entries_started_outside_the_queue_count_as_running() {
        let mut queue = FairShareQueue::new(1);
        queue.record_start(GREEDY);
        queue.push(GREEDY, 1);
        assert_eq!(queue.pop(), None);
        queue.record_end(GREEDY);
        assert_eq!(queue.pop(), Some((GREEDY, 1)));
        queue.record_end(GREEDY);
        assert_eq!(
            (queue.running(), queue.owners.len()),
            (0, 0),
            "an owner without entries leaves no state behind"
        );
    }

    #[test]
    fn owners_whose_entry_may_not_run_keep_their_place() {
        let mut queue = FairShareQueue::new(2);
        for n in 0..2 {
            queue.push(GREEDY, n);
            queue.push(POLITE, 10 + n);
        }
        assert_eq!(queue.pop_if(|n, _| *n >= 10), Some((POLITE, 10)));
        assert_eq!(queue.pop_if(|n, running| *n >= 10 && running == 0), None);
        assert_eq!((queue.waiting(), queue.running_of(POLITE)), (3, 1));
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(GREEDY, 0), (POLITE, 11), (GREEDY, 1)]);
    }

    #[test]
    fn removed_entries_take_no_place() {
        let mut queue = FairShareQueue::new(1);
        for n in 0..4 {
            queue.push(GREEDY, n);
            queue.push(POLITE, 10 + n);
        }
        assert_eq!(queue.pop(), Some((GREEDY, 0)));
        queue.retain(|n| *n == 2);
        assert_eq!((queue.waiting(), queue.waiting_of(POLITE), queue.owners.len()), (1, 0, 1));
        assert_eq!(queue.pop(), None, "the share is used");
        queue.push(POLITE, 20);
        queue.record_end(GREEDY);
        assert_eq!((queue.pop(), queue.pop(), queue.pop()), (Some((POLITE, 20)), Some((GREEDY, 2)), None));
    }
}
