//! FIFO queues of the sessions that wait for memory of the process, one queue for each purpose.
//!
//! A session never overtakes another one that waits for the same purpose. Each scan therefore stops
//! at the first session that does not fit. The cost of releasing memory depends only on the number
//! of sessions it wakes.

use super::ceilings::{Ceilings, MemoryPurpose, PURPOSES, fits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A waiting session and the bytes that it has to claim.
#[derive(Debug)]
struct BudgetWaiter {
    bytes: usize,
    waker: Waker,
}

/// Sessions that wait for one purpose, keyed by position.
type Queue = BTreeMap<u64, BudgetWaiter>;

/// The queues of all purposes.
#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    /// The position assigned last.
    places: AtomicU64,
    /// Length of each queue, readable without the lock.
    waiting: [AtomicUsize; PURPOSES],
    /// The position of the argument that may use the memory of requests; 0 for none. Written under
    /// the lock.
    express: AtomicU64,
    queues: Mutex<[Queue; PURPOSES]>,
}

impl WaitQueues {
    fn lock(&self) -> MutexGuard<'_, [Queue; PURPOSES]> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a position behind all others.
    pub(super) fn next_place(&self) -> u64 {
        self.places.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reports whether a session waits for any purpose.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.load(Ordering::SeqCst) > 0)
    }

    /// Reports whether a session waits for this purpose.
    pub(super) fn is_awaited(&self, purpose: MemoryPurpose) -> bool {
        self.waiting.get(purpose as usize).is_some_and(|waiting| waiting.load(Ordering::SeqCst) > 0)
    }

    /// Reports whether the argument at this position may use the memory of requests.
    pub(super) fn is_express(&self, place: u64) -> bool {
        place != 0 && self.express.load(Ordering::SeqCst) == place
    }

    /// Inserts a session at its position, or updates the entry there.
    pub(super) fn insert(&self, purpose: MemoryPurpose, place: u64, bytes: usize, waker: &Waker) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(purpose as usize) else { return };
        queue.insert(place, BudgetWaiter { bytes, waker: waker.clone() });
        self.count(&queues);
    }

    /// Removes a session from its queue. Reports whether other sessions wait.
    pub(super) fn remove(&self, purpose: MemoryPurpose, place: u64) -> bool {
        let mut queues = self.lock();
        queues.get_mut(purpose as usize).and_then(|queue| queue.remove(&place));
        self.count(&queues);
        queues.iter().any(|queue| !queue.is_empty())
    }

    /// Ends the right of the argument at this position to use the memory of requests, if it has
    /// that right.
    pub(super) fn retire(&self, place: u64) {
        let _queues = self.lock();
        self.express.compare_exchange(place, 0, Ordering::SeqCst, Ordering::SeqCst).ok();
    }

    /// Removes and returns the sessions that fit: for each purpose from the front of its queue up
    /// to the first one that does not fit. Purposes are visited in the order of
    /// `MemoryPurpose::ALL`.
    pub(super) fn take_fitting(&self, claimed: impl Fn() -> usize, ceilings: &Ceilings) -> Vec<Waker> {
        let mut queues = self.lock();
        let mut claimed = claimed();
        let mut woken = Vec::new();
        for purpose in MemoryPurpose::ALL {
            let Some(queue) = queues.get_mut(purpose as usize) else { continue };
            while let Some(first) = queue.first_entry() {
                if !fits(claimed, first.get().bytes, ceilings.of(purpose)) {
                    break;
                }
                claimed += first.get().bytes;
                woken.push(first.remove().waker);
            }
            if purpose == MemoryPurpose::Argument {
                woken.extend(self.take_express(queue, claimed, ceilings.request));
            }
        }
        self.count(&queues);
        woken
    }

    /// Removes the argument that may use the memory of requests, if it fits there. If no argument
    /// has that right, the first one in the queue receives it.
    fn take_express(&self, queue: &mut Queue, claimed: usize, ceiling: usize) -> Option<Waker> {
        let &first = queue.first_key_value()?.0;
        let chosen = self.express.compare_exchange(0, first, Ordering::SeqCst, Ordering::SeqCst);
        let place = chosen.map_or_else(|express| express, |_| first);
        let waiter = queue.get(&place).filter(|waiter| fits(claimed, waiter.bytes, ceiling));
        waiter.is_some().then(|| queue.remove(&place)).flatten().map(|waiter| waiter.waker)
    }

    /// Stores the lengths of the queues for readers without the lock.
    fn count(&self, queues: &[Queue; PURPOSES]) {
        for (waiting, queue) in self.waiting.iter().zip(queues) {
            waiting.store(queue.len(), Ordering::SeqCst);
        }
    }
}
