//! One cell as those see it who look for a child to send a client to: the children, what they export, and their
//! figures.
//!
//! The cluster's thread owns the cell and changes it; the loops of connections read a copy that it publishes after
//! each change. Children and tables are shared between copies, so a copy is small. Who may join, and when a slot
//! changes hands, is the tree's affair: it tells the cell.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use crate::absent::{AbsentLessee, AbsentLessees, Seat};
use crate::cache::Bounces;
use crate::meters::Meters;
use crate::paths::{Export, PathTable};
use crate::slots::{CELL_SLOTS, Slot, SlotMask};

/// What a child is to a client that is sent there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ChildKind {
    /// A data server: it has the file itself.
    Server,
    /// A supervisor, or a manager below a meta manager: it will send the client on.
    Inner,
}

/// Which addresses a client can use. Source: cms protocol 3, `select`, network bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Net {
    /// IPv4 alone.
    V4,
    /// Both, rather IPv4.
    #[default]
    V4First,
    /// Both, rather IPv6.
    V6First,
    /// IPv6 alone.
    V6,
}

/// Where a client is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Client {
    /// The addresses it can use.
    pub net: Net,
    /// Its own address is private: it may use private addresses of children, and rather does.
    pub private: bool,
    /// It says that it has no address of the other kind: children that have none of its own kind come last.
    pub alone: bool,
}

impl Client {
    /// The same, with no use for addresses of the other kind, if it says so.
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
    /// What a redirect names: the registered name, else the address as text, IPv6 in brackets.
    pub host: Arc<str>,
    /// The address itself.
    pub ip: IpAddr,
    /// Of use only within the site.
    pub private: bool,
}

/// How a child is, as far as it concerns those who would send it clients. Nothing set is a child that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ChildState {
    /// Its connection stands.
    pub connected: bool,
    /// Its connection broke a moment ago and it is expected back: that a file is nowhere is not said without it.
    pub expected: bool,
    /// It is joining, or was told to go.
    pub disabled: bool,
    /// It asked not to be sent clients.
    pub suspended: bool,
    /// The administrator wants nobody sent there.
    pub blacklisted: bool,
    /// Its clients are being moved away: it gets new ones only for what nobody else has, and no new files.
    pub draining: bool,
    /// It cannot bring in files, or has no space for new ones.
    pub nostage: bool,
}

impl ChildState {
    /// A child that serves.
    pub const SERVING: Self = Self {
        connected: true,
        expected: false,
        disabled: false,
        suspended: false,
        blacklisted: false,
        draining: false,
        nostage: false,
    };

    /// There, but not to be used.
    pub(crate) const fn bad(self) -> bool {
        self.disabled || self.suspended || self.blacklisted
    }
}

/// A child of the cell.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Child {
    /// Server or inner node.
    pub kind: ChildKind,
    /// How it is.
    pub state: ChildState,
    /// Its addresses.
    pub interfaces: Vec<Interface>,
    /// The port clients use.
    pub port: u16,
    /// The site it belongs to: the end of its system id. `+<cid>` in a client's tried list means all of them.
    pub cid: Arc<str>,
    /// It says so when it does not have a file, instead of keeping silent.
    pub says_not_here: bool,
    /// It reports all names that come to exist there, and may say that it has listed all of them.
    pub lists_all: bool,
    /// It creates a file only within its lease.
    pub takes_leases: bool,
    /// A number for the node that is the same at all its parents.
    pub digest: u64,
    /// The number of its system id, by which supervisors report it.
    pub id: u64,
    /// With less free space it gets no new files, in MB.
    pub min_free_mb: u32,
    /// The part of its share of clients it wants, in percent. (Managers below a meta manager.)
    pub share: Option<u8>,
}

