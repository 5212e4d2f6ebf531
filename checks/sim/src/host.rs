//! One host: what runs on it, its clock, and what its disk keeps while it is down.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use cluster::tree::{
    Acceptor, Action, Address, ChildSettings, Event, Extensions, LinkId, Login, Mode, Node, ParentSettings,
    SystemId,
};
use cluster::{CacheSettings, NameChanges, WINDOW};

use crate::desk::LOCATIONS_MAX;
use crate::disk::{Disk, Record};
use crate::flood::Flood;
use crate::legacy::Legacy;
use crate::lot::Lot;
use crate::own::{Manner, Own, Sabotage, Turns};
use crate::stranger::Stranger;
use crate::talk::{Deed, Files, Order, Request};

/// The port of every node.
pub const PORT: u16 = 1213;

/// The port for clients of every node.
pub const DATA_PORT: u16 = 1094;

/// What a host is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Root of the tree, one of our own.
    Manager,
    /// Inner node, one of our own.
    Supervisor,
    /// Leaf, one of our own.
    Server,
    /// Root as real ones behave.
    RealManager,
    /// Leaf as real ones behave.
    RealServer,
    /// Inner node as real ones behave.
    RealSupervisor,
    /// No node at all: it keeps on connecting to the managers, and does it wrong.
    Flood,
    /// A redirector, a server or nobody, who orders changes of names at the managers.
    Stranger,
}

impl Kind {
    /// Whether it is one of our own nodes.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Manager | Self::Supervisor | Self::Server)
    }

    /// Whether it is a root.
    pub const fn is_manager(self) -> bool {
        matches!(self, Self::Manager | Self::RealManager)
    }

    /// Whether it is an inner node.
    pub const fn is_supervisor(self) -> bool {
        matches!(self, Self::Supervisor | Self::RealSupervisor)
    }
}

/// What runs on a host.
pub enum Machine {
    /// One of our own nodes.
    Own(Box<Own>),
    /// A model of a real one.
    Real(Box<Legacy>),
    /// Somebody hostile.
    Flood(Box<Flood>),
    /// Somebody who orders changes of names.
    Stranger(Box<Stranger>),
}

impl Machine {
    pub(crate) fn start(&mut self, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        match self {
            Self::Own(own) => own.start(disk, now, out),
            Self::Real(node) => plain(out, |out| node.start(now, out)),
            Self::Flood(flood) => plain(out, |out| flood.tick(now, out)),
            Self::Stranger(stranger) => plain(out, |out| stranger.tick(now, out)),
        }
    }

    pub(crate) fn handle(&mut self, event: Event, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        match self {
            Self::Own(own) => own.handle(event, disk, now, out),
            Self::Real(node) => {
                plain(out, |out| node.handle(event, now, out));
                node.follow(out);
            }
            Self::Flood(flood) => plain(out, |out| flood.handle(&event, now, out)),
            Self::Stranger(stranger) => stranger.handle(&event, out),
        }
    }

    pub(crate) fn files(
        &mut self,
        link: LinkId,
        message: Files,
        disk: &mut Disk,
        now: Duration,
        out: &mut Vec<Deed>,
    ) {
        match self {
            Self::Own(own) => own.files(link, message, disk, now, out),
            Self::Real(node) => node.files(link, message, disk, now, out),
            Self::Flood(_) | Self::Stranger(_) => {}
        }
    }

    pub(crate) fn serve(&mut self, request: &Request, disk: &mut Disk, now: Duration, out: &mut Vec<Deed>) {
        match self {
            Self::Own(own) => own.serve(request, disk, now, out),
            Self::Real(node) => node.serve(request, disk, now, out),
            Self::Flood(_) | Self::Stranger(_) => {}
        }
    }

    pub(crate) fn tick(&mut self, disk: &Disk, now: Duration, out: &mut Vec<Deed>) {
        match self {
            Self::Own(own) => own.tick(disk, now, out),
            Self::Real(node) => {
                plain(out, |out| node.tick(now, out));
                node.follow(out);
            }
            Self::Flood(flood) => plain(out, |out| flood.tick(now, out)),
            Self::Stranger(stranger) => plain(out, |out| stranger.tick(now, out)),
        }
    }
}

