//! The state machine of the queue: which requests join, which transfer starts next, and what
//! follows from the end of a copy.
//!
//! It has no clock, thread or disk. The time is an argument, the entries are in an [`EntryStore`],
//! and the results are [`QueueAction`]s. So the same code runs on virtual time.
//!
//! ```text
//!           submit                 slot free               copied
//! (nothing) ------> queued ----------------------> active --------> removed
//!                     ^  \                          |  | \
//!                     |   \ cancelled by the last   |  |  \ cancelled: stopping, then removed
//!                     |    v request                |  v
//!                     |   removed                   |  failed for good: kept until the deny time is over
//!                     +-----------------------------+
//!                        failed for now: ready again at a time that grows with each try; for
//!                        requests with ids also after the last try of those who wait
//! ```

use crate::entry::{
    CopyFailure, EntryKey, EntryState, FailureReason, Priority, RequestId, TransferDirection, TransferEntry,
};
use crate::failure_pause::FailurePause;
use crate::store::{EntryStore, OwnerTurn, QueuePlaces};
use std::collections::BTreeMap;
use std::sync::Arc;
use thiserror::Error;

/// Number of entries of a request that one call of [`TransferQueue::cancel`] handles.
const CANCEL_ENTRIES_MAX: usize = 256;

/// Number of expired failures that one call of [`TransferQueue::start_ready`] removes.
const EXPIRED_MAX: usize = 256;

/// The time until the next try, divided by the time between the two tries before.
const BACKOFF_FACTOR: u64 = 4;

/// Maximum time until the next try, in seconds.
const BACKOFF_SECONDS_MAX: u64 = 900;

/// The age at which an entry with requests fails like one without, in seconds.
const REQUEST_SECONDS_MAX: u64 = 7 * 86_400;

/// The reason for which an entry finds no place.
pub(crate) const NO_PLACE: &str = "too many files of this client wait already; try again later";

/// The limits of the queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct QueueLimits {
    /// Copies that run at once from mass storage.
    pub slots_in: usize,
    /// Copies that run at once to mass storage.
    pub slots_out: usize,
    /// Copies that run at once from one host.
    pub slots_of_source: usize,
    /// Copies that run at once for one owner, from mass storage.
    pub slots_of_owner: usize,
    /// Maximum number of entries that wait or run. One owner has at most as many of them as are free,
    /// so there is always room for others.
    pub places: u64,
    /// Number of tries before a transfer fails for good. One for which requests with ids wait is tried
    /// for days, because an outage must not end requests that were acknowledged.
    pub tries_max: u32,
    /// Seconds between the first failed try and the second one.
    pub backoff: u64,
    /// Seconds for which requests are refused after a transfer has failed for good.
    pub deny: u64,
    /// Seconds for which the failed files of a request are kept.
    pub failures_kept: u64,
}

/// A request for a transfer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Submission {
    /// The transfer.
    pub key: EntryKey,
    /// The priority.
    pub priority: Priority,
    /// See [`TransferEntry::source`].
    pub source: Arc<str>,
    /// See [`TransferEntry::client`].
    pub client: Arc<str>,
    /// See [`TransferEntry::owner`].
    pub owner: Arc<str>,
    /// The id by which the request can be cancelled, if it has one.
    pub request: Option<RequestId>,
    /// See [`TransferEntry::removes`].
    pub removes: bool,
}

/// The result of a submission.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SubmissionOutcome {
    /// There is a new entry.
    Queued,
    /// The request joined an entry.
    Joined,
    /// The transfer failed for good a short time ago, for this reason.
    Refused(CopyFailure),
}

/// The result of a copy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CopyOutcome {
    /// The copy is complete and durable.
    Done,
    /// Nothing was to be copied.
    NotNeeded,
    /// It was ended because of [`QueueAction::Stop`], or because the server ends.
    Stopped,
    /// It failed.
    Failed(CopyFailure),
}

/// Work that follows from a command. It must be done after the changes in the store are durable.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum QueueAction {
    /// Start the copy of this entry.
    Start(Box<TransferEntry>),
    /// End the copy of this entry. It reports [`CopyOutcome::Stopped`], or its result if it was
    /// faster.
    Stop(EntryKey),
    /// Report the end of a transfer to all who wait for it.
    Finished(EntryKey, Result<(), CopyFailure>),
}

