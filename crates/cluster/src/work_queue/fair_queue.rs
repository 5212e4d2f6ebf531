//! A fair queue: clients are served in turn, one entry at a time, whatever the length of their
//! queues.
//!
//! Otherwise the requests of one greedy client would delay those of all others. Its single consumer
//! takes one entry at a time. The pools of `storage` have a queue of their own, because their
//! entries run side by side and each owner has a share of the threads.

use std::collections::{HashMap, VecDeque};

/// The number of empty queues that are kept for reuse, so that an entry that waits only briefly
/// allocates nothing.
const SPARE_QUEUES_MAX: usize = 16;

/// The entries by client.
#[derive(Debug)]
pub(super) struct FairQueue<T> {
    clients: HashMap<usize, VecDeque<T>>,
    /// The clients that have entries, each once, in round-robin order.
    round: VecDeque<usize>,
    len: usize,
    spare: Vec<VecDeque<T>>,
}

impl<T> Default for FairQueue<T> {
    fn default() -> Self {
        Self { clients: HashMap::new(), round: VecDeque::new(), len: 0, spare: Vec::new() }
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
        let (spare, round) = (&mut self.spare, &mut self.round);
        let queue = self.clients.entry(client).or_insert_with(|| {
            round.push_back(client);
            spare.pop().unwrap_or_default()
        });
        queue.push_back(entry);
        self.len += 1;
    }

    /// Takes the oldest entry of the client that is next in turn.
    pub(super) fn pop(&mut self) -> Option<T> {
        let client = self.round.pop_front()?;
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
        assert_eq!(rest, [(2, 0), (1, 1), (3, 0), (2, 1), (1, 2)]);
        assert!(queue.is_empty() && queue.clients.is_empty() && queue.round.is_empty());
    }
}
