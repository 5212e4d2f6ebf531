//! Entries in memory, for tests and simulations.

use crate::entry::{
    CopyFailure, EntryKey, EntryState, Priority, RequestId, TransferDirection, TransferEntry,
};
use crate::store::{EntryStore, OwnerTurn, QueuePlaces};
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::Arc;

/// A store that does not survive the process. It searches all entries, so it is for few of them.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct MemoryStore {
    entries: BTreeMap<EntryKey, TransferEntry>,
    /// The order of addition, which decides between entries that became ready at the same time.
    numbers: BTreeMap<EntryKey, u64>,
    next_number: u64,
    requests: BTreeSet<(RequestId, EntryKey)>,
    /// Failed files of requests: until when they are kept, and the reason.
    failures: BTreeMap<(RequestId, EntryKey), (u64, Arc<str>)>,
}

impl MemoryStore {
    /// Returns all entries, in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = &TransferEntry> {
        self.entries.values()
    }

    /// Returns the files of a request that have failed, and the reasons.
    pub fn failures(&self, request: &RequestId) -> Vec<(&EntryKey, &str)> {
        let of_request = self.failures.iter().filter(|((of, _), _)| of == request);
        of_request.map(|((_, key), (_, text))| (key, &**text)).collect()
    }

    /// Returns all pairs of a request and an entry for which it waits, in order.
    pub fn requests(&self) -> impl Iterator<Item = &(RequestId, EntryKey)> {
        self.requests.iter()
    }
}

impl EntryStore for MemoryStore {
    type Error = Infallible;

    fn find(&mut self, key: &EntryKey) -> Result<Option<TransferEntry>, Infallible> {
        Ok(self.entries.get(key).cloned())
    }

    fn put(&mut self, entry: &TransferEntry) -> Result<(), Infallible> {
        let next = &mut self.next_number;
        self.numbers.entry(entry.key.clone()).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.entries.insert(entry.key.clone(), entry.clone());
        Ok(())
    }

    fn remove(&mut self, key: &EntryKey) -> Result<(), Infallible> {
        self.entries.remove(key);
        self.numbers.remove(key);
        self.requests.retain(|(_, of)| of != key);
        Ok(())
    }

    fn next_ready(
        &mut self,
        direction: TransferDirection,
        priority: Priority,
        now: u64,
        full: &[Arc<str>],
        turn: &OwnerTurn<'_>,
    ) -> Result<Option<TransferEntry>, Infallible> {
        let of_class =
            self.entries.values().filter(|e| e.key.direction == direction && e.priority == priority);
        let ready = of_class.filter_map(|entry| match entry.state {
            EntryState::Queued { ready }
                if ready <= now && !full.contains(&entry.source) && !turn.full.contains(&entry.owner) =>
            {
                let is_new_round = turn.after.is_some_and(|last| &*entry.owner <= last);
                Some(((is_new_round, &entry.owner, ready, self.numbers.get(&entry.key)), entry))
            }
            _ => None,
        });
        Ok(ready.min_by_key(|(order, _)| *order).map(|(_, entry)| entry.clone()))
    }

    fn places(&mut self, owner: &str) -> Result<QueuePlaces, Infallible> {
        let unfinished = || self.entries.values().filter(|e| !matches!(e.state, EntryState::Failed { .. }));
        let own = unfinished().filter(|entry| &*entry.owner == owner).count() as u64;
        Ok(QueuePlaces { own, all: unfinished().count() as u64 })
    }

    fn fail_requests(
        &mut self,
        entry: &TransferEntry,
        failure: &CopyFailure,
        until: u64,
    ) -> Result<(), Infallible> {
        for (request, _) in self.requests.iter().filter(|(_, of)| *of == entry.key) {
            let key = (request.clone(), entry.key.clone());
            self.failures.insert(key, (until, failure.text.clone()));
        }
        Ok(())
    }

    fn forget_failures(&mut self, request: &RequestId) -> Result<(), Infallible> {
        self.failures.retain(|(of, _), _| of != request);
        Ok(())
    }

    fn next_ready_time(&mut self, now: u64) -> Result<Option<u64>, Infallible> {
        let times = self.entries.values().filter_map(|entry| match entry.state {
            EntryState::Queued { ready } if ready > now => Some(ready),
            _ => None,
        });
        Ok(times.min())
    }

    fn add_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), Infallible> {
        self.requests.insert((request.clone(), key.clone()));
        Ok(())
    }

    fn remove_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), Infallible> {
        self.requests.remove(&(request.clone(), key.clone()));
        Ok(())
    }

    fn keys_of_request(
        &mut self,
        request: &RequestId,
        after: Option<&EntryKey>,
        most: usize,
    ) -> Result<Vec<EntryKey>, Infallible> {
        let all = self.requests.iter().filter(|(of, key)| of == request && after.is_none_or(|a| key > a));
        Ok(all.take(most).map(|(_, key)| key.clone()).collect())
    }

    fn has_requests(&mut self, key: &EntryKey) -> Result<bool, Infallible> {
        Ok(self.requests.iter().any(|(_, of)| of == key))
    }

    fn recover(&mut self, now: u64, deny: u64) -> Result<(), Infallible> {
        let keys_in = |entries: &BTreeMap<EntryKey, TransferEntry>, state: EntryState| -> Vec<EntryKey> {
            entries.values().filter(|e| e.state == state).map(|e| e.key.clone()).collect()
        };
        for key in keys_in(&self.entries, EntryState::Stopping) {
            self.remove(&key)?;
        }
        for entry in self.entries.values_mut().filter(|entry| entry.state == EntryState::Active) {
            entry.state = EntryState::Queued { ready: entry.added };
        }
        for entry in self.entries.values_mut() {
            match &mut entry.state {
                EntryState::Queued { ready } => *ready = now.min(*ready),
                EntryState::Failed { until, .. } if *until > now.saturating_add(deny) => *until = now,
                _ => {}
            }
        }
        Ok(())
    }

    fn remove_expired(&mut self, now: u64, most: usize) -> Result<usize, Infallible> {
        self.failures.retain(|_, (until, _)| *until > now);
        let over =
            |entry: &&TransferEntry| matches!(entry.state, EntryState::Failed { until, .. } if until <= now);
        let keys: Vec<EntryKey> =
            self.entries.values().filter(over).take(most).map(|entry| entry.key.clone()).collect();
        for key in &keys {
            self.remove(key)?;
        }
        Ok(keys.len())
    }
}
