//! Warm look-ups on the loop of a connection, without the cluster's thread.
//!
//! A [`LocationReader`] belongs to one loop. It reads the cache, whose shards are locked for one
//! look-up, and the last published snapshot of the cell; the check for a newer snapshot costs an
//! atomic load. It answers only from complete knowledge. Other requests (unknown paths, outstanding
//! replies, new files) go to the resolver.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::Rng;

use super::checked_path::checked;
use super::{locate, select};
use crate::cache::{Cache, CachedLocation};
use crate::cell::{Cell, ClientOrigin};
use crate::inventories::Inventories;
use crate::meters::AccessKind;
use crate::request::{ClusterAnswer, ErrorCode, LocateFlags, SelectOptions};
use crate::selection::Chooser;
use crate::slots::{Slot, SlotMask};
use crate::tried_children::TriedChildren;
use select::{Question, SelectDecision};

/// The interval at which one answer that relies on complete inventories is left to the resolver.
/// The resolver gives the same answer, and queries the children for replicas that reached their
/// disks by other means. So replicas of frequently read files become known, and a storm of opens
/// does not become a storm of queries (rate limit).
const COPIES_PAUSE: Duration = Duration::from_millis(10);

/// The state shared by the resolver and its readers.
pub struct ResolverShared {
    pub(super) cache: Cache,
    pub(super) chooser: Chooser,
    /// The names that children with complete inventories may have.
    pub(super) inventories: Inventories,
    /// This node has no parent that may know of a file that is being staged.
    is_root: bool,
    published: Mutex<Arc<Cell>>,
    version: AtomicU64,
    /// The time at which the next answer is left to the resolver, in microseconds.
    copies_at: AtomicU64,
}

impl ResolverShared {
    pub(super) fn new(
        cache: Cache,
        chooser: Chooser,
        cell: Cell,
        inventories: Inventories,
        is_root: bool,
    ) -> Self {
        let published = Mutex::new(Arc::new(cell));
        let (version, copies_at) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { cache, chooser, inventories, is_root, published, version, copies_at }
    }