/// What concerns the tree alone.
fn plain(out: &mut Vec<Deed>, act: impl FnOnce(&mut Vec<Action>)) {
    let mut actions = Vec::new();
    act(&mut actions);
    out.extend(actions.into_iter().map(Deed::Tree));
}

/// One host.
pub struct Host {
    index: usize,
    /// What it is.
    pub kind: Kind,
    managers: Vec<usize>,
    rate: f64,
    /// How often it has crashed.
    pub(crate) epoch: u32,
    /// What runs; `None` while it is down.
    pub machine: Option<Machine>,
    pub(crate) timer: Option<Duration>,
    pub(crate) outward: Vec<(LinkId, u32)>,
    pub(crate) remembered: Option<Address>,
    pub(crate) placed: bool,
    /// When the youngest message that has arrived was sent, and over which link.
    pub(crate) newest: (Duration, u32),
    /// Its files.
    pub disk: Disk,
    /// When its parent took it in last.
    pub(crate) seated: Duration,
    /// Who took it in last, and in which life of that one.
    pub(crate) seat: Option<(usize, u32)>,
    /// Since when it has no place, if it has had one.
    pub(crate) missed: Option<Duration>,
    /// How it deals with what it is asked.
    pub manner: Manner,
    /// What it does wrong so that a check must notice it.
    pub(crate) sabotage: Option<Sabotage>,
    /// Whether it lists its files at each login.
    pub inventory: bool,
    /// Pause between two turns of its thread; `None`: everything is done at once.
    pub(crate) pace: Option<Duration>,
    /// The orders of a stranger.
    pub(crate) errand: Vec<Order>,
    /// Changes of names that a manager passes on for redirectors.
    pub forwarded: NameChanges,
    /// How long and how many locations it remembers.
    pub cache: CacheSettings,
    /// A manager has no record of an earlier run.
    pub first_start: bool,
    /// What its process keeps for the next one.
    pub(crate) record: Record,
    /// From when and until when nothing on it moves.
    still: (Duration, Duration),
    /// How long its clock has stood still.
    slept: Duration,
    /// Whether the administrator has taken it out of use; that outlasts its crashes.
    pub(crate) suspended: bool,
    /// Whether its clients are to go elsewhere; the same.
    pub(crate) draining: bool,
}

impl Host {
    pub(crate) fn new(index: usize, kind: Kind, managers: Vec<usize>, rate: f64) -> Self {
        Self {
            index,
            kind,
            managers,
            rate,
            epoch: 0,
            machine: None,
            timer: None,
            outward: Vec::new(),
            remembered: None,
            placed: false,
            newest: (Duration::ZERO, 0),
            disk: Disk::default(),
            seated: Duration::ZERO,
            seat: None,
            missed: None,
            manner: Manner::Honest,
            sabotage: None,
            inventory: false,
            pace: None,
            errand: Vec::new(),
            forwarded: NameChanges::NONE,
            cache: CacheSettings { locations_max: LOCATIONS_MAX, ..CacheSettings::default() },
            first_start: false,
            record: Record::default(),
            still: (Duration::ZERO, Duration::ZERO),
            slept: Duration::ZERO,
            suspended: false,
            draining: false,
        }
    }

    /// The name of a host.
    pub fn name(index: usize) -> String {
        format!("n{index}")
    }

    pub(crate) fn index(name: &str) -> Option<usize> {
        name.strip_prefix('n')?.parse().ok()
    }

    pub(crate) fn ip(index: usize) -> IpAddr {
        let [_, a, b, c] = (index as u32).to_be_bytes();
        Ipv4Addr::new(10, a, b, c).into()
    }

    /// The nodes that it looks for its parent at.
    pub(crate) fn homes(&self) -> &[usize] {
        &self.managers
    }

