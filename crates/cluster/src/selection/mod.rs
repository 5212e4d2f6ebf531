//! Selection: the choice of one child among those that could serve a client.
//!
//! [`Chooser`] first excludes children that are not fit (unreachable over the client's network,
//! offline, suspended, overloaded, full) and keeps the reason. A [`Selection`] then picks one of
//! the fit children. The child for a new file is found by `rendezvous` hashing instead, weighted by
//! the selection, so that replicated managers agree. Source: cms protocol 3, sections "choice among
//! candidates" and `cms.sched`, `cms.space`.

mod by_load;
mod rendezvous;
mod round_robin;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::Rng;

use rendezvous::{Rank, RendezvousCandidate};

pub use by_load::{ByLoad, Weights};
pub use round_robin::RoundRobin;

use crate::cell::{Cell, ClientOrigin, Newness};
use crate::meters::{AccessKind, Meters};
use crate::request::{ClientAffinity, ClusterAnswer, ErrorCode};
use crate::shared_file_system::SharedFilePolicy;
use crate::slots::{Slot, SlotMask};

/// A method to pick one of several fit children.
pub trait Selection: Send + Sync {
    /// Picks a child of `among`, which is not empty. `meters` hold the children's figures; the
    /// caller counts the choice there.
    fn pick(&self, among: SlotMask, kind: AccessKind, meters: &Meters, rng: &mut dyn Rng) -> Option<Slot>;

    /// Returns the load of a child by this method, 0 to 100 and more; `None` if the method ignores
    /// loads, so that no child counts as overloaded.
    fn load(&self, slot: Slot, meters: &Meters) -> Option<u32>;

    /// Returns the share of new files for a child, relative to the others of `among`; 0 for none.
    fn weight(&self, slot: Slot, among: SlotMask, meters: &Meters) -> u32 {
        let _ = (slot, among, meters);
        1
    }

    /// Reports whether it needs all children with the file before it picks.
    fn wants_all(&self) -> bool {
        false
    }
}

/// The default interval after which counts start again. Source: cms protocol 3, section
/// "cms.sched".
const RESET: Duration = Duration::from_secs(3600);

/// The number of choices that makes a new start of the counts worthwhile, for each use that a
/// writer may linger, plus one. Source: cms protocol 3, section "choice among candidates".
const RESET_CHOICES: u64 = 192;

/// The part of a path that affinity compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AffinityPath {
    /// The whole path.
    #[default]
    All,
    /// This number of components from the left.
    First(usize),
    /// This number of components from the right.
    Last(usize),
}

/// A node outside the cell to which clients may be redirected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignTarget {
    /// Its name or address.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
}

/// The configured rules of selection.
#[derive(Clone, Debug)]
pub struct Policy {
    /// Weights of the load formula; all but `space` zero means round robin (`cms.sched`).
    pub weights: Weights,
    /// The difference up to which loads count as equal; 100 means round robin.
    pub fuzz: u8,
    /// The load above which a child gets no clients.
    pub load_max: Option<u8>,
    /// The interval after which the counts of choices start again (`cms.sched refreset`).
    pub reset: Duration,
    /// The percentage of clients for a child that reports none (`cms.sched gsdflt`); for a meta
    /// manager.
    pub share: Option<u8>,
    /// The number of uses beyond those of another child for which a writer stays with a child
    /// (`cms.space linger`).
    pub linger: u32,
    /// Children report their loads (`cms.ping usage`).
    pub loads_known: bool,
    /// Pick at random by weight instead of the lowest load.
    pub randomized: bool,
    /// The strength of affinity between equal paths and children.
    pub affinity: ClientAffinity,
    /// A client may override the affinity.
    pub affinity_by_client: bool,
    /// The part of the path for affinity.
    pub affinity_path: AffinityPath,
    /// Writing to one of several replicas is acceptable for all clients (`cms.space mwfiles`).
    pub copies: bool,
    /// The number of tried children after which a client is turned away (`cms.sched maxretries`).
    pub tried_max: Option<usize>,
    /// The target for clients that tried too many children.
    pub tried_elsewhere: Option<ForeignTarget>,
    /// Clients get no second source beside the first (`cms.sched nomultisrc`).
    pub one_source: bool,
    /// The target for clients that ask for a second source.
    pub source_elsewhere: Option<ForeignTarget>,
    /// The number of tried children after which a file is not staged again (`cms.delay nostage`).
    pub stagers_tried_max: usize,
    /// All servers share one file system (`cms.dfs`).
    pub shared: Option<SharedFilePolicy>,
    /// The wait times for clients.
    pub waits: WaitTimes,
}

