//! The leases of a data server: parents grant them on the cluster's thread, and the loops of connections ask for them before a
//! client creates a file. See [`cluster::Leases`].

use super::lease_record::LeaseRecord;
use base::{Clock, LogicalPath};
use cluster::tree::Address;
use cluster::{LeaseNumber, Outcome, Permit};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Leases as the loops of connections and the cluster's thread share them.
pub(crate) struct SharedLeases {
    /// Whether anything is known: most servers most of the time know nothing.
    is_known: AtomicBool,
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    /// Has the cluster's thread end the leases that are over.
    end_soon: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct State {
    leases: cluster::Leases,
    /// Where clients begin.
    door: Option<Address>,
    /// What the next run of this server is told of these leases.
    record: LeaseRecord,
}

/// The answer to a client that wants to create a file.
pub(crate) enum CreationPermit {
    /// Nobody was given a lease: the client came by itself.
    Free,
    /// Within its lease.
    Leased(Creation),
    /// It may have come before its lease, and asks here again after a moment.
    Later,
    /// It has come too late, and asks there again.
    Refused(Option<Address>),
}

/// A creation within a lease. Dropped, it counts as failed.
pub(crate) struct Creation {
    leases: Arc<SharedLeases>,
    path: LogicalPath,
    outcome: Outcome,
}

impl Creation {
    /// Ends it.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.outcome = outcome;
    }
}

impl Drop for Creation {
    fn drop(&mut self) {
        let now = self.leases.clock.now();
        self.leases.state().leases.end(self.path.as_bytes(), self.outcome, now);
        if self.outcome == Outcome::Failed {
            // Refused, it is done with the next deadline.
            (self.leases.end_soon)();
        }
    }
}

impl SharedLeases {
    /// The leases of a server. What the next run has to know of them lies beside the place file.
    pub(super) fn new(
        clock: Arc<dyn Clock>,
        end_soon: Box<dyn Fn() + Send + Sync>,
        place: Option<&Path>,
    ) -> Arc<Self> {
        let mut state = State::default();
        if let Some(time) = place.and_then(|place| LeaseRecord::read(place, clock.today())) {
            state.leases.recover(time, clock.now());
        }
        state.record = LeaseRecord::new(place);
        let is_known = AtomicBool::new(!state.leases.is_empty());
        Arc::new(Self { is_known, state: Mutex::new(state), clock, end_soon })
    }

    /// A parent says where clients begin.
    pub(super) fn set_door(&self, door: Option<Address>) {
        self.state().door = door;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_known(&self) -> bool {
        self.is_known.load(Ordering::Acquire)
    }

    /// A client wants to create a file.
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
            Permit::Leased => {
                CreationPermit::Leased(Creation { leases: self.clone(), path, outcome: Outcome::Failed })
            }
        }
    }

    /// Does what a parent orders of a lease, see [`cluster::Leases::order`].
    pub(super) fn order(
        &self,
        path: &[u8],
        time: Duration,
        number: LeaseNumber,
        door: Option<Address>,
    ) -> Option<LeaseNumber> {
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
        self.number(path).is_some()
    }

    /// The number of the lease of a path, if it runs.
    pub(super) fn number(&self, path: &[u8]) -> Option<LeaseNumber> {
        if self.is_known() { self.state().leases.number(path, self.clock.now()) } else { None }
    }

    /// All leases that run, for a new parent.
    pub(super) fn running(&self) -> Vec<(Arc<[u8]>, LeaseNumber)> {
        if !self.is_known() {
            return Vec::new();
        }
        let state = self.state();
        state.leases.running(self.clock.now()).map(|(path, number)| (path.clone(), number)).collect()
    }

    pub(super) fn has_ended(&self, path: &[u8]) -> bool {
        self.is_known() && self.state().leases.has_ended(path, self.clock.now())
    }

    /// A file is there.
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