    /// Where a host listens.
    pub fn address(index: usize) -> Address {
        Address::new(&Self::name(index), PORT)
    }

    /// Notes what its process has to remember after a crash.
    pub(crate) fn note_record(&mut self) {
        if let Some(Machine::Own(own)) = &self.machine {
            let record = own.record();
            self.record = Record { leases: self.record.leases.max(record.leases), ..record };
        }
    }

    /// Speed of its clock.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// The time as this host has it.
    pub(crate) fn local(&self, now: Duration) -> Duration {
        now.saturating_sub(self.slept).mul_f64(self.rate)
    }

    /// Nothing on it moves until then, as when its machine is stopped or moved; its clock may stand still, too.
    pub(crate) fn stand_still(&mut self, now: Duration, until: Duration, clock: bool) {
        self.still = (now, until);
        if clock {
            self.slept += until.saturating_sub(now);
        }
    }

    /// Until when nothing on it moves.
    pub(crate) fn still_until(&self, now: Duration) -> Option<Duration> {
        Some(self.still.1).filter(|until| now < *until)
    }

    /// Whether nothing on it moved at that time or within `margin` before.
    pub(crate) fn stood_still(&self, at: Duration, margin: Duration) -> bool {
        let (from, until) = self.still;
        from <= at && at < until + margin
    }

