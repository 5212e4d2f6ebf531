//! The leases of a data server: parents grant them on the cluster's thread, and the loops of connections ask for them before a
//! client creates a file. See [`cluster::Leases`].

use super::askers::Parent;
use super::engine::Engine;
use super::inbox::Inbox;
use base::{Clock, LogicalPath};
use cluster::tree::{Address, Extensions, LinkId};
use cluster::{Outcome, Permit, Slot, StateReply};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use wire::cms::flags::HaveModifier;
use wire::cms::message::{Gone, Have, Lease};
use wire::cms::{Message as Wire, StreamId};

/// Leases as the loops of connections and the cluster's thread share them.
pub(crate) struct SharedLeases {
    /// Whether anything is known: most servers most of the time know nothing.
    is_known: AtomicBool,
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    inbox: Arc<Inbox>,
}

#[derive(Default)]
struct State {
    leases: cluster::Leases,
    /// Where clients begin.
    door: Option<Address>,
}

/// The answer to a client that wants to create a file.
pub(crate) enum CreationPermit {
    /// Nobody was given a lease: the client came by itself.
    Free,
    /// Within its lease.
    Leased(Creation),
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
            self.leases.inbox.job(Box::new(Engine::end_leases));
        }
    }
}

impl SharedLeases {
    pub(super) fn new(clock: Arc<dyn Clock>, inbox: Arc<Inbox>) -> Arc<Self> {
        let (is_known, state) = (AtomicBool::new(false), Mutex::default());
        Arc::new(Self { is_known, state, clock, inbox })
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
            Permit::Refused => CreationPermit::Refused(state.door.clone()),
            Permit::Leased => {
                CreationPermit::Leased(Creation { leases: self.clone(), path, outcome: Outcome::Failed })
            }
        }
    }

    fn grant(&self, path: &[u8], time: Duration, door: Option<Address>) {
        let now = self.clock.now();
        let mut state = self.state();
        state.door = door;
        state.leases.grant_for(path, time, now);
        self.is_known.store(true, Ordering::Release);
    }

    pub(super) fn is_running(&self, path: &[u8]) -> bool {
        self.is_known() && self.state().leases.is_running(path, self.clock.now())
    }

    pub(super) fn has_ended(&self, path: &[u8]) -> bool {
        self.is_known() && self.state().leases.has_ended(path)
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

    fn take_ended(&self) -> Vec<Arc<[u8]>> {
        let mut state = self.state();
        let ended = state.leases.take_ended(self.clock.now());
        self.is_known.store(!state.leases.is_empty(), Ordering::Release);
        ended
    }
}

impl Engine {
    /// A parent sends a client here to create a file.
    pub(super) fn leased(&mut self, link: LinkId, lease: &Lease<'_>) {
        let Ok(path) = LogicalPath::parse(lease.path) else { return };
        let path = path.without_slash();
        let time = Duration::from_millis(lease.milliseconds.into());
        if self.resolver.is_some() {
            self.resolve(|resolver, now, _| resolver.lease(path.as_bytes(), time, now));
        } else {
            self.leases.grant(path.as_bytes(), time, self.node.door());
            self.check_alarm();
        }
        if time.is_zero() {
            return self.end_broken();
        }
        // The other parents may be asked for a place for the same file.
        for parent in self.parents().into_iter().filter(|parent| *parent != link) {
            let able = |line: &super::line::Line| line.extensions.contains(Extensions::LEASES);
            if self.lines.get(&parent).is_some_and(able) {
                let modifier = HaveModifier::PENDING | HaveModifier::LEASED;
                let message = Wire::Have(Have { modifier, path: path.as_bytes() });
                self.put(parent, |peer, out| message.encode(StreamId::NONE, peer, out));
            }
        }
        self.end_broken();
    }

    /// Sends a child the lease of a file.
    pub(super) fn send_lease(&mut self, slot: Slot, path: &[u8], time: Duration) {
        let Some(link) = self.link_of(slot) else { return };
        let milliseconds = u32::try_from(time.as_millis()).unwrap_or(u32::MAX);
        let message = Wire::Lease(Lease { milliseconds, path });
        self.put(link, |peer, out| message.encode(StreamId::NONE, peer, out));
    }

    /// Tells parents what is at the paths whose leases have ended.
    pub(super) fn end_leases(&mut self) {
        for path in self.leases.take_ended() {
            if let Ok(path) = LogicalPath::parse(&path) {
                self.name_changed(&path);
            }
        }
    }

    /// Reports whether a client is on its way to create this path here; of a server.
    pub(super) fn has_lease(&self, path: &[u8]) -> bool {
        self.resolver.is_none() && self.leases.is_running(path)
    }

    /// A parent is about to be told that a path is not here. Unless it knows that the lease has ended, it would take that for
    /// an older answer than the lease.
    pub(super) fn tell_ended_lease(&mut self, parent: &Parent) {
        let path = &*parent.path;
        let has_ended = match &self.resolver {
            Some(resolver) => resolver.has_lease_ended(path),
            None => self.leases.has_ended(path),
        };
        if has_ended {
            self.put(parent.link, |peer, out| Wire::Gone(Gone { path }).encode(StreamId::NONE, peer, out));
        }
    }

    /// The answer to a parent that asks for a leased path.
    pub(super) fn answer_leased(&mut self, parent: &Parent) {
        self.answer_parent(parent, StateReply::Have { pending: true });
    }
}