/// The wait times for clients (`cms.delay`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WaitTimes {
    /// The answer needs a query that cannot be made.
    pub lookup: Duration,
    /// The quorum is missing, or the children that have the file are absent.
    pub service: Duration,
    /// The children that have the file are suspended.
    pub suspend: Duration,
    /// The children that could store the file are full; `None`: an error.
    pub full: Option<Duration>,
    /// The children that have the file are overloaded; `None`: an error.
    pub overload: Option<Duration>,
}

impl Default for WaitTimes {
    fn default() -> Self {
        Self {
            lookup: Duration::from_secs(5),
            service: Duration::from_secs(15),
            suspend: Duration::from_secs(30),
            full: None,
            // Loads arrive every ten pings of a minute, so the state may have changed shortly after
            // that.
            overload: Some(Duration::from_secs(630)),
        }
    }
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            weights: Weights::default(),
            fuzz: 20,
            load_max: None,
            reset: RESET,
            share: None,
            linger: 0,
            loads_known: true,
            randomized: false,
            affinity: ClientAffinity::None,
            affinity_by_client: false,
            affinity_path: AffinityPath::All,
            copies: false,
            tried_max: None,
            tried_elsewhere: None,
            one_source: false,
            source_elsewhere: None,
            stagers_tried_max: 3,
            shared: None,
            waits: WaitTimes::default(),
        }
    }
}

/// The requirements of a client on its child.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Need {
    pub(crate) kind: AccessKind,
    pub(crate) client: ClientOrigin,
    /// Free space.
    pub(crate) space: bool,
    /// The ability to stage files.
    pub(crate) stage: bool,
    /// The file is new: all replicated managers have to choose the same child.
    pub(crate) place: bool,
}

/// The excluded children by reason. Each child is in the first set that applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct UnavailableReasons {
    unreachable: SlotMask,
    offline: SlotMask,
    suspended: SlotMask,
    overloaded: SlotMask,
    full: SlotMask,
    /// Another child may be the right one soon.
    undecided: bool,
}

impl UnavailableReasons {
    /// Returns the excuses if no child may be chosen for a new file now: an absent child may hold
    /// its lease, or other managers may choose differently.
    pub(crate) fn undecided() -> Self {
        Self { undecided: true, ..Self::default() }
    }

    /// Reports whether no child may be chosen now, although some are fit.
    pub(crate) const fn is_undecided(&self) -> bool {
        self.undecided
    }

    /// Reports whether the answer is a wait for children that are absent or suspended.
    pub(crate) fn is_passing(&self) -> bool {
        self.undecided
            || self.full.is_empty()
                && self.overloaded.is_empty()
                && !(self.suspended | self.offline).is_empty()
    }

    /// Returns the answer if no child remains; `None` if no child was excluded.
    pub(crate) fn answer(&self, waits: &WaitTimes) -> Option<ClusterAnswer> {
        let or_error = |wait: Option<Duration>, code, text| {
            Some(
                wait.filter(|wait| !wait.is_zero())
                    .map_or(ClusterAnswer::error(code, text), ClusterAnswer::wait),
            )
        };
        if self.undecided {
            return Some(ClusterAnswer::wait(waits.service));
        }
        if !self.full.is_empty() {
            return or_error(waits.full, ErrorCode::NO_SPACE, "No server has enough free space.");
        }
        if !self.overloaded.is_empty() {
            return or_error(
                waits.overload,
                ErrorCode::SERVER_ERROR,
                "All servers that have the file are overloaded.",
            );
        }
        if !self.suspended.is_empty() {
            return Some(ClusterAnswer::wait(waits.suspend));
        }
        if !self.offline.is_empty() {
            return Some(ClusterAnswer::wait(waits.service));
        }
        if !self.unreachable.is_empty() {
            return Some(ClusterAnswer::error(
                ErrorCode::NET_UNREACHABLE,
                "No server that has the file can be reached over the client's network.",
            ));
        }
        None
    }
}

/// The rules and the method of selection, shared by all threads.
pub struct Chooser {
    policy: Policy,
    selection: Box<dyn Selection>,
    /// The last new start of the counts, in seconds.
    refreshed: AtomicU64,
}