    /// When its machine wants to be woken.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let local = match self.machine.as_ref()? {
            Machine::Own(own) => own.deadline()?,
            Machine::Real(node) => node.deadline()?,
            Machine::Flood(flood) => flood.deadline(),
            Machine::Stranger(stranger) => stranger.deadline()?,
        };
        // One step later: rounding must not wake it before its time.
        Some(local.div_f64(self.rate) + self.slept + Duration::from_nanos(100))
    }

    pub(crate) fn accepts(&self) -> bool {
        self.machine.is_some()
            && !matches!(self.kind, Kind::Server | Kind::RealServer | Kind::Flood | Kind::Stranger)
    }

    pub(crate) fn number(&self, link: LinkId) -> Option<u32> {
        self.outward.iter().find(|(of, _)| *of == link).map(|(_, number)| *number)
    }

    pub(crate) fn forget(&mut self, link: LinkId) {
        self.outward.retain(|(of, _)| *of != link);
    }

    pub(crate) fn crashed(&mut self) {
        self.epoch += 1;
        self.still.1 = self.still.0;
        self.timer = None;
        self.outward.clear();
        self.placed = false;
    }

    /// Whether it has a place in the tree; a manager never.
    pub(crate) fn placed(&self) -> bool {
        match &self.machine {
            Some(Machine::Own(own)) => {
                own.node.memberships().iter().any(|membership| membership.is_attached())
            }
            Some(Machine::Real(node)) => node.is_attached(),
            Some(Machine::Flood(_) | Machine::Stranger(_)) | None => false,
        }
    }

    /// A node belongs to managers or to one inner node, never both.
    pub(crate) fn check_places(&self) {
        if let Some(Machine::Own(own)) = &self.machine {
            for membership in own.node.memberships() {
                let (roots, inner) = (membership.attached_roots().count(), membership.inner().is_some());
                assert!(!(inner && roots > 0), "host {} is in two places", self.index);
            }
        }
    }

    pub(crate) fn dies(&self) -> bool {
        matches!(&self.machine, Some(Machine::Real(node)) if node.is_dead())
    }

    /// Connections to its parents.
    pub(crate) fn parent_links(&self) -> Vec<LinkId> {
        match &self.machine {
            Some(Machine::Own(own)) => {
                own.node.memberships().iter().flat_map(|m| m.parents().map(|(link, _)| link)).collect()
            }
            Some(Machine::Real(node)) => node.parent_links(),
            Some(Machine::Flood(_) | Machine::Stranger(_)) | None => Vec::new(),
        }
    }

    /// Connections of its children.
    pub(crate) fn child_links(&self) -> Vec<LinkId> {
        match &self.machine {
            Some(Machine::Own(own)) => own.node.members().map_or_else(Vec::new, |members| {
                members.members().filter_map(|(_, member)| member.link).collect()
            }),
            Some(Machine::Real(node)) => node.child_links(),
            Some(Machine::Flood(_) | Machine::Stranger(_)) | None => Vec::new(),
        }
    }

    fn login(&self) -> Login {
        let inner = self.kind.is_supervisor() || self.kind.is_manager();
        Login {
            version: 3,
            mode: if inner { Mode::MANAGER | Mode::SERVER } else { Mode::SERVER }
                | Mode::BLREDIR
                | Mode::NOSTAGE,
            process: self.epoch,
            data_port: DATA_PORT,
            cluster_port: PORT,
            id: self.id().as_str().to_owned(),
            paths: "w /".to_owned(),
            host: Some(Self::name(self.index)),
            extensions: if self.kind.is_own() { Extensions::ALL } else { Extensions::NONE },
            ..Login::default()
        }
    }

    fn id(&self) -> SystemId {
        let kind = match self.kind {
            Kind::Manager | Kind::RealManager => 'm',
            Kind::Supervisor | Kind::RealSupervisor => 'u',
            Kind::Server | Kind::RealServer | Kind::Flood | Kind::Stranger => 's',
        };
        SystemId::compose(kind, &format!("anon@{}", Self::name(self.index)), None, "1213n0")
    }

    /// The process that runs here from now on.
    pub(crate) fn machine(&self, lot: &mut Lot, now: Duration) -> Machine {
        let now = self.local(now);
        let managers: Vec<Address> = self.managers.iter().map(|index| Self::address(*index)).collect();
        if self.kind == Kind::Flood {
            return Machine::Flood(Box::new(Flood::new(managers, self.login(), Lot::new(lot.draw()))));
        }
        if self.kind == Kind::Stranger {
            let stranger = Stranger::new(managers, self.login(), self.errand.clone(), Lot::new(lot.draw()));
            return Machine::Stranger(Box::new(stranger));
        }
        if !self.kind.is_own() {
            let parent = self.kind.is_supervisor() || self.kind.is_manager();
            let managers = if self.kind.is_manager() { Vec::new() } else { managers };
            return Machine::Real(Box::new(Legacy::new(managers, self.login(), parent)));
        }
        let parent = |acceptor| {
            let mut settings = ParentSettings::new(acceptor, self.id(), Self::address(self.index));
            settings.replicas = self.managers.len() > 1;
            settings.first_start = self.first_start && acceptor == Acceptor::Manager;
            settings.door =
                (acceptor == Acceptor::Manager).then(|| Address::new(&Self::name(self.index), DATA_PORT));
            settings
        };
        let mut child = ChildSettings::new(managers, self.login());
        let (parent, children) = match self.kind {
            Kind::Manager => (Some(parent(Acceptor::Manager)), Vec::new()),
            Kind::Supervisor => (Some(parent(Acceptor::Supervisor)), vec![child]),
            _ => {
                child.remembered.clone_from(&self.remembered);
                (None, vec![child])
            }
        };
        let (inner, has_parents) = (parent.is_some(), !children.is_empty());
        let node = Node::new(parent, children, lot, now);
        let own = SocketAddr::new(Self::ip(self.index), DATA_PORT);
        let cache = match self.sabotage {
            Some(Sabotage::Hoards) => CacheSettings { window: WINDOW, nowhere: None, ..self.cache.clone() },
            _ => self.cache.clone(),
        };
        let own = Own::new(node, inner.then_some(has_parents), own, &cache, lot);
        let record = Record {
            leases: self.record.leases.map(|until| until.saturating_sub(now)).filter(|time| !time.is_zero()),
            lessees: self.record.lessees.clone(),
        };
        let mut own = own.with(self.manner, self.inventory, self.sabotage).after(&record, now);
        own.forwarded = self.forwarded;
        own.turns = self.pace.map(|pace| Box::new(Turns::new(pace)));
        Machine::Own(Box::new(own))
    }
}
