//! One cell: the children of a parent, their exports and their figures.
//!
//! The cell is the input of selection. The thread of the cluster owns it and changes it; the loops
//! of connections read a snapshot that the thread publishes after each change. Snapshots share
//! children and tables, so that a snapshot is small. The tree decides which nodes join and when a
//! slot is reassigned, and reports both to the cell.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::absent_lessees::{AbsentLessee, AbsentLessees, AbsentSlot};
use crate::cache::Bounces;
use crate::meters::Meters;
use crate::paths::{ChildExport, PathTable};
use crate::slots::{CELL_SLOTS, Slot, SlotMask};

/// The role of a child for a client that is sent there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildKind {
    /// A data server, which has the file itself.
    Server,
    /// A supervisor, or a manager below a meta manager; it redirects the client again.
    Inner,
}

/// The address families that a client can use. Source: cms protocol 3, `select`, network bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Net {
    /// IPv4 only.
    V4,
    /// Both, IPv4 preferred.
    #[default]
    V4First,
    /// Both, IPv6 preferred.
    V6First,
    /// IPv6 only.
    V6,
}

/// The network position of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ClientOrigin {
    /// The address families it can use.
    pub net: Net,
    /// Its own address is private, so it can use private addresses of children and prefers them.
    pub private: bool,
    /// It reports that it has no address of the other family. Children without an address of its
    /// own family come last.
    pub alone: bool,
}

impl ClientOrigin {
    /// Returns the client restricted to its own address family, if it reports that it has no other.
    pub(crate) const fn strictly(self) -> Option<Self> {
        let net = match self.net {
            Net::V4 | Net::V4First => Net::V4,
            Net::V6 | Net::V6First => Net::V6,
        };
        if self.alone { Some(Self { net, ..self }) } else { None }
    }
}

/// One address of a child.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interface {
    /// The host named in a redirect: the registered name, else the address as text, IPv6 in
    /// brackets.
    pub host: Arc<str>,
    /// The address itself.
    pub ip: IpAddr,
    /// Usable only within the site.
    pub private: bool,
}

/// The state of a child, as far as it matters for clients. The default value is an absent child.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildState {
    /// Its connection is up.
    pub connected: bool,
    /// Its connection was lost a moment ago and it is expected to reconnect. Until then a file is
    /// not reported as missing.
    pub expected: bool,
    /// It is joining, or was ordered to leave.
    pub disabled: bool,
    /// It asked for a suspension: it gets no clients.
    pub suspended: bool,
    /// The administrator has excluded it.
    pub blacklisted: bool,
    /// It is draining: its clients are being moved away. It gets new clients only for files that no
    /// other child has, and no new files.
    pub draining: bool,
    /// It cannot stage files, or has no space for new ones.
    pub nostage: bool,
    /// Other managers may choose differently for new files, because it has just joined.
    pub newness: Newness,
}

/// The knowledge of the other managers about a child.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Newness {
    /// All managers know it.
    #[default]
    None,
    /// Some managers may not know it.
    Unknown,
    /// It has reported a moment ago that all managers know it. Some may not have received that
    /// report yet.
    Announced,
}

impl ChildState {
    /// A connected child without restrictions.
    pub const SERVING: Self = Self {
        connected: true,
        expected: false,
        disabled: false,
        suspended: false,
        blacklisted: false,
        draining: false,
        nostage: false,
        newness: Newness::None,
    };

    /// Reports whether the child is connected but must not be used.
    pub(crate) const fn bad(self) -> bool {
        self.disabled || self.suspended || self.blacklisted
    }
}

/// A child of the cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CellChild {
    /// Server or inner node.
    pub kind: ChildKind,
    /// Its state.
    pub state: ChildState,
    /// Its addresses.
    pub interfaces: Vec<Interface>,
    /// The port for clients.
    pub port: u16,
    /// The site of the child: the end of its system id. `+<cid>` in a client's tried list names all
    /// children of the site.
    pub cid: Arc<str>,
    /// It sends explicit NOT_HERE replies, instead of no reply, for files that it does not have.
    pub says_not_here: bool,
    /// It reports all names that are created there, and may report that its list of names is
    /// complete (inventory).
    pub lists_all: bool,
    /// It creates a file only within its lease.
    pub takes_leases: bool,
    /// A number for the node that is equal at all its parents.
    pub digest: u64,
    /// The hash of its system id, by which supervisors report it.
    pub id: u64,
    /// The free space below which it gets no new files, in MB.
    pub min_free_mb: u32,
    /// The percentage of its share of clients that it accepts. (Managers below a meta manager.)
    pub share: Option<u8>,
}

impl CellChild {
    /// Returns the slot of a child that was lost.
    fn absent_slot(&self, slot: Slot, rivals: SlotMask, paths: &Arc<PathTable>) -> AbsentSlot {
        AbsentSlot { slot, digest: self.digest, rivals, share: self.share, paths: paths.clone() }
    }