    /// Reports whether further replicas are to be looked for: once per [`COPIES_PAUSE`].
    fn looks_for_copies(&self, now: Duration) -> bool {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let due = self.copies_at.load(Ordering::Relaxed);
        let next = micros(now.saturating_add(COPIES_PAUSE));
        micros(now) >= due
            && self.copies_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Publishes the current cell to readers.
    pub(super) fn publish(&self, cell: &Cell) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(cell.clone());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Returns the last published cell.
    pub fn cell(&self) -> Arc<Cell> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Creates a reader for one loop.
    pub fn reader(self: &Arc<Self>) -> LocationReader {
        let version = self.version.load(Ordering::Acquire);
        LocationReader { cell: self.cell(), version, shared: self.clone() }
    }
}

/// Answers requests from complete knowledge, on the calling thread.
pub struct LocationReader {
    shared: Arc<ResolverShared>,
    cell: Arc<Cell>,
    version: u64,
}

impl LocationReader {
    /// Answers a `select` of a client without tried children; `None`: the resolver has to answer.
    pub fn select(
        &mut self,
        path: &[u8],
        options: SelectOptions,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Option<ClusterAnswer> {
        if options.refresh {
            return None;
        }
        self.renew();
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        if !options.intent.writes()
            && let Some(location) = self.absent(path, now)
        {
            let question = Question { options, avoided: TriedChildren::default() };
            return match select::judge(&self.cell, &self.shared.chooser, &location, path, &question, rng) {
                SelectDecision::Answer(answer) => Some(answer),
                SelectDecision::Child { .. } | SelectDecision::Await | SelectDecision::Hold(_) => None,
            };
        }
        let (mut location, unasked) = self.known(path, now)?;
        let complete = if location.have.is_empty() { SlotMask::EMPTY } else { self.cell.listed() };
        if !unasked.within(complete) {
            return None;
        }
        // Some children were not queried because their inventories do not contain this file. Then a
        // child that is only a makeshift does not qualify, and the only valid answer is a child to
        // read from.
        let listed = !unasked.is_empty();
        location.querying |= listed;
        let question = Question { options, avoided: TriedChildren::default() };
        match select::judge(&self.cell, &self.shared.chooser, &location, path, &question, rng) {
            SelectDecision::Child { kind: AccessKind::Read, place: false, .. }
                if listed && self.shared.looks_for_copies(now) =>
            {
                None
            }
            SelectDecision::Child { slot, kind, place: false, client }
                if !listed || kind == AccessKind::Read =>
            {
                Some(redirect(&self.cell, &self.shared.chooser, slot, kind, client))
            }
            SelectDecision::Answer(answer) if !listed => Some(answer),
            SelectDecision::Answer(_)
            | SelectDecision::Child { .. }
            | SelectDecision::Await
            | SelectDecision::Hold(_) => None,
        }
    }

    /// Answers a `locate`; `None`: the resolver has to answer.
    pub fn locate(&mut self, path: &[u8], options: LocateFlags, now: Duration) -> Option<ClusterAnswer> {
        if options.refresh {
            return None;
        }
        self.renew();
        if let Some(answer) = locate::listing(&self.cell, path, &options) {
            return Some(answer);
        }
        let path = match checked(path) {
            Ok(path) => path,
            Err(answer) => return Some(answer),
        };
        let location = match self.absent(path, now) {
            Some(location) => location,
            None => self.known(path, now).filter(|(_, unasked)| unasked.is_empty())?.0,
        };
        let policy = self.shared.chooser.policy();
        match locate::judge(&self.cell, policy, &location, path, &options) {
            SelectDecision::Answer(answer) => Some(answer),
            SelectDecision::Child { .. } | SelectDecision::Await | SelectDecision::Hold(_) => None,
        }
    }

    /// Returns the location of a path that does not exist, if the inventories of all children to be
    /// queried are complete and do not contain it. `None`: the path may exist, or other children
    /// have to be queried.
    ///
    /// This answer does not place new files: for them each child is queried.
    fn absent(&self, path: &[u8], now: Duration) -> Option<CachedLocation> {
        let complete = self.cell.complete() & self.cell.connected();
        if complete.is_empty() || !self.shared.is_root || self.shared.chooser.policy().shared.is_some() {
            return None;
        }
        let rights = self.cell.paths().rights(path)?;
        let known =
            self.shared.cache.lookup(path, now, self.cell.bounces()).unwrap_or(CachedLocation::UNKNOWN);
        let silent = complete - self.shared.inventories.candidates(path);
        // Children with an open query are no longer among the unasked.
        let unasked = if known.querying { SlotMask::ALL } else { known.unasked } - silent;
        let is_absent = known.have.is_empty() && !(unasked & rights.read).meets(self.cell.connected());
        // A child that took over the slot meanwhile has cleared its rows, and the snapshot of the
        // cell shows its predecessor.
        fence(Ordering::Acquire);
        let is_current = self.shared.version.load(Ordering::Relaxed) == self.version;
        (is_absent && is_current).then_some(CachedLocation { unasked, querying: false, ..known })
    }

    /// Returns the location of a path, and the children that could have it and are not queried yet.
    fn known(&self, path: &[u8], now: Duration) -> Option<(CachedLocation, SlotMask)> {
        let rights = self.cell.paths().rights(path)?;
        let known = self.shared.cache.lookup(path, now, self.cell.bounces());
        if let Some(shared) = self.shared.chooser.policy().shared {
            let location = known.or(shared.unchecked.then_some(CachedLocation::UNKNOWN))?;
            return (shared.unchecked || !location.have.is_empty()).then_some((location, SlotMask::EMPTY));
        }
        let location = known?;
        let unasked = location.unasked & rights.read & self.cell.connected();
        Some((location, unasked))
    }

    fn renew(&mut self) {
        let version = self.shared.version.load(Ordering::Acquire);
        if version != self.version {
            self.cell = self.shared.cell();
            self.version = version;
        }
    }
}

/// Redirects a client to a child that was chosen for it, and counts the choice.
pub(super) fn redirect(
    cell: &Cell,
    chooser: &Chooser,
    slot: Slot,
    kind: AccessKind,
    client: ClientOrigin,
) -> ClusterAnswer {
    chooser.count(cell, slot, kind);
    let found = cell.child(slot).and_then(|child| Some((child.interface(client)?, child.port)));
    found.map_or_else(
        // Only children with an address for the client are chosen.
        || ClusterAnswer::error(ErrorCode::NET_UNREACHABLE, "The chosen server cannot be reached."),
        |(interface, port)| ClusterAnswer::Redirect { slot: Some(slot), host: interface.host.clone(), port },
    )
}
