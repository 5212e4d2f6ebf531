//! The port through which the state machine reads and changes the entries.

use crate::entry::{CopyFailure, EntryKey, Priority, RequestId, TransferDirection, TransferEntry};
use std::sync::Arc;

/// The turn of the owners of entries.
#[derive(Clone, Copy, Debug)]
pub struct OwnerTurn<'a> {
    /// The owner of the entry that started last. The next one in the order of names has its turn.
    pub after: Option<&'a str>,
    /// Owners who use all of their slots.
    pub full: &'a [Arc<str>],
}

/// Numbers of entries that wait or run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueuePlaces {
    /// Those of one owner.
    pub own: u64,
    /// Those of all owners.
    pub all: u64,
}

/// The entries of the queue, and the requests with an id that wait for them.
///
/// One command makes several calls. An implementation that survives the process makes the changes
/// of a whole command durable at once, or none of them.
pub trait EntryStore {
    /// The error of a store that cannot be read or written.
    type Error;

    /// Returns the entry with this key.
    fn find(&mut self, key: &EntryKey) -> Result<Option<TransferEntry>, Self::Error>;
    /// Adds an entry, or replaces the one with the same key and keeps its requests.
    fn put(&mut self, entry: &TransferEntry) -> Result<(), Self::Error>;
    /// Removes the entry with this key, and its place in all requests.
    fn remove(&mut self, key: &EntryKey) -> Result<(), Self::Error>;
    /// Returns the queued entry to start next. Owners have their turns in the order of their names; of
    /// the owner it is the entry that has been ready for the longest time, and of several the one that
    /// was added first. Entries of the sources in `full`, and those that become ready only after `now`,
    /// are left out.
    fn next_ready(
        &mut self,
        direction: TransferDirection,
        priority: Priority,
        now: u64,
        full: &[Arc<str>],
        turn: &OwnerTurn<'_>,
    ) -> Result<Option<TransferEntry>, Self::Error>;
    /// Returns the numbers of entries that wait or run.
    fn places(&mut self, owner: &str) -> Result<QueuePlaces, Self::Error>;
    /// Records for all requests that wait for an entry that it failed, until the time `until`.
    fn fail_requests(
        &mut self,
        entry: &TransferEntry,
        failure: &CopyFailure,
        until: u64,
    ) -> Result<(), Self::Error>;
    /// Removes the failures of a request.
    fn forget_failures(&mut self, request: &RequestId) -> Result<(), Self::Error>;
    /// Returns the time at which the next queued entry becomes ready that is not ready at `now`.
    fn next_ready_time(&mut self, now: u64) -> Result<Option<u64>, Self::Error>;
    /// Makes a request wait for an entry. It may do so already.
    fn add_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), Self::Error>;
    /// Ends the wait of a request for an entry.
    fn remove_request(&mut self, request: &RequestId, key: &EntryKey) -> Result<(), Self::Error>;
    /// Returns up to `most` keys of entries for which a request waits, those after `after`, in
    /// order.
    fn keys_of_request(
        &mut self,
        request: &RequestId,
        after: Option<&EntryKey>,
        most: usize,
    ) -> Result<Vec<EntryKey>, Self::Error>;
    /// Reports whether any request waits for an entry.
    fn has_requests(&mut self, key: &EntryKey) -> Result<bool, Self::Error>;
    /// Ends the copies that an earlier run started: entries that are active become queued and ready
    /// at once, those that are stopping are removed. Times that a clock at `now` cannot have written
    /// count as reached: queued entries are ready, and nothing is refused for longer than `deny`.
    fn recover(&mut self, now: u64, deny: u64) -> Result<(), Self::Error>;
    /// Removes up to `most` failed entries, and failures of requests, whose time is over at `now`.
    fn remove_expired(&mut self, now: u64, most: usize) -> Result<usize, Self::Error>;
}