impl Chooser {
    /// Creates a chooser with the built-in method that `policy` selects.
    pub fn new(policy: Policy) -> Self {
        let by_load = policy.loads_known && policy.fuzz < 100 && policy.weights.look_at_load();
        let selection: Box<dyn Selection> = if by_load || policy.randomized {
            Box::new(ByLoad {
                weights: policy.weights,
                fuzz: policy.fuzz,
                linger: policy.linger,
                randomized: policy.randomized,
            })
        } else {
            Box::new(RoundRobin { linger: policy.linger })
        };
        Self { policy, selection, refreshed: AtomicU64::new(0) }
    }

    /// Creates a chooser with another method.
    pub fn with_selection(policy: Policy, selection: Box<dyn Selection>) -> Self {
        Self { policy, selection, refreshed: AtomicU64::new(0) }
    }

    /// Returns the rules.
    pub const fn policy(&self) -> &Policy {
        &self.policy
    }

    /// Returns the affinity for a client that asks for this one.
    pub(crate) fn affinity(&self, wish: Option<ClientAffinity>) -> ClientAffinity {
        wish.filter(|_| self.policy.affinity_by_client).unwrap_or(self.policy.affinity)
    }

    /// Reports whether all children with a file must be known before one is chosen.
    pub(crate) fn wants_all(&self, affinity: ClientAffinity) -> bool {
        affinity >= ClientAffinity::Strong || self.selection.wants_all()
    }

    /// Chooses a fit child of `among`, or returns the reasons. The caller counts the choice by
    /// [`Self::count`].
    pub(crate) fn choose(
        &self,
        cell: &Cell,
        among: SlotMask,
        need: Need,
        affinity: ClientAffinity,
        path: &[u8],
        rng: &mut dyn Rng,
    ) -> Result<Slot, UnavailableReasons> {
        let (fit, excuses) = self.fit(cell, among, need, affinity);
        if fit.is_empty() {
            return Err(excuses);
        }
        let picked = if need.place {
            self.place(cell, fit, affinity, path)?
        } else if affinity == ClientAffinity::None {
            self.selection.pick(fit, need.kind, cell.meters(), rng)
        } else {
            let position = self.policy.affinity_path.hash(path) as usize % fit.len();
            fit.iter().nth(position)
        };
        // A method that picks none, or one that was not offered, is overridden, because a client is
        // waiting.
        picked.filter(|slot| fit.contains(*slot)).or(fit.lowest()).ok_or(excuses)
    }

    /// Chooses the child for a new file by rendezvous hashing, so that managers with the same
    /// children agree.
    ///
    /// # Errors
    ///
    /// The result is as if no child were fit while another manager may choose differently:
    ///
    /// * An absent child may hold the lease of the file. With it present, it would win among the
    ///   children of that time.
    /// * All fit children are new, but other children are not.
    /// * The choice depends on a child that has just become known to all managers.
    fn place(
        &self,
        cell: &Cell,
        fit: SlotMask,
        affinity: ClientAffinity,
        path: &[u8],
    ) -> Result<Option<Slot>, UnavailableReasons> {
        let known = fit - cell.with_newness(Newness::Unknown);
        if known.is_empty() && !cell.with_newness(Newness::None).is_empty() {
            return Err(UnavailableReasons::undecided());
        }
        let fit = if known.is_empty() { fit } else { known };
        let key = if affinity == ClientAffinity::None { path } else { self.policy.affinity_path.part(path) };
        let ranks = self.ranks(cell, fit, key);
        let winner = winner(&ranks);
        // The load of a new child may also decide between two others.
        let announced = fit & cell.with_newness(Newness::Announced);
        let is_early =
            !announced.is_empty() && winner != self::winner(&self.ranks(cell, fit - announced, key));
        if is_early || self.may_be_absent(cell, fit, &ranks, (key, path)) {
            return Err(UnavailableReasons::undecided());
        }
        Ok(winner)
    }

    /// Returns the ranks of these children for a new file. The lowest wins.
    fn ranks(&self, cell: &Cell, among: SlotMask, key: &[u8]) -> Vec<(Slot, Rank)> {
        let rank = |slot| {
            let child = cell.child(slot)?;
            let weight = self.selection.weight(slot, among, cell.meters()) * self.share(child.share);
            let candidate = RendezvousCandidate { digest: child.digest, weight };
            (weight > 0).then(|| (slot, candidate.rank(key)))
        };
        among.iter().filter_map(rank).collect()
    }

