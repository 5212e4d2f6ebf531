//! The tape changes that wait for the thread of the queue: their number is bounded, and one transaction has only
//! a few of them.

use crate::queue_thread::Command;
use crate::tape_requests::TapeChange;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Maximum number of files of all tape changes that wait. One owner has at most as many of them as are free.
const WAITING_FILES_MAX: u64 = 40_000;

/// Number of files after which a transaction gets no other tape change.
const TRANSACTION_FILES: u64 = 1024;

/// The number of files that the removal of a request counts, whatever it has.
const FORGET_FILES: u64 = 10_000;

/// Counts the files of tape changes that wait.
#[derive(Default, Debug)]
pub(crate) struct TapeLoad {
    owners: Mutex<BTreeMap<Arc<str>, u64>>,
}

/// The place of a tape change that waits. Its end gives it back.
#[derive(Debug)]
pub(crate) struct TapePermit {
    load: Arc<TapeLoad>,
    owner: Arc<str>,
    files: u64,
}

impl TapeLoad {
    /// Returns a place for a change; `None` if too many wait.
    pub(crate) fn admit(self: &Arc<Self>, change: &TapeChange) -> Option<TapePermit> {
        let (owner, files) = (owner_of(change), files_of(change));
        let mut owners = self.lock();
        let all: u64 = owners.values().sum();
        let own = owners.get(&owner).copied().unwrap_or_default();
        // A single one of any size is admitted.
        if all > 0 && own.saturating_add(files) > WAITING_FILES_MAX.saturating_sub(all) {
            return None;
        }
        owners.insert(owner.clone(), own.saturating_add(files));
        Some(TapePermit { load: self.clone(), owner, files })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Arc<str>, u64>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TapePermit {
    fn drop(&mut self) {
        let mut owners = self.load.lock();
        if let Some(own) = owners.get_mut(&self.owner) {
            *own = own.saturating_sub(self.files);
            if *own == 0 {
                owners.remove(&self.owner);
            }
        }
    }
}

/// Returns the owner of a change: the client that records a request, or the request.
fn owner_of(change: &TapeChange) -> Arc<str> {
    match change {
        TapeChange::Record(submission) => submission.owner.clone(),
        TapeChange::Cancel(id, _) | TapeChange::Forget(id) | TapeChange::Release(id, _) => id.0.clone(),
    }
}

fn files_of(change: &TapeChange) -> u64 {
    let number = match change {
        TapeChange::Record(submission) => submission.files.len() as u64,
        TapeChange::Cancel(_, paths) | TapeChange::Release(_, paths) => paths.len() as u64,
        TapeChange::Forget(_) => FORGET_FILES,
    };
    number.max(1)
}

/// Adds the tape changes of one transaction to its other commands.
pub(crate) fn take(waiting: &mut VecDeque<Command>, batch: &mut Vec<Command>) {
    let mut files = 0;
    while files < TRANSACTION_FILES
        && let Some(command) = waiting.pop_front()
    {
        if let Command::Tape(change, ..) = &command {
            files += files_of(change);
        }
        batch.push(command);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;
    use crate::entry::RequestId;
    use base::LogicalPath;

    fn release(id: &str, files: usize) -> TapeChange {
        TapeChange::Release(RequestId(id.into()), vec![LogicalPath::root(); files])
    }

    #[test]
    fn changes_that_wait_are_bounded_and_leave_places_to_others() {
        let load = Arc::new(TapeLoad::default());
        let mut waiting: Vec<_> = (0..10).filter_map(|_| load.admit(&release("a", 10_000))).collect();
        assert_eq!(waiting.len(), 2);
        waiting.extend((0..10).filter_map(|_| load.admit(&release("b", 10_000))));
        assert_eq!(waiting.len(), 3);
        assert!(load.admit(&release("c", 1)).is_some());
        waiting.clear();
        assert!(load.lock().is_empty());
        assert!(load.admit(&release("a", 10 * WAITING_FILES_MAX as usize)).is_some(), "it waits alone");
    }

    #[test]
    fn one_transaction_has_one_large_change() {
        let load = Arc::new(TapeLoad::default());
        let tape = |files: usize| {
            let change = release(&format!("{files}"), files);
            let permit = load.admit(&change).unwrap();
            Command::Tape(change, permit, Box::new(|_| {}))
        };
        let mut waiting: VecDeque<_> = [5, 10, 10_000, 2000, 1].map(tape).into();
        let mut taken = || {
            let mut batch = vec![Command::Wake];
            take(&mut waiting, &mut batch);
            batch.len() - 1
        };
        assert_eq!([taken(), taken(), taken(), taken()], [3, 1, 1, 0]);
    }
}
