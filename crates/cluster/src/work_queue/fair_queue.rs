//! A fair queue: clients are served in turn, one entry at a time, whatever the length of their
//! queues.
//!
//! Otherwise the requests of one greedy client would delay those of all others. A client that had no
//! entry comes before those that wait for a further turn, so a single request does not wait for one
//! of each busy client. Newcomers and the round alternate: many newcomers cannot stop the round.
//! The single consumer takes one entry at a time. The pools of `storage` have a queue of their own, because their
//! entries run side by side and each owner has a share of the threads.

use std::collections::{HashMap, VecDeque};

/// The number of empty queues that are kept for reuse, so that an entry that waits only briefly
/// allocates nothing.
const SPARE_QUEUES_MAX: usize = 16;

/// The entries by client.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    clients: HashMap<usize, VecDeque<T>>,
    /// The clients whose first entry was not taken yet, in the order of arrival.
    newcomers: VecDeque<usize>,
    /// The other clients that have entries, each once, in round-robin order.
    round: VecDeque<usize>,
    /// Set if the last entry was one of a newcomer.
    took_newcomer: bool,
    len: usize,
    spare: Vec<VecDeque<T>>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self {
            clients: HashMap::new(),
            newcomers: VecDeque::new(),
            round: VecDeque::new(),
            took_newcomer: false,
            len: 0,
            spare: Vec::new(),
        }
    }
}

impl<T> FairQueue<T> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the number of entries of one client.
    pub(super) fn len_of(&self, client: usize) -> usize {
        self.clients.get(&client).map_or(0, VecDeque::len)
    }

    pub(super) fn push(&mut self, client: usize, entry: T) {
        let (spare, newcomers) = (&mut self.spare, &mut self.newcomers);
        let queue = self.clients.entry(client).or_insert_with(|| {
            newcomers.push_back(client);
            spare.pop().unwrap_or_default()
        });
        queue.push_back(entry);
        self.len += 1;
    }

    /// Takes the oldest entry of the client that is next in turn.
    pub(super) fn pop(&mut self) -> Option<T> {
        let client = self.next_client()?;
        let queue = self.clients.get_mut(&client)?;
        let entry = queue.pop_front();
        self.len -= usize::from(entry.is_some());
        if !queue.is_empty() {
            self.round.push_back(client);
        } else if let Some(queue) = self.clients.remove(&client)
            && self.spare.len() < SPARE_QUEUES_MAX
        {
            self.spare.push(queue);
        }
        entry
    }

    fn next_client(&mut self) -> Option<usize> {
        let is_turn = !self.took_newcomer || self.round.is_empty();
        let newcomer = if is_turn { self.newcomers.pop_front() } else { None };
        self.took_newcomer = newcomer.is_some();
        newcomer.or_else(|| self.round.pop_front())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_take_turns_and_each_keeps_its_order() {
        let mut queue = FairQueue::default();
        (0..3).for_each(|n| queue.push(1, (1, n)));
        (0..2).for_each(|n| queue.push(2, (2, n)));
        assert_eq!((queue.len(), queue.len_of(1), queue.len_of(3)), (5, 3, 0));
        assert_eq!(queue.pop(), Some((1, 0)));
        queue.push(3, (3, 0));
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(1, 1), (2, 0), (1, 2), (3, 0), (2, 1)]);
        assert!(queue.is_empty() && queue.clients.is_empty());
        assert!(queue.round.is_empty() && queue.newcomers.is_empty());
    }

    #[test]
    fn a_newcomer_waits_for_no_round_of_busy_clients() {
        let mut queue = FairQueue::default();
        (0..100).for_each(|client| (0..10).for_each(|_| queue.push(client, client)));
        (0..300).for_each(|_| assert!(queue.pop().is_some()));
        queue.push(100, 100);
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(order.iter().position(|client| *client == 100), Some(0));
    }

    #[test]
    fn many_newcomers_do_not_stop_the_round() {
        let mut queue = FairQueue::default();
        (0..2).for_each(|_| queue.push(0, 0));
        assert_eq!(queue.pop(), Some(0));
        (1..=100).for_each(|client| queue.push(client, client));
        let order: Vec<_> = std::iter::from_fn(|| queue.pop()).take(3).collect();
        assert_eq!(order.iter().position(|client| *client == 0), Some(0));
        assert_eq!(order[1..], [1, 2]);
    }
}
