//! Entries in memory, for tests and simulations.

use crate::entry::{EntryKey, EntryState, Priority, RequestId, TransferDirection, TransferEntry};
use crate::store::EntryStore;
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
}

impl MemoryStore {
    /// Returns all entries, in the order of their keys.
    pub fn entries(&self) -> impl Iterator<Item = &TransferEntry> {
        self.entries.values()
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
    ) -> Result<Option<TransferEntry>, Infallible> {
        let of_class =
            self.entries.values().filter(|e| e.key.direction == direction && e.priority == priority);
        let ready = of_class.filter_map(|entry| match entry.state {
            EntryState::Queued { ready } if ready <= now && !full.contains(&entry.source) => {
                Some(((ready, self.numbers.get(&entry.key)), entry))
            }
            _ => None,
        });
        Ok(ready.min_by_key(|(order, _)| *order).map(|(_, entry)| entry.clone()))
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
