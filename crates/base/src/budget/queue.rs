//! Sessions that wait for memory of the process: one queue for each purpose, in the order in which
//! they began to wait.
//!
//! Nobody overtakes a session that waits for the same purpose, so each look ends at the first one
//! that does not fit: returned memory costs as much time as it wakes sessions, however many wait.

use super::{Ceilings, PURPOSES, Purpose, fits};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Waker;

/// A session that waits, and the bytes that it has to claim.
#[derive(Debug)]
struct Waiter {
    bytes: usize,
    waker: Waker,
}

/// Sessions that wait for one purpose, by place.
type Queue = BTreeMap<u64, Waiter>;

/// All queues.
#[derive(Debug, Default)]
pub(super) struct WaitQueues {
    /// The last place that was given.
    places: AtomicU64,
    /// Sessions in each queue, to be read without the lock.
    waiting: [AtomicUsize; PURPOSES],
    /// The place whose argument may use the room of requests; 0 for none. Written under the lock.
    express: AtomicU64,
    queues: Mutex<[Queue; PURPOSES]>,
}

impl WaitQueues {
    fn lock(&self) -> MutexGuard<'_, [Queue; PURPOSES]> {
        self.queues.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place behind all others.
    pub(super) fn next_place(&self) -> u64 {
        self.places.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Reports whether a session waits.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.iter().any(|waiting| waiting.load(Ordering::SeqCst) > 0)
    }

    /// Reports whether a session waits for this purpose.
    pub(super) fn is_awaited(&self, purpose: Purpose) -> bool {
        self.waiting.get(purpose as usize).is_some_and(|waiting| waiting.load(Ordering::SeqCst) > 0)
    }

    /// Reports whether the argument with this place may use the room of requests.
    pub(super) fn is_express(&self, place: u64) -> bool {
        place != 0 && self.express.load(Ordering::SeqCst) == place
    }

    /// Puts a session at its place, or changes what it waits for there.
    pub(super) fn insert(&self, purpose: Purpose, place: u64, bytes: usize, waker: &Waker) {
        let mut queues = self.lock();
        let Some(queue) = queues.get_mut(purpose as usize) else { return };
        queue.insert(place, Waiter { bytes, waker: waker.clone() });
        self.count(&queues);
    }

    /// Takes a session from its queue. Reports whether others wait.
    pub(super) fn remove(&self, purpose: Purpose, place: u64) -> bool {
        let mut queues = self.lock();
        queues.get_mut(purpose as usize).and_then(|queue| queue.remove(&place));
        self.count(&queues);
        queues.iter().any(|queue| !queue.is_empty())
    }

    /// The argument with this place is no longer the one that may use the room of requests, if it
    /// was.
    pub(super) fn retire(&self, place: u64) {
        let _queues = self.lock();
        self.express.compare_exchange(place, 0, Ordering::SeqCst, Ordering::SeqCst).ok();
    }

    /// Takes the sessions that fit: for each purpose from the front, up to the first that does not.
    /// What has begun comes first.
    pub(super) fn take_fitting(&self, claimed: impl Fn() -> usize, ceilings: &Ceilings) -> Vec<Waker> {
        let mut queues = self.lock();
        let mut claimed = claimed();
        let mut woken = Vec::new();
        for purpose in Purpose::ALL {
            let Some(queue) = queues.get_mut(purpose as usize) else { continue };
            while let Some(first) = queue.first_entry() {
                if !fits(claimed, first.get().bytes, ceilings.of(purpose)) {
                    break;
                }
                claimed += first.get().bytes;
                woken.push(first.remove().waker);
            }
            if purpose == Purpose::Argument {
                woken.extend(self.take_express(queue, claimed, ceilings.request));
            }
        }
        self.count(&queues);
        woken
    }

    /// Takes the argument that may use the room of requests, if it fits there. The first one
    /// becomes it if there is none.
    fn take_express(&self, queue: &mut Queue, claimed: usize, ceiling: usize) -> Option<Waker> {
        let &first = queue.first_key_value()?.0;
        let chosen = self.express.compare_exchange(0, first, Ordering::SeqCst, Ordering::SeqCst);
        let place = chosen.map_or_else(|express| express, |_| first);
        let waiter = queue.get(&place).filter(|waiter| fits(claimed, waiter.bytes, ceiling));
        waiter.is_some().then(|| queue.remove(&place)).flatten().map(|waiter| waiter.waker)
    }

    /// Notes how many sessions wait, for those who ask without the lock.
    fn count(&self, queues: &[Queue; PURPOSES]) {
        for (waiting, queue) in self.waiting.iter().zip(queues) {
            waiting.store(queue.len(), Ordering::SeqCst);
        }
    }
}