/// The error of a command.
#[derive(PartialEq, Eq, Debug, Error)]
pub enum QueueError<E> {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] E),
    /// A copy ended that was not running.
    #[error("the copy of {0} is not running")]
    NotRunning(String),
}

/// The state of the queue that is not in the store: the copies that run, and the turn of each
/// priority. It is small, so a command whose changes cannot be made durable is undone by restoring
/// a clone.
#[derive(Clone, Debug)]
pub struct TransferQueue {
    limits: QueueLimits,
    running: BTreeMap<EntryKey, TransferAtWork>,
    inward: Turns,
    outward: Turns,
    /// The failures of copies to mass storage.
    failures: FailurePause,
}

/// A copy that runs, as far as it decides about others and about its end.
#[derive(Clone, Debug)]
struct TransferAtWork {
    source: Arc<str>,
    owner: Arc<str>,
    /// It removes the file at its end.
    removes: bool,
}

/// The turns of priorities, and of owners within a priority.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Turns {
    /// The number of transfers that each priority may still start in this round.
    left: [u32; 3],
    /// The owner of the last transfer of each priority.
    last: [Option<Arc<str>>; 3],
}

impl Turns {
    fn new() -> Self {
        let mut turns = Self { left: [0; 3], last: [const { None }; 3] };
        turns.begin_round();
        turns
    }

    fn begin_round(&mut self) {
        for priority in Priority::ALL {
            self.left[priority.index()] = priority.share();
        }
    }
}

impl TransferQueue {
    /// Returns a queue with no running copy. The store has been recovered.
    #[must_use]
    pub fn new(limits: QueueLimits) -> Self {
        let (inward, outward) = (Turns::new(), Turns::new());
        Self { limits, running: BTreeMap::new(), inward, outward, failures: FailurePause::default() }
    }

    /// Returns the reason of a pause of migration, if there is one.
    pub(crate) fn pause_reason(&self) -> Option<&Arc<str>> {
        self.failures.reason()
    }