    /// Returns the address that this client should use; `None` if it can use none.
    pub fn interface(&self, client: ClientOrigin) -> Option<&Interface> {
        let families: &[bool] = match client.net {
            Net::V4 => &[true],
            Net::V4First => &[true, false],
            Net::V6First => &[false, true],
            Net::V6 => &[false],
        };
        let usable = |v4: bool, private: bool| {
            self.interfaces.iter().find(|one| one.ip.is_ipv4() == v4 && one.private == private)
        };
        families.iter().find_map(|v4| {
            let private = if client.private { usable(*v4, true) } else { None };
            private.or_else(|| usable(*v4, false))
        })
    }
}

/// The children of a parent, and the state known about them.
#[derive(Clone, Debug)]
pub struct Cell {
    children: [Option<Arc<CellChild>>; CELL_SLOTS],
    paths: Arc<PathTable>,
    bounces: Bounces,
    meters: Arc<Meters>,
    connected: SlotMask,
    expected: SlotMask,
    definite: SlotMask,
    lessees: SlotMask,
    draining: SlotMask,
    servers: SlotMask,
    listed: SlotMask,
    /// Children whose inventory has begun since they joined or reset.
    listing: SlotMask,
    complete: SlotMask,
    own: Arc<[SocketAddr]>,
    quorum: bool,
    absent: AbsentLessees,
}

impl Cell {
    /// Creates a cell without children. `own` are the addresses by which clients know this node; a
    /// child must not have one of them.
    pub fn new(own: &[SocketAddr]) -> Self {
        Self {
            children: [const { None }; CELL_SLOTS],
            paths: Arc::default(),
            bounces: Bounces::new(),
            meters: Arc::default(),
            connected: SlotMask::EMPTY,
            expected: SlotMask::EMPTY,
            definite: SlotMask::EMPTY,
            lessees: SlotMask::EMPTY,
            draining: SlotMask::EMPTY,
            servers: SlotMask::EMPTY,
            listed: SlotMask::EMPTY,
            listing: SlotMask::EMPTY,
            complete: SlotMask::EMPTY,
            own: Arc::from(own),
            quorum: true,
            absent: AbsentLessees::default(),
        }
    }

    /// Returns the child in `slot`.
    pub fn child(&self, slot: Slot) -> Option<&CellChild> {
        self.children[slot.index()].as_deref()
    }

