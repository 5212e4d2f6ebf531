//! The leases of a data server, shared between threads.
//!
//! Parents grant them on the cluster's thread, and the event loops of connections check them before
//! a client creates a file. See [`cluster::Leases`] and decision 001.

use super::lease_record::LeaseRecord;
use base::{Clock, LogicalPath};
use cluster::tree::Address;
use cluster::{CreationOutcome, LeaseNumber, LeaseReport, Permit};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The leases, shared by the event loops of connections and the cluster's thread.
pub(crate) struct SharedLeases {
    /// Set if the table was ever used, so that most servers need no lock for the check.
    is_known: AtomicBool,
    state: Mutex<SharedLeasesState>,
    clock: Arc<dyn Clock>,
    /// Wakes the cluster's thread to end expired leases.
    end_soon: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct SharedLeasesState {
    leases: cluster::Leases,
    /// The node where clients begin.
    door: Option<Address>,
    /// The record of these leases for the next run of this server.
    record: LeaseRecord,
}

/// The answer to a client that wants to create a file.
pub(crate) enum CreationPermit {
    /// The path has no lease: the client was not sent by a parent.
    Free,
    /// The creation is within its lease.
    Leased(Creation),
    /// The client may have arrived before its lease, and retries here after a wait.
    Later,
    /// The lease has ended. The client retries at this address.
    Refused(Option<Address>),
}

/// A creation within a lease. Dropped without an outcome, it counts as failed.
pub(crate) struct Creation {
    leases: Arc<SharedLeases>,
    path: LogicalPath,
    outcome: CreationOutcome,
}

impl Creation {
    /// Ends the creation with this outcome.
    pub(crate) fn end(mut self, outcome: CreationOutcome) {
        self.outcome = outcome;
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        let now = self.leases.clock.now();
        self.leases.state().leases.end(self.path.as_bytes(), self.outcome, now);
        if self.outcome == CreationOutcome::Failed {
            // If the wake-up fails, the leases end at the next deadline.
            (self.leases.end_soon)();
        }
    }
}

impl SharedLeases {
    /// Creates the leases of a server. The record for the next run lies beside the place file.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        end_soon: Box<dyn Fn() + Send + Sync>,
        place: Option<&Path>,
    ) -> Arc<Self> {
        let mut state = SharedLeasesState::default();
        if let Some(time) = place.and_then(|place| LeaseRecord::read(place, clock.today())) {
            state.leases.recover(time, clock.now());
        }
        state.record = LeaseRecord::new(place);
        let is_known = AtomicBool::new(!state.leases.is_empty());
        Arc::new(Self { is_known, state: Mutex::new(state), clock, end_soon })
    }

    /// Sets the node where clients begin, as a parent reports it, and whether a parent that grants
    /// no leases is connected.
    pub(super) fn set_parents(&self, door: Option<Address>, has_plain_parent: bool) {
        let mut state = self.state();
        state.door = door;
        state.leases.set_plain_parent(has_plain_parent);
    }

    fn state(&self) -> MutexGuard<'_, SharedLeasesState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// Checks the lease for a client that wants to create a file.
    pub(crate) fn begin(self: &Arc<Self>, path: &LogicalPath) -> CreationPermit {
        if !self.is_known() {
            return CreationPermit::Free;
        }
        let path = path.without_slash();
        let mut state = self.state();
        match state.leases.begin(path.as_bytes(), self.clock.now()) {
            Permit::Free => CreationPermit::Free,
            Permit::Later => CreationPermit::Later,
            Permit::Refused => CreationPermit::Refused(state.door.clone()),
            Permit::Leased => CreationPermit::Leased(Creation {
                leases: self.clone(),
                path,
                outcome: CreationOutcome::Failed,
            }),
        }
    }

    /// Applies the order of a parent for a lease, see [`cluster::Leases::order`].
    pub(super) fn order(
        &self,
        path: &[u8],
        time: Duration,
        number: LeaseNumber,
        door: Option<Address>,
    ) -> Option<LeaseReport> {
        let now = self.clock.now();
        let mut state = self.state();
        state.door = door;
        if !time.is_zero() {
            state.record.note(self.clock.today());
        }
        let stays = state.leases.order(path, time, number, now);
        self.is_known.store(true, Ordering::Release);
        stays
    }

    pub(super) fn is_running(&self, path: &[u8]) -> bool {
        self.report(path).is_some()
    }

    /// Returns the lease of a path, if it has not ended.
    pub(super) fn report(&self, path: &[u8]) -> Option<LeaseReport> {
        if self.is_known() { self.state().leases.report(path, self.clock.now()) } else { None }
    }

    /// Returns all leases that have not ended, for a new parent.
    pub(super) fn running(&self) -> Vec<(Arc<[u8]>, LeaseReport)> {
        if !self.is_known() {
            return Vec::new();
        }
        let state = self.state();
        state.leases.running(self.clock.now()).map(|(path, lease)| (path.clone(), lease)).collect()
    }

    pub(super) fn has_ended(&self, path: &[u8]) -> bool {
        self.is_known() && self.state().leases.has_ended(path, self.clock.now())
    }

    /// Records that a file exists.
    pub(super) fn exists(&self, path: &[u8]) {
        if self.is_known() {
            self.state().leases.exists(path);
        }
    }

    pub(super) fn next_deadline(&self) -> Option<Duration> {
        if self.is_known() { self.state().leases.next_deadline() } else { None }
    }

    pub(super) fn take_ended(&self) -> Vec<Arc<[u8]>> {
        let mut state = self.state();
        let ended = state.leases.take_ended(self.clock.now());
        self.is_known.store(!state.leases.is_empty(), Ordering::Release);
        ended
    }
}