    /// Returns the number of running copies.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.len()
    }

    /// Returns the reason for which [`Self::submit`] would refuse a transfer.
    pub fn refusal<S: EntryStore>(
        &self,
        store: &mut S,
        key: &EntryKey,
        now: u64,
    ) -> Result<Option<CopyFailure>, QueueError<S::Error>> {
        Ok(match store.find(key)? {
            Some(TransferEntry { state: EntryState::Failed { until, failure }, .. }) if until > now => {
                Some(failure)
            }
            _ => None,
        })
    }

    /// Ends the time for which a transfer waits, or is refused, after a failure.
    pub fn forget_failure<S: EntryStore>(
        &mut self,
        store: &mut S,
        key: &EntryKey,
        now: u64,
    ) -> Result<(), QueueError<S::Error>> {
        match store.find(key)? {
            Some(TransferEntry { state: EntryState::Failed { .. }, .. }) => store.remove(key)?,
            Some(mut entry) if matches!(entry.state, EntryState::Queued { ready } if ready > now) => {
                entry.state = EntryState::Queued { ready: now };
                store.put(&entry)?;
            }
            _ => {}
        }
        Ok(())
    }

    /// Reports whether an owner may add a number of entries, each of which leaves one free place less.
    pub fn has_places<S: EntryStore>(
        &self,
        store: &mut S,
        owner: &str,
        more: u64,
    ) -> Result<bool, QueueError<S::Error>> {
        let QueuePlaces { own, all } = store.places(owner)?;
        let free = |added: u64| self.limits.places.saturating_sub(all.saturating_add(added));
        Ok(more == 0 || own.saturating_add(more) <= free(more - 1))
    }

    /// Reports whether a transfer would be a new entry.
    pub(crate) fn needs_place<S: EntryStore>(
        &self,
        store: &mut S,
        key: &EntryKey,
    ) -> Result<bool, QueueError<S::Error>> {
        Ok(matches!(store.find(key)?, None | Some(TransferEntry { state: EntryState::Failed { .. }, .. })))
    }

    /// Adds a request at the time `now`.
    pub fn submit<S: EntryStore>(
        &mut self,
        store: &mut S,
        submission: &Submission,
        now: u64,
    ) -> Result<SubmissionOutcome, QueueError<S::Error>> {
        let Submission { key, request, .. } = submission;
        let outcome = match store.find(key)? {
            Some(TransferEntry { state: EntryState::Failed { until, failure }, .. }) if until > now => {
                return Ok(SubmissionOutcome::Refused(failure));
            }
            None | Some(TransferEntry { state: EntryState::Failed { .. }, .. }) => {
                if !self.has_places(store, &submission.owner, 1)? {
                    return Ok(SubmissionOutcome::Refused(no_place()));
                }
                store.remove(key)?;
                store.put(&new_entry(submission, now))?;
                SubmissionOutcome::Queued
            }
            Some(entry) => {
                store.put(&joined(entry, submission))?;
                SubmissionOutcome::Joined
            }
        };
        if let Some(request) = request {
            store.add_request(request, key)?;
        }
        Ok(outcome)
    }

    /// Adds a request that another queue has acknowledged at the time `added`. It finds a place in any case, also
    /// for a transfer that failed a short time ago.
    pub(crate) fn adopt<S: EntryStore>(
        &self,
        store: &mut S,
        submission: &Submission,
        added: u64,
    ) -> Result<(), S::Error> {
        let Submission { key, request, .. } = submission;
        let entry = match store.find(key)? {
            None | Some(TransferEntry { state: EntryState::Failed { .. }, .. }) => {
                store.remove(key)?;
                new_entry(submission, added)
            }
            Some(entry) => joined(entry, submission),
        };
        store.put(&entry)?;
        if let Some(request) = request {
            store.add_request(request, key)?;
        }
        Ok(())
    }

    /// Ends the wait for an entry, because all clients without an id for it have left. An entry that has
    /// not started is removed, unless a request waits for it.
    pub fn abandon<S: EntryStore>(
        &mut self,
        store: &mut S,
        key: &EntryKey,
    ) -> Result<(), QueueError<S::Error>> {
        let Some(mut entry) = store.find(key)? else { return Ok(()) };
        if !entry.is_anonymous || !matches!(entry.state, EntryState::Queued { .. }) {
            return Ok(());
        }
        if !store.has_requests(key)? {
            return Ok(store.remove(key)?);
        }
        entry.is_anonymous = false;
        Ok(store.put(&entry)?)
    }

    /// Cancels entries of a request, and returns the actions and whether more entries are left for
    /// another call. An entry for which nobody else waits is removed; if its copy runs, that is
    /// stopped.
    pub fn cancel<S: EntryStore>(
        &mut self,
        store: &mut S,
        request: &RequestId,
    ) -> Result<(Vec<QueueAction>, bool), QueueError<S::Error>> {
        let mut actions = Vec::new();
        store.forget_failures(request)?;
        let keys = store.keys_of_request(request, None, CANCEL_ENTRIES_MAX)?;
        let is_more = keys.len() == CANCEL_ENTRIES_MAX;
        for key in keys {
            actions.extend(self.cancel_one(store, request, key)?);
        }
        Ok((actions, is_more))
    }

    /// Cancels one entry of a request. The result is like that of [`Self::cancel`].
    pub fn cancel_one<S: EntryStore>(
        &mut self,
        store: &mut S,
        request: &RequestId,
        key: EntryKey,
    ) -> Result<Option<QueueAction>, QueueError<S::Error>> {
        store.remove_request(request, &key)?;
        let Some(mut entry) = store.find(&key)? else { return Ok(None) };
        if entry.is_anonymous || store.has_requests(&key)? {
            return Ok(None);
        }
        match entry.state {
            EntryState::Queued { .. } => store.remove(&key)?,
            EntryState::Active => {
                entry.state = EntryState::Stopping;
                store.put(&entry)?;
                return Ok(Some(QueueAction::Stop(key)));
            }
            EntryState::Stopping | EntryState::Failed { .. } => {}
        }
        Ok(None)
    }

    /// Handles the end of a copy.
    pub fn finish<S: EntryStore>(
        &mut self,
        store: &mut S,
        key: &EntryKey,
        outcome: CopyOutcome,
        now: u64,
    ) -> Result<Option<QueueAction>, QueueError<S::Error>> {
        let Some(running) = self.running.remove(key) else {
            return Err(QueueError::NotRunning(key.path.text().into_owned()));
        };
        if key.direction == TransferDirection::Out {
            self.failures.note(key, &outcome, now);
        }
        let Some(mut entry) = store.find(key)? else {
            // The database was replaced meanwhile. Those who wait get their answer all the same.
            let result = match outcome {
                CopyOutcome::Done | CopyOutcome::NotNeeded => Ok(()),
                CopyOutcome::Stopped => return Ok(None),
                CopyOutcome::Failed(failure) => Err(failure),
            };
            return Ok(Some(QueueAction::Finished(key.clone(), result)));
        };
        let result = match (outcome, &entry.state) {
            // A request that joined meanwhile wants the file to be removed.
            (CopyOutcome::Done | CopyOutcome::NotNeeded, EntryState::Active)
                if entry.removes && !running.removes =>
            {
                entry.state = EntryState::Queued { ready: now };
                entry.tries = entry.tries.saturating_sub(1);
                store.put(&entry)?;
                return Ok(None);
            }
            (CopyOutcome::Done | CopyOutcome::NotNeeded, _) => Ok(()),
            (CopyOutcome::Stopped, EntryState::Active) => {
                entry.state = EntryState::Queued { ready: now };
                // A try that was stopped has not failed.
                entry.tries = entry.tries.saturating_sub(1);
                store.put(&entry)?;
                return Ok(None);
            }
            (_, EntryState::Stopping) => {
                store.remove(key)?;
                return Ok(None);
            }
            (CopyOutcome::Stopped, _) => return Ok(None),
            (CopyOutcome::Failed(failure), _) => Err(failure),
        };
        match result {
            Ok(()) => {
                store.remove(key)?;
                Ok(Some(QueueAction::Finished(key.clone(), Ok(()))))
            }
            Err(failure) => self.failed(store, entry, failure, now),
        }
    }

    /// Handles the failure of a copy.
    fn failed<S: EntryStore>(
        &mut self,
        store: &mut S,
        mut entry: TransferEntry,
        failure: CopyFailure,
        now: u64,
    ) -> Result<Option<QueueAction>, QueueError<S::Error>> {
        let key = entry.key.clone();
        let may_pass =
            matches!(failure.reason, FailureReason::Temporary | FailureReason::Site | FailureReason::Changed);
        let is_young = now.saturating_sub(entry.added) < REQUEST_SECONDS_MAX;
        let is_last = entry.tries >= self.limits.tries_max;
        if failure.reason == FailureReason::InUse {
            entry.tries = entry.tries.saturating_sub(1);
            entry.state = EntryState::Queued { ready: now.saturating_add(self.limits.backoff) };
            store.put(&entry)?;
            return Ok(None);
        }
        if may_pass && (!is_last || is_young && store.has_requests(&key)?) {
            entry.state = EntryState::Queued { ready: now.saturating_add(self.backoff(entry.tries)) };
            if !is_last {
                store.put(&entry)?;
                return Ok(None);
            }
            // Clients that are connected get the reason. Requests survive an outage.
            entry.is_anonymous = false;
            store.put(&entry)?;
            return Ok(Some(QueueAction::Finished(key, Err(failure))));
        }
        // The requests end, the failure stays if it is one of the file.
        store.fail_requests(&entry, &failure, now.saturating_add(self.limits.failures_kept))?;
        store.remove(&key)?;
        if failure.reason != FailureReason::Site {
            let until = now.saturating_add(self.limits.deny);
            entry.state = EntryState::Failed { until, failure: failure.clone() };
            entry.is_anonymous = false;
            store.put(&entry)?;
        }
        Ok(Some(QueueAction::Finished(key, Err(failure))))
    }

    /// Returns the seconds between the end of a failed try, the number of which is `tries`, and the
    /// next one.
    fn backoff(&self, tries: u32) -> u64 {
        let factor = BACKOFF_FACTOR.saturating_pow(tries.saturating_sub(1));
        self.limits.backoff.saturating_mul(factor).min(BACKOFF_SECONDS_MAX)
    }

    /// Starts all transfers that are ready and have a slot.
    pub fn start_ready<S: EntryStore>(
        &mut self,
        store: &mut S,
        now: u64,
    ) -> Result<Vec<QueueAction>, QueueError<S::Error>> {
        store.remove_expired(now, EXPIRED_MAX)?;
        let mut actions = Vec::new();
        for direction in TransferDirection::ALL {
            let slots = match direction {
                TransferDirection::In => self.limits.slots_in,
                TransferDirection::Out => self.failures.slots(self.limits.slots_out, now),
            };
            while self.running.keys().filter(|key| key.direction == direction).count() < slots {
                let Some(mut entry) = self.choose(store, direction, now)? else { break };
                entry.state = EntryState::Active;
                entry.tries = entry.tries.saturating_add(1);
                store.put(&entry)?;
                let (source, owner, removes) = (entry.source.clone(), entry.owner.clone(), entry.removes);
                self.running.insert(entry.key.clone(), TransferAtWork { source, owner, removes });
                actions.push(QueueAction::Start(Box::new(entry)));
            }
        }
        Ok(actions)
    }

    /// Returns the time at which [`Self::start_ready`] has to be called again, even if nothing else
    /// happens.
    pub fn next_time<S: EntryStore>(
        &self,
        store: &mut S,
        now: u64,
    ) -> Result<Option<u64>, QueueError<S::Error>> {
        let ready = store.next_ready_time(now)?;
        Ok(ready.into_iter().chain(self.failures.end(now)).min())
    }

    /// Returns the entry to start next, and counts the turn of its priority. A priority that used
    /// up its turns has others when no other one with turns has a ready entry.
    fn choose<S: EntryStore>(
        &mut self,
        store: &mut S,
        direction: TransferDirection,
        now: u64,
    ) -> Result<Option<TransferEntry>, QueueError<S::Error>> {
        let (sources, owners) = self.full(direction);
        for is_new_round in [false, true] {
            if is_new_round {
                self.turns(direction).begin_round();
            }
            for priority in Priority::ALL {
                let turns = self.turns(direction);
                if turns.left[priority.index()] == 0 {
                    continue;
                }
                let last = turns.last[priority.index()].clone();
                let turn = OwnerTurn { after: last.as_deref(), full: &owners };
                if let Some(entry) = store.next_ready(direction, priority, now, &sources, &turn)? {
                    let turns = self.turns(direction);
                    turns.left[priority.index()] -= 1;
                    turns.last[priority.index()] = Some(entry.owner.clone());
                    return Ok(Some(entry));
                }
            }
        }
        Ok(None)
    }

    fn turns(&mut self, direction: TransferDirection) -> &mut Turns {
        match direction {
            TransferDirection::In => &mut self.inward,
            TransferDirection::Out => &mut self.outward,
        }
    }

    /// Returns the sources and the owners that use all of their slots.
    fn full(&self, direction: TransferDirection) -> (Vec<Arc<str>>, Vec<Arc<str>>) {
        let (mut sources, mut owners) = (BTreeMap::new(), BTreeMap::new());
        for (_, copy) in self.running.iter().filter(|(key, _)| key.direction == direction) {
            *sources.entry(&copy.source).or_default() += 1;
            *owners.entry(&copy.owner).or_default() += 1;
        }
        let full = |counts: BTreeMap<&Arc<str>, usize>, most: usize| {
            counts.into_iter().filter(|(_, count)| *count >= most).map(|(name, _)| name.clone()).collect()
        };
        match direction {
            TransferDirection::In => {
                (full(sources, self.limits.slots_of_source), full(owners, self.limits.slots_of_owner))
            }
            // The server is the only owner of copies to mass storage.
            TransferDirection::Out => (full(sources, self.limits.slots_out), Vec::new()),
        }
    }
}

fn no_place() -> CopyFailure {
    CopyFailure::new(FailureReason::Site, NO_PLACE)
}

/// Returns an entry that a request has joined.
fn joined(mut entry: TransferEntry, submission: &Submission) -> TransferEntry {
    entry.priority = entry.priority.max(submission.priority);
    entry.is_anonymous |= submission.request.is_none();
    entry.removes |= submission.removes;
    if entry.state == EntryState::Stopping {
        // The copy ends anyway, and is then queued again.
        entry.state = EntryState::Active;
    }
    entry
}

fn new_entry(submission: &Submission, now: u64) -> TransferEntry {
    TransferEntry {
        key: submission.key.clone(),
        priority: submission.priority,
        source: submission.source.clone(),
        id: submission.request.as_ref().map_or(&submission.client, |request| &request.0).clone(),
        client: submission.client.clone(),
        owner: submission.owner.clone(),
        added: now,
        tries: 0,
        is_anonymous: submission.request.is_none(),
        removes: submission.removes,
        state: EntryState::Queued { ready: now },
    }
}