impl Child {
    /// The address this client should use; `None` when it can use none.
    pub fn interface(&self, client: Client) -> Option<&Interface> {
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

/// A parent's children and what it knows of them.
#[derive(Clone, Debug)]
pub struct Cell {
    children: [Option<Arc<Child>>; CELL_SLOTS],
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
    /// Children whose list began since they came or reset.
    listing: SlotMask,
    complete: SlotMask,
    own: Arc<[SocketAddr]>,
    quorum: bool,
    absent: AbsentLessees,
}

impl Cell {
    /// A cell without children. `own` are the addresses clients know this node by: no child may have one of them.
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

    /// The child in `slot`.
    pub fn child(&self, slot: Slot) -> Option<&Child> {
        self.children[slot.index()].as_deref()
    }

    /// All children, from slot 0 up.
    pub fn children(&self) -> impl DoubleEndedIterator<Item = (Slot, &Child)> {
        Slot::all().filter_map(|slot| Some((slot, self.child(slot)?)))
    }

    /// Children whose connection stands.
    pub const fn connected(&self) -> SlotMask {
        self.connected
    }

    /// Children that were lost a moment ago and are expected back.
    pub const fn expected(&self) -> SlotMask {
        self.expected
    }

    /// Children that say so when they do not have a file.
    pub const fn definite(&self) -> SlotMask {
        self.definite
    }

    /// Children that create a file only within its lease.
    pub const fn lessees(&self) -> SlotMask {
        self.lessees
    }

    /// Children whose clients are being moved away.
    pub const fn draining(&self) -> SlotMask {
        self.draining
    }

    /// Children that have files themselves.
    pub const fn servers(&self) -> SlotMask {
        self.servers
    }

    /// Servers that have told of all their files since they came: they need not be asked for further copies of one that is
    /// known to be elsewhere.
    pub const fn listed(&self) -> SlotMask {
        self.listed
    }

    /// Servers that have told of all names below their exports since they came, and report each new one: what they were never
    /// heard to have is not there.
    pub const fn complete(&self) -> SlotMask {
        SlotMask(self.complete.0 & self.listed.0)
    }

    /// Who exports what.
    pub fn paths(&self) -> &PathTable {
        &self.paths
    }

    /// Which slots changed since when.
    pub const fn bounces(&self) -> &Bounces {
        &self.bounces
    }

    /// The children's figures.
    pub fn meters(&self) -> &Meters {
        &self.meters
    }

    /// Whether so many of the children are there that "nobody has it" may be said.
    pub const fn quorum(&self) -> bool {
        self.quorum
    }

    /// Children that are not here and may have leases.
    pub(crate) const fn absent(&self) -> &AbsentLessees {
        &self.absent
    }

    /// The connection of the child in `slot` has ended: its leases are over at `until`.
    pub(crate) fn miss_lessee(&mut self, slot: Slot, until: Duration) {
        if let Some(child) = self.child(slot).filter(|child| child.takes_leases) {
            let rivals = self.connected - slot.mask();
            let (id, seat) = (child.id, Some(Seat::of(slot, child, rivals, &self.paths)));
            self.absent.add(AbsentLessee { id, until, seat });
        }
    }

    /// A child of an earlier run of this node may have leases until then. Reports whether it is not here.
    pub(crate) fn await_lessee(&mut self, id: u64, until: Duration) -> bool {
        let is_here = |(_, child): (Slot, &Child)| child.id == id && child.state.connected;
        let is_absent = !self.children().any(is_here);
        if is_absent {
            self.absent.add(AbsentLessee { id, until, seat: None });
        }
        is_absent
    }

    /// A cell below has taken a node in, so that its leases are found there. Reports whether it was absent.
    pub(crate) fn found_below(&mut self, id: u64) -> bool {
        self.absent.remove(id)
    }

    /// Forgets absent children whose leases are over. Reports whether there were any.
    pub(crate) fn forget_absent(&mut self, now: Duration) -> bool {
        self.absent.forget_old(now)
    }

    /// Sending a client to this child would bring it back to us.
    pub(crate) fn is_self(&self, child: &Child) -> bool {
        child.interfaces.iter().any(|one| self.own.contains(&SocketAddr::new(one.ip, child.port)))
    }

    /// A new child sits in `slot`, or its old one came back with other paths: nothing known of the slot holds.
    pub fn join(&mut self, slot: Slot, child: Child, exports: &[Export]) {
        Arc::make_mut(&mut self.paths).announce(slot, exports);
        self.bounces.bounce(slot);
        self.meters.reset_counts(self.paths.sharing(slot));
        self.unlist(slot);
        self.absent.note_newcomer(slot);
        self.set(slot, Some(child));
    }

    /// What is below the child changed (`status` reset): what it said before holds no longer.
    pub fn bounce(&mut self, slot: Slot) {
        self.bounces.bounce(slot);
        self.unlist(slot);
    }

    /// The child in `slot` has told of all its files. From inner nodes that says nothing: of those below, some may not have.
    pub fn list(&mut self, slot: Slot) {
        if (self.servers & self.connected & self.definite).contains(slot) {
            self.listed.insert(slot);
        }
    }

    /// The child in `slot` begins its list. What a node sends before it has a slot is lost, so that may be the end of a list only.
    pub fn begin_list(&mut self, slot: Slot) {
        self.listing.insert(slot);
    }

    /// The child in `slot`, which has told of all its files, has told of all other names, too.
    pub fn list_completely(&mut self, slot: Slot) {
        let listed = self.listed.contains(slot) && self.listing.contains(slot);
        if listed && self.child(slot).is_some_and(|child| child.lists_all) {
            self.complete.insert(slot);
        }
    }

    /// The child in `slot` came back: what it says of itself since may not have arrived. What is known of it is still good
    /// enough to send readers there, but it is to be asked again.
    pub fn doubt(&mut self, slot: Slot) {
        self.bounces.doubt(slot);
        self.unlist(slot);
    }

    /// The child in `slot` changed, but not what it has: it came back, was suspended, has another port.
    pub fn change(&mut self, slot: Slot, change: impl FnOnce(&mut Child)) {
        let Some(mut child) = self.child(slot).cloned() else { return };
        change(&mut child);
        self.set(slot, Some(child));
    }

    /// The slot is free again.
    pub fn leave(&mut self, slot: Slot) {
        Arc::make_mut(&mut self.paths).remove(slot);
        self.meters.reset_counts(slot.mask());
        self.set(slot, None);
    }

    /// Says whether enough children are there for what rests on all being asked.
    pub fn set_quorum(&mut self, quorum: bool) {
        self.quorum = quorum;
    }

    fn unlist(&mut self, slot: Slot) {
        self.listed.remove(slot);
        self.listing.remove(slot);
        self.complete.remove(slot);
    }

    fn set(&mut self, slot: Slot, child: Option<Child>) {
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
