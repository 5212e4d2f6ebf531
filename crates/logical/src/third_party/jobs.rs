//! The queue of third-party copies: which ones run, and which wait for their turn. It is pure data
//! without I/O, so that tests can check its fairness.

use base::ClientHost;
use std::collections::VecDeque;

/// Maximum number of copies that wait for their turn; further ones are refused.
pub(crate) const WAITING_MAX: usize = 1_000;

/// Number of places of which one is not available to any single client host. Slow copies arranged
/// by one host therefore leave places for others.
const PLACES_PER_RESERVED: usize = 3;

/// The running and waiting copies.
pub(crate) struct CopyQueue<J> {
    running_max: usize,
    running: Vec<QueuedCopy<J>>,
    waiting: VecDeque<QueuedCopy<J>>,
    next_number: u64,
}

struct QueuedCopy<J> {
    number: u64,
    /// The host that arranged the copy.
    client: ClientHost,
    job: J,
}

/// Identifies a copy in the queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct JobNumber(u64);

/// The result of adding a copy.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum EnqueueOutcome {
    /// The copy starts now.
    Start(JobNumber),
    /// The copy waits.
    Waits(JobNumber),
    /// Too many copies wait.
    Full,
}

impl<J: Clone> CopyQueue<J> {
    pub(crate) fn new(running_max: usize) -> Self {
        Self {
            running_max: running_max.max(1),
            running: Vec::new(),
            waiting: VecDeque::new(),
            next_number: 0,
        }
    }

    /// Reports whether one more copy of this client host may run.
    fn may_run(&self, client: ClientHost) -> bool {
        let own = self.running.iter().filter(|entry| entry.client == client).count();
        let share = self.running_max - self.running_max / PLACES_PER_RESERVED;
        self.running.len() < self.running_max && own < share
    }

    pub(crate) fn enter(&mut self, job: J, client: ClientHost) -> EnqueueOutcome {
        let number = self.next_number;
        let entry = QueuedCopy { number, client, job };
        if self.may_run(client) {
            self.next_number += 1;
            self.running.push(entry);
            return EnqueueOutcome::Start(JobNumber(number));
        }
        if self.waiting.len() >= WAITING_MAX {
            return EnqueueOutcome::Full;
        }
        self.next_number += 1;
        self.waiting.push_back(entry);
        EnqueueOutcome::Waits(JobNumber(number))
    }

    /// Removes a copy, and returns those that start now: the first ones whose clients have a place
    /// left.
    #[must_use]
    pub(crate) fn leave(&mut self, number: JobNumber) -> Vec<J> {
        self.running.retain(|entry| entry.number != number.0);
        self.waiting.retain(|entry| entry.number != number.0);
        let mut start = Vec::new();
        while let Some(at) = self.waiting.iter().position(|entry| self.may_run(entry.client))
            && let Some(next) = self.waiting.remove(at)
        {
            start.push(next.job.clone());
            self.running.push(next);
        }
        start
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &J> {
        self.running.iter().map(|entry| &entry.job)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn host(address: &str) -> ClientHost {
        ClientHost::from(Some(address.parse::<IpAddr>().unwrap()))
    }

    #[test]
    fn copies_start_in_order_when_others_end() {
        let mut jobs = CopyQueue::new(2);
        let EnqueueOutcome::Start(a) = jobs.enter('a', ClientHost::Unknown) else { panic!() };
        let EnqueueOutcome::Start(b) = jobs.enter('b', ClientHost::Unknown) else { panic!() };
        let EnqueueOutcome::Waits(c) = jobs.enter('c', ClientHost::Unknown) else { panic!() };
        let EnqueueOutcome::Waits(_) = jobs.enter('d', ClientHost::Unknown) else { panic!() };
        assert_eq!(jobs.leave(a), ['c']);
        assert!(jobs.leave(a).is_empty(), "a copy frees its place only once");
        assert_eq!(jobs.leave(c), ['d']);
        assert!(jobs.leave(b).is_empty());
        assert_eq!(jobs.running().collect::<Vec<_>>(), [&'d']);
    }

    #[test]
    fn a_copy_removed_from_the_queue_does_not_start() {
        let mut jobs = CopyQueue::new(1);
        let EnqueueOutcome::Start(a) = jobs.enter('a', ClientHost::Unknown) else { panic!() };
        let EnqueueOutcome::Waits(b) = jobs.enter('b', ClientHost::Unknown) else { panic!() };
        assert!(jobs.leave(b).is_empty());
        assert!(jobs.leave(a).is_empty());
    }

    #[test]
    fn the_queue_is_bounded() {
        let mut jobs = CopyQueue::new(1);
        for number in 0..=WAITING_MAX {
            assert_ne!(jobs.enter(number, ClientHost::Unknown), EnqueueOutcome::Full);
        }
        assert_eq!(jobs.enter(0, ClientHost::Unknown), EnqueueOutcome::Full);
    }

    #[test]
    fn one_client_cannot_occupy_all_places() {
        let (greedy, other) = (host("10.0.0.1"), host("10.0.0.2"));
        let mut jobs = CopyQueue::new(9);
        let entered: Vec<_> = (0..20).map(|number| jobs.enter(number, greedy)).collect();
        assert_eq!(entered.iter().filter(|entered| matches!(entered, EnqueueOutcome::Start(_))).count(), 6);
        let EnqueueOutcome::Start(_) = jobs.enter(100, other) else { panic!("a place is reserved for it") };
        let EnqueueOutcome::Start(first) = entered[0] else { panic!() };
        assert_eq!(jobs.leave(first), [6]);
    }

    #[test]
    fn a_host_with_many_addresses_is_one_client() {
        let mut jobs = CopyQueue::new(9);
        let entered = (0..20).map(|number| jobs.enter(number, host(&format!("2001:db8::{number:x}"))));
        assert_eq!(entered.filter(|entered| matches!(entered, EnqueueOutcome::Start(_))).count(), 6);
        assert!(matches!(jobs.enter(100, host("2001:db8:0:1::1")), EnqueueOutcome::Start(_)));
    }
}