    /// Returns all children, from slot 0 up.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (Slot, &CellChild)> {
        Slot::all().filter_map(|slot| Some((slot, self.child(slot)?)))
    }

    /// Returns the children whose connection is up.
    pub const fn connected(&self) -> SlotMask {
        self.connected
    }

    /// Returns the children that were lost a moment ago and are expected to reconnect.
    pub const fn expected(&self) -> SlotMask {
        self.expected
    }

    /// Returns the children that send explicit NOT_HERE replies.
    pub const fn definite(&self) -> SlotMask {
        self.definite
    }

    /// Returns the children that create a file only within its lease.
    pub const fn lessees(&self) -> SlotMask {
        self.lessees
    }

    /// Returns the connected children with this newness.
    pub(crate) fn with_newness(&self, newness: Newness) -> SlotMask {
        let is_so = |slot: &Slot| self.child(*slot).is_some_and(|child| child.state.newness == newness);
        self.connected.iter().filter(is_so).collect()
    }

    /// Returns the children that are draining.
    pub const fn draining(&self) -> SlotMask {
        self.draining
    }

    /// Returns the children that have files themselves.
    pub const fn servers(&self) -> SlotMask {
        self.servers
    }

    /// Returns the servers that have reported all their files since they joined. They need not be
    /// queried for further replicas of a file that is known to be elsewhere.
    pub const fn listed(&self) -> SlotMask {
        self.listed
    }

    /// Returns the servers that have reported all names below their exports since they joined, and
    /// report each new one. A name that such a server has not reported does not exist there.
    pub const fn complete(&self) -> SlotMask {
        SlotMask(self.complete.0 & self.listed.0)
    }

    /// Returns the table of exports.
    pub fn paths(&self) -> &PathTable {
        &self.paths
    }

    /// Returns the times at which slots changed.
    pub const fn bounces(&self) -> &Bounces {
        &self.bounces
    }

    /// Returns the figures of the children.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Reports whether the quorum of children is present, so that a file may be reported as
    /// missing.
    pub const fn quorum(&self) -> bool {
        self.quorum
    }

    /// Returns the absent children that may hold leases.
    pub(crate) const fn absent(&self) -> &AbsentLessees {
        &self.absent
    }

    /// Records that the connection of the child in `slot` has ended; its leases end at `until`.
    pub(crate) fn miss_lessee(&mut self, slot: Slot, until: Duration) {
        if let Some(child) = self.child(slot).filter(|child| child.takes_leases) {
            // No file was placed in competition with a new child.
            let rivals = self.with_newness(Newness::None) - slot.mask();
            let (id, seat) = (child.id, Some(child.absent_slot(slot, rivals, &self.paths)));
            self.absent.add(AbsentLessee { id, until, seat });
        }
    }

    /// Records that a child of an earlier run of this node may hold leases until `until`. Reports
    /// whether it is absent.
    pub(crate) fn await_lessee(&mut self, id: u64, until: Duration) -> bool {
        let is_here = |(_, child): (Slot, &CellChild)| child.id == id && child.state.connected;
        let is_absent = !self.children().any(is_here);
        if is_absent {
            self.absent.add(AbsentLessee { id, until, seat: None });
        }
        is_absent
    }

    /// Records that a cell below has accepted a node, so that its leases are found there. Reports
    /// whether the node was absent.
    pub(crate) fn found_below(&mut self, id: u64) -> bool {
        self.absent.remove(id)
    }

    /// Forgets absent children whose leases have ended. Reports whether there were any.
    pub(crate) fn forget_absent(&mut self, now: Duration) -> bool {
        self.absent.forget_old(now)
    }

    /// Reports whether a client sent to this child would return to this node.
    pub(crate) fn is_self(&self, child: &CellChild) -> bool {
        child.interfaces.iter().any(|one| self.own.contains(&SocketAddr::new(one.ip, child.port)))
    }

    /// Adds a new child in `slot`, or one that reconnected with other paths. All knowledge about
    /// the slot becomes stale.
    pub fn join(&mut self, slot: Slot, child: CellChild, exports: &[ChildExport]) {
        Arc::make_mut(&mut self.paths).announce(slot, exports);
        self.bounces.bounce(slot);
        self.meters.reset_counts(self.paths.sharing(slot));
        self.unlist(slot);
        self.absent.note_newcomer(slot);
        self.set(slot, Some(child));
    }

    /// Makes the knowledge about the child in `slot` stale, because the nodes below it changed
    /// (`status` reset).
    pub fn bounce(&mut self, slot: Slot) {
        self.bounces.bounce(slot);
        self.unlist(slot);
    }

    /// Records that the child in `slot` has reported all its files. The report of an inner node has
    /// no effect, because a node below it may not have reported.
    pub fn list(&mut self, slot: Slot) {
        if (self.servers & self.connected & self.definite).contains(slot) {
            self.listed.insert(slot);
        }
    }

    /// Records that the child in `slot` begins its inventory. Messages that a node sends before it
    /// has a slot are lost, so an end without a beginning may belong to a partial inventory.
    pub fn begin_list(&mut self, slot: Slot) {
        self.listing.insert(slot);
    }

    /// Records that the child in `slot`, whose inventory of files is complete, has reported all
    /// other names, too.
    pub fn list_completely(&mut self, slot: Slot) {
        let listed = self.listed.contains(slot) && self.listing.contains(slot);
        if listed && self.child(slot).is_some_and(|child| child.lists_all) {
            self.complete.insert(slot);
        }
    }

    /// Records that the child in `slot` reconnected: messages that it sent meanwhile may not have
    /// arrived.
    pub fn invalidate(&mut self, slot: Slot) {
        self.bounces.invalidate(slot);
        self.unlist(slot);
    }

    /// Changes the state of the child in `slot`, but not its files: it reconnected, was suspended,
    /// has another port.
    pub fn change(&mut self, slot: Slot, change: impl FnOnce(&mut CellChild)) {
        let Some(mut child) = self.child(slot).cloned() else { return };
        change(&mut child);
        self.set(slot, Some(child));
    }

    /// Frees the slot.
    pub fn leave(&mut self, slot: Slot) {
        Arc::make_mut(&mut self.paths).remove(slot);
        self.meters.reset_counts(slot.mask());
        self.set(slot, None);
    }

    /// Sets whether the quorum of children is present, as needed for answers that depend on all of
    /// them.
    pub fn set_quorum(&mut self, quorum: bool) {
        self.quorum = quorum;
    }

    fn unlist(&mut self, slot: Slot) {
        self.listed.remove(slot);
        self.listing.remove(slot);
        self.complete.remove(slot);
    }

    fn set(&mut self, slot: Slot, child: Option<CellChild>) {
        self.connected.remove(slot);
        self.expected.remove(slot);
        self.definite.remove(slot);
        self.lessees.remove(slot);
        self.draining.remove(slot);
        self.servers.remove(slot);
        if let Some(child) = &child {
            if child.kind == ChildKind::Server {
                self.servers.insert(slot);
            }
            if child.state.connected {
                self.connected.insert(slot);
                self.absent.remove(child.id);
            }
            if child.state.expected && !child.state.connected {
                self.expected.insert(slot);
            }
            if child.state.draining {
                self.draining.insert(slot);
            }
            if child.says_not_here {
                self.definite.insert(slot);
            }
            if child.takes_leases {
                self.lessees.insert(slot);
            }
        }
        if !self.connected.contains(slot) {
            self.unlist(slot);
        }
        self.children[slot.index()] = child.map(Arc::new);
    }
}