    /// Reports whether an absent child would win against the children with these ranks.
    fn may_be_absent(
        &self,
        cell: &Cell,
        fit: SlotMask,
        ranks: &[(Slot, Rank)],
        (key, path): (&[u8], &[u8]),
    ) -> bool {
        if cell.absent().is_empty() {
            return false;
        }
        let best = fit.iter().map(|slot| self.selection.weight(slot, fit, cell.meters())).max().unwrap_or(1);
        cell.absent().iter().filter_map(|absent| absent.seat.as_ref()).any(|seat| {
            let weight = best * self.share(seat.share);
            let rank = RendezvousCandidate { digest: seat.digest, weight }.rank(key);
            let wins = |(slot, other): &(Slot, Rank)| !seat.rivals.contains(*slot) || rank < *other;
            seat.takes(path) && ranks.iter().all(wins)
        })
    }

    /// Returns the percentage of its share of clients that a child accepts.
    fn share(&self, own: Option<u8>) -> u32 {
        u32::from(own.or(self.policy.share).unwrap_or(100).clamp(1, 100))
    }

    /// Counts a choice.
    pub(crate) fn count(&self, cell: &Cell, slot: Slot, kind: AccessKind) {
        let share = cell.child(slot).and_then(|child| child.share).or(self.policy.share);
        cell.meters().chosen(slot, kind, share);
    }

    /// Starts all counts again at intervals, if enough choices were made.
    pub(crate) fn refresh(&self, cell: &Cell, now: Duration) {
        let seconds = now.as_secs();
        if seconds < self.refreshed.load(Ordering::Relaxed).saturating_add(self.policy.reset.as_secs()) {
            return;
        }
        self.refreshed.store(seconds, Ordering::Relaxed);
        let all: SlotMask = cell.children().map(|(slot, _)| slot).collect();
        let counts = all.iter().map(|slot| cell.meters().choices(slot));
        if counts.sum::<u64>() >= RESET_CHOICES * (u64::from(self.policy.linger) + 1) {
            cell.meters().reset_counts(all);
        }
    }

    fn fit(
        &self,
        cell: &Cell,
        among: SlotMask,
        need: Need,
        affinity: ClientAffinity,
    ) -> (SlotMask, UnavailableReasons) {
        let mut fit = SlotMask::EMPTY;
        let mut excuses = UnavailableReasons::default();
        for slot in among {
            let Some(child) = cell.child(slot) else { continue };
            let why = if cell.is_self(child) {
                // It is not fit, and not an excuse either: it would only redirect back here.
                continue;
            } else if child.interface(need.client).is_none() {
                &mut excuses.unreachable
            } else if !child.state.connected {
                &mut excuses.offline
            } else if child.state.bad() {
                &mut excuses.suspended
            } else if affinity != ClientAffinity::Strict && self.overloaded(cell, slot) {
                &mut excuses.overloaded
            } else if need.space && cell.meters().free_mb(slot) < child.min_free_mb
                || need.stage && child.state.nostage
            {
                &mut excuses.full
            } else {
                &mut fit
            };
            why.insert(slot);
        }
        (fit, excuses)
    }

    fn overloaded(&self, cell: &Cell, slot: Slot) -> bool {
        let Some(most) = self.policy.load_max else { return false };
        self.selection.load(slot, cell.meters()).is_some_and(|load| load > u32::from(most))
    }
}

/// Returns the child that gets a new file.
fn winner(ranks: &[(Slot, Rank)]) -> Option<Slot> {
    ranks.iter().min_by_key(|(_, rank)| *rank).map(|(slot, _)| *slot)
}

impl AffinityPath {
    fn hash(self, path: &[u8]) -> u32 {
        wire::crc::crc32c(self.part(path))
    }

    fn part(self, path: &[u8]) -> &[u8] {
        let slash = |at: &usize| path.get(*at) == Some(&b'/');
        let cut = match self {
            Self::All => return path,
            Self::First(count) => (1..path.len()).filter(slash).nth(count.saturating_sub(1)),
            Self::Last(count) => (0..path.len()).rev().filter(slash).nth(count.saturating_sub(1)),
        };
        match self {
            Self::First(_) => path.get(..cut.unwrap_or(path.len())).unwrap_or(path),
            _ => path.get(cut.unwrap_or(0)..).unwrap_or(path),
        }
    }
}

#[cfg(test)]
mod tests;
