//! Warm answers beside the machine: what a connection's loop can say without asking the cluster's thread.
//!
//! A [`Reader`] belongs to one loop. It looks at the cache, whose shards are locked for one look-up, and at the copy of
//! the cell that was published last; whether there is a newer one costs an atomic load. Whatever is not plainly known
//! (a path nobody asked for, children yet to be heard, a file that would come to exist) it leaves to the machine.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::Rng;

use super::{checked, locate, select};
use crate::avoid::Avoided;
use crate::cache::{Cache, Location};
use crate::cell::{Cell, Client};
use crate::inventories::Inventories;
use crate::meters::Use;
use crate::request::{Answer, ErrorCode, LocateOptions, SelectOptions};
use crate::selection::Chooser;
use crate::slots::{Slot, SlotMask};
use select::{Question, Verdict};

/// Of answers that rest on what children have told of all their files, one in so long is left to the machine. It gives the same
/// answer, and asks them for a copy that came to their disk by other means since: so copies of what is much read get known,
/// and a storm of opens does not become one of questions.
const COPIES_PAUSE: Duration = Duration::from_millis(10);

/// What the machine and its readers share.
pub struct Shared {
    pub(super) cache: Cache,
    pub(super) chooser: Chooser,
    /// What children that list everything may have.
    pub(super) inventories: Inventories,
    /// There is no parent that may know of a file that is only on its way.
    is_root: bool,
    published: Mutex<Arc<Cell>>,
    version: AtomicU64,
    /// When the next one is left to the machine, in microseconds.
    copies_at: AtomicU64,
}

impl Shared {
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

    /// Is it time to look for further copies? Once for each [`COPIES_PAUSE`].
    fn looks_for_copies(&self, now: Duration) -> bool {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let due = self.copies_at.load(Ordering::Relaxed);
        let next = micros(now.saturating_add(COPIES_PAUSE));
        micros(now) >= due
            && self.copies_at.compare_exchange(due, next, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Lets readers see the cell as it is now.
    pub(super) fn publish(&self, cell: &Cell) {
        *self.published.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(cell.clone());
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The cell as it was published last.
    pub fn cell(&self) -> Arc<Cell> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A reader for one loop.
    pub fn reader(self: &Arc<Self>) -> Reader {
        let version = self.version.load(Ordering::Acquire);
        Reader { cell: self.cell(), version, shared: self.clone() }
    }
}

/// Answers what is plainly known, on the thread it is called on.
pub struct Reader {
    shared: Arc<Shared>,
    cell: Arc<Cell>,
    version: u64,
}

impl Reader {
    /// The answer to a `select` of a client that has not been elsewhere yet; `None`: ask the machine.
    pub fn select(
        &mut self,
        path: &[u8],
        options: SelectOptions,
        now: Duration,
        rng: &mut dyn Rng,
    ) -> Option<Answer> {
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
            let question = Question { options, avoided: Avoided::default() };
            return match select::judge(&self.cell, &self.shared.chooser, &location, path, &question, rng) {
                Verdict::Answer(answer) => Some(answer),
                Verdict::Child { .. } | Verdict::Await | Verdict::Hold(_) => None,
            };
        }
        let (mut location, unasked) = self.known(path, now)?;
        let told = if location.have.is_empty() { SlotMask::EMPTY } else { self.cell.listed() };
        if !unasked.within(told) {
            return None;
        }
        // Some were not asked, who have told what they have and of this file nothing. Whoever is chosen only for want of a
        // better one is not good enough then, and no other answer is than a place to read it.
        let listed = !unasked.is_empty();
        location.querying |= listed;
        let question = Question { options, avoided: Avoided::default() };
        match select::judge(&self.cell, &self.shared.chooser, &location, path, &question, rng) {
            Verdict::Child { kind: Use::Read, place: false, .. }
                if listed && self.shared.looks_for_copies(now) =>
            {
                None
            }
            Verdict::Child { slot, kind, place: false, client } if !listed || kind == Use::Read => {
                Some(redirect(&self.cell, &self.shared.chooser, slot, kind, client))
            }
            Verdict::Answer(answer) if !listed => Some(answer),
            Verdict::Answer(_) | Verdict::Child { .. } | Verdict::Await | Verdict::Hold(_) => None,
        }
    }

    /// The answer to a `locate`; `None`: ask the machine.
    pub fn locate(&mut self, path: &[u8], options: LocateOptions, now: Duration) -> Option<Answer> {
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
            Verdict::Answer(answer) => Some(answer),
            Verdict::Child { .. } | Verdict::Await | Verdict::Hold(_) => None,
        }
    }

    /// Returns the location of a path that nobody has, as far as children have to be asked that list all their names: none of
    /// those that are to be asked was ever heard to have it. `None`: the path may be somewhere, or others are to be asked.
    ///
    /// New files are not placed by this: for them each child is asked.
    fn absent(&self, path: &[u8], now: Duration) -> Option<Location> {
        let complete = self.cell.complete() & self.cell.connected();
        if complete.is_empty() || !self.shared.is_root || self.shared.chooser.policy().shared.is_some() {
            return None;
        }
        let rights = self.cell.paths().rights(path)?;
        let known = self.shared.cache.lookup(path, now, self.cell.bounces()).unwrap_or(Location::UNKNOWN);
        let silent = complete - self.shared.inventories.candidates(path);
        // Those that are being asked no longer stand among the unasked.
        let unasked = if known.querying { SlotMask::ALL } else { known.unasked } - silent;
        let is_absent = known.have.is_empty() && !(unasked & rights.read).meets(self.cell.connected());
        // A child that took the slot of another meanwhile has emptied its rows, and the copy of the cell is of the other.
        fence(Ordering::Acquire);
        let is_current = self.shared.version.load(Ordering::Relaxed) == self.version;
        (is_absent && is_current).then_some(Location { unasked, querying: false, ..known })
    }

    /// Where a path is, and who could have it and is still to be asked.
    fn known(&self, path: &[u8], now: Duration) -> Option<(Location, SlotMask)> {
        let rights = self.cell.paths().rights(path)?;
        let known = self.shared.cache.lookup(path, now, self.cell.bounces());
        if let Some(shared) = self.shared.chooser.policy().shared {
            let location = known.or(shared.unchecked.then_some(Location::UNKNOWN))?;
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

/// Sends a client to a child that was chosen for it, and counts that.
pub(super) fn redirect(cell: &Cell, chooser: &Chooser, slot: Slot, kind: Use, client: Client) -> Answer {
    chooser.count(cell, slot, kind);
    let found = cell.child(slot).and_then(|child| Some((child.interface(client)?, child.port)));
    found.map_or_else(
        // Only those with an address for the client are chosen.
        || Answer::error(ErrorCode::NET_UNREACHABLE, "The chosen server cannot be reached."),
        |(interface, port)| Answer::Redirect { slot: Some(slot), host: interface.host.clone(), port },
    )
}
