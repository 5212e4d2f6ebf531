//! The clients that wait for files, in memory: waiting ends with the connection.

use crate::entry::EntryKey;
use crate::service::{StageError, StageReply};
use std::collections::HashMap;
use std::sync::Arc;

/// Maximum number of clients that wait.
const WAITING_MAX: usize = 1 << 18;

/// A client that waits for a file.
pub struct Waiter {
    /// The owner of the request, with whom others share the places.
    pub owner: Arc<str>,
    /// Reports whether the client has left.
    pub has_left: Box<dyn Fn() -> bool + Send>,
    /// Called with the result.
    pub reply: StageReply<()>,
}

/// The clients that wait.
pub(crate) struct WaitingClients {
    of_file: HashMap<EntryKey, Vec<Waiter>>,
    of_owner: HashMap<Arc<str>, usize>,
    count: usize,
    most: usize,
}

impl Default for WaitingClients {
    fn default() -> Self {
        Self::with_limit(WAITING_MAX)
    }
}

impl WaitingClients {
    fn with_limit(most: usize) -> Self {
        Self { of_file: HashMap::new(), of_owner: HashMap::new(), count: 0, most }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.of_file.is_empty()
    }

    /// Adds a client, or refuses it. One owner has at most as many places as are free, so there is
    /// always one for others.
    pub(crate) fn add(&mut self, key: EntryKey, waiter: Waiter) {
        let own = self.of_owner.get(&waiter.owner).copied().unwrap_or_default();
        if own >= self.most.saturating_sub(self.count) {
            let text = "the file is being staged, and too many clients wait; try again later";
            return (waiter.reply)(Err(StageError::Queue(text.to_owned())));
        }
        self.count += 1;
        *self.of_owner.entry(waiter.owner.clone()).or_default() += 1;
        self.of_file.entry(key).or_default().push(waiter);
    }

    fn forget(&mut self, waiter: &Waiter) {
        self.count = self.count.saturating_sub(1);
        if let Some(own) = self.of_owner.get_mut(&waiter.owner) {
            *own = own.saturating_sub(1);
            if *own == 0 {
                self.of_owner.remove(&waiter.owner);
            }
        }
    }

    /// Removes the clients that wait for a file.
    pub(crate) fn take(&mut self, key: &EntryKey) -> Vec<Waiter> {
        let waiters = self.of_file.remove(key).unwrap_or_default();
        waiters.iter().for_each(|waiter| self.forget(waiter));
        waiters
    }

    /// Removes the clients that have left, and returns the files for which nobody waits any more.
    pub(crate) fn remove_those_that_left(&mut self) -> Vec<EntryKey> {
        let mut left = Vec::new();
        let mut abandoned = Vec::new();
        self.of_file.retain(|key, waiters| {
            left.extend(waiters.extract_if(.., |waiter| (waiter.has_left)()));
            if waiters.is_empty() {
                abandoned.push(key.clone());
            }
            !waiters.is_empty()
        });
        for waiter in left {
            self.forget(&waiter);
            (waiter.reply)(Err(StageError::Queue("the client has left".to_owned())));
        }
        abandoned
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::TransferDirection;
    use base::LogicalPath;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::{Receiver, channel};

    fn key(path: &str) -> EntryKey {
        let path = LogicalPath::parse(path.as_bytes()).unwrap();
        EntryKey { direction: TransferDirection::In, path }
    }

    type WaitResults = Receiver<Result<(), StageError>>;

    fn add(waiting: &mut WaitingClients, owner: &str, path: &str) -> (Arc<AtomicBool>, WaitResults) {
        let left = Arc::new(AtomicBool::new(false));
        let (inside, (reply, answers)) = (left.clone(), channel());
        let waiter = Waiter {
            owner: owner.into(),
            has_left: Box::new(move || inside.load(Ordering::Relaxed)),
            reply: Box::new(move |result| reply.send(result).unwrap()),
        };
        waiting.add(key(path), waiter);
        (left, answers)
    }

    #[test]
    fn a_file_is_abandoned_when_the_last_client_has_left() {
        let mut waiting = WaitingClients::default();
        let (first, answer) = add(&mut waiting, "a", "/f");
        let (second, _second) = add(&mut waiting, "b", "/f");
        let _third = add(&mut waiting, "a", "/g");
        first.store(true, Ordering::Relaxed);
        assert_eq!(waiting.remove_those_that_left(), []);
        assert!(answer.recv().unwrap().is_err());
        second.store(true, Ordering::Relaxed);
        assert_eq!(waiting.remove_those_that_left(), [key("/f")]);
        assert_eq!(waiting.remove_those_that_left(), []);
        assert_eq!(waiting.take(&key("/g")).len(), 1);
        assert!(waiting.is_empty() && waiting.of_owner.is_empty() && waiting.count == 0);
    }

    #[test]
    fn one_owner_leaves_places_to_others() {
        let mut waiting = WaitingClients::with_limit(8);
        let mut admitted = |owner: &str| {
            let answers: Vec<_> = (0..8).map(|_| add(&mut waiting, owner, "/f").1).collect();
            answers.iter().filter(|answer| answer.try_recv().is_err()).count()
        };
        assert_eq!([admitted("a"), admitted("b"), admitted("c"), admitted("a")], [4, 2, 1, 0]);
    }
}
