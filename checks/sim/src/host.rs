//! One host: its process, its clock, and the contents of its disk, which outlast a crash.
//!
//! The world calls hosts of all roles through it, because events do not depend on the role.

use std::net::SocketAddr;
use std::time::Duration;

use cluster::tree::{
    AcceptorRole, Address, ChildSettings, ClusterNode, ConnectionId, Extensions, LoginMessage, Members, Mode,
    NodeAction, NodeEvent, NodeId, ParentSettings,
};
use cluster::{CacheSettings, NameChangeSet, WINDOW};

use crate::disk::{HostDisk, LeaseState};
use crate::flood::Flood;
use crate::host_address::{DATA_PORT, PORT, host_ip, host_name};
use crate::location_service::LOCATIONS_MAX;
use crate::messages::{ChangeOrder, ClientRequest, FileMessage, ProcessAction};
use crate::own_process::{OwnProcess, QueryBehaviour, Sabotage, WorkTurns};
use crate::real_node::RealNode;
use crate::sim_rng::SimRng;
use crate::stranger::Stranger;

/// The role of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostKind {
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
    /// A hostile program: it connects to the managers repeatedly with invalid logins.
    Flood,
    /// A redirector, a server or an unknown peer that orders changes of names at the managers.
    Stranger,
}

impl HostKind {
    /// Reports whether it is one of our own nodes.
    pub const fn is_own(self) -> bool {
        matches!(self, Self::Manager | Self::Supervisor | Self::Server)
    }

    /// Reports whether it is a root.
    pub const fn is_manager(self) -> bool {
        matches!(self, Self::Manager | Self::RealManager)
    }

    /// Reports whether it is an inner node.
    pub const fn is_supervisor(self) -> bool {
        matches!(self, Self::Supervisor | Self::RealSupervisor)
    }
}

/// The process of a host.
pub enum HostProcess {
    /// One of our own nodes.
    Own(Box<OwnProcess>),
    /// A model of a real one.
    Real(Box<RealNode>),
    /// A hostile program.
    Flood(Box<Flood>),
    /// A peer that orders changes of names.
    Stranger(Box<Stranger>),
}

impl HostProcess {
    pub(crate) fn start(&mut self, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
        match self {
            Self::Own(own) => own.start(disk, now, out),
            Self::Real(node) => plain(out, |out| node.start(now, out)),
            Self::Flood(flood) => plain(out, |out| flood.tick(now, out)),
            Self::Stranger(stranger) => plain(out, |out| stranger.tick(now, out)),
        }
    }

    pub(crate) fn handle(
        &mut self,
        event: NodeEvent,
        disk: &HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
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
        link: ConnectionId,
        message: FileMessage,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        match self {
            Self::Own(own) => own.files(link, message, disk, now, out),
            Self::Real(node) => node.files(link, message, disk, now, out),
            Self::Flood(_) | Self::Stranger(_) => {}
        }
    }

    pub(crate) fn serve(
        &mut self,
        request: &ClientRequest,
        disk: &mut HostDisk,
        now: Duration,
        out: &mut Vec<ProcessAction>,
    ) {
        match self {
            Self::Own(own) => own.serve(request, disk, now, out),
            Self::Real(node) => node.serve(request, disk, now, out),
            Self::Flood(_) | Self::Stranger(_) => {}
        }
    }

    pub(crate) fn tick(&mut self, disk: &HostDisk, now: Duration, out: &mut Vec<ProcessAction>) {
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

/// Keeps the actions about the tree.
fn plain(out: &mut Vec<ProcessAction>, act: impl FnOnce(&mut Vec<NodeAction>)) {
    let mut actions = Vec::new();
    act(&mut actions);
    out.extend(actions.into_iter().map(ProcessAction::Tree));
}

/// One host.
pub struct SimHost {
    index: usize,
    /// Its role.
    pub kind: HostKind,
    managers: Vec<usize>,
    rate: f64,
    /// The number of its crashes.
    pub(crate) epoch: u32,
    /// Its process; `None` while it is down.
    pub machine: Option<HostProcess>,
    pub(crate) timer: Option<Duration>,
    pub(crate) outward: Vec<(ConnectionId, u32)>,
    pub(crate) remembered: Option<Address>,
    pub(crate) placed: bool,
    /// The time at which the youngest received message was sent, and its connection.
    pub(crate) newest: (Duration, u32),
    /// Its files.
    pub disk: HostDisk,
    /// The time at which a parent last accepted it.
    pub(crate) seated: Duration,
    /// The last parent that accepted it, with the epoch of that parent.
    pub(crate) seat: Option<(usize, u32)>,
    /// The time since which it has no place, if it has had one.
    pub(crate) missed: Option<Duration>,
    /// Its behaviour on queries.
    pub behaviour: QueryBehaviour,
    /// A fault that a check must detect.
    pub(crate) sabotage: Option<Sabotage>,
    /// It gets new files before all managers know it, as a server of an earlier version.
    pub(crate) rushes: bool,
    /// It sends its inventory at each login.
    pub inventory: bool,
    /// The pause between two turns of its thread; `None`: all work is done at once.
    pub(crate) pace: Option<Duration>,
    /// The orders of a stranger.
    pub(crate) errand: Vec<ChangeOrder>,
    /// Changes of names that a manager forwards for redirectors.
    pub forwarded: NameChangeSet,
    /// The window and the size of its location cache.
    pub cache: CacheSettings,
    /// A manager has no record of an earlier run.
    pub first_start: bool,
    /// The state that its process stores for the next one.
    pub(crate) record: LeaseState,
    /// The period in which it is frozen.
    still: (Duration, Duration),
    /// The time for which its clock has been stopped.
    slept: Duration,
    /// The administrator has suspended it; that outlasts its crashes.
    pub(crate) suspended: bool,
    /// It is draining; that outlasts its crashes.
    pub(crate) draining: bool,
}

impl SimHost {
    pub(crate) fn new(index: usize, kind: HostKind, managers: Vec<usize>, rate: f64) -> Self {
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
            disk: HostDisk::default(),
            seated: Duration::ZERO,
            seat: None,
            missed: None,
            behaviour: QueryBehaviour::Honest,
            sabotage: None,
            rushes: false,
            inventory: false,
            pace: None,
            errand: Vec::new(),
            forwarded: NameChangeSet::NONE,
            cache: CacheSettings { locations_max: LOCATIONS_MAX, ..CacheSettings::default() },
            first_start: false,
            record: LeaseState::default(),
            still: (Duration::ZERO, Duration::ZERO),
            slept: Duration::ZERO,
            suspended: false,
            draining: false,
        }
    }

    /// Returns its number.
    pub(crate) const fn index(&self) -> usize {
        self.index
    }

    /// Returns its process if that is one of our own.
    pub(crate) fn own(&self) -> Option<&OwnProcess> {
        match &self.machine {
            Some(HostProcess::Own(own)) => Some(own),
            _ => None,
        }
    }

    /// Returns the children of its process if that is a parent of our own.
    fn members(&self) -> Option<&Members> {
        self.own()?.node.members()
    }

    /// Returns the nodes at which it looks for its parent.
    pub(crate) fn homes(&self) -> &[usize] {
        &self.managers
    }

    /// Returns the address of a host.
    pub fn address(index: usize) -> Address {
        Address::new(&host_name(index), PORT)
    }

    /// Stores the state that its process needs after a crash.
    pub(crate) fn note_record(&mut self) {
        if let Some(own) = self.own() {
            let record = own.record();
            self.record = LeaseState { leases: self.record.leases.max(record.leases), ..record };
        }
    }

    /// Returns the speed of its clock.
    pub(crate) const fn rate(&self) -> f64 {
        self.rate
    }

    /// Returns the local time of this host.
    pub(crate) fn local(&self, now: Duration) -> Duration {
        now.saturating_sub(self.slept).mul_f64(self.rate)
    }

    /// Freezes the host until then, as for a stopped or migrated machine; its clock may stop, too.
    pub(crate) fn stand_still(&mut self, now: Duration, until: Duration, clock: bool) {
        self.still = (now, until);
        if clock {
            self.slept += until.saturating_sub(now);
        }
    }

    /// Returns the end of the period in which it is frozen.
    pub(crate) fn still_until(&self, now: Duration) -> Option<Duration> {
        Some(self.still.1).filter(|until| now < *until)
    }

    /// Reports whether it was frozen at that time or within `margin` before.
    pub(crate) fn stood_still(&self, at: Duration, margin: Duration) -> bool {
        let (from, until) = self.still;
        from <= at && at < until + margin
    }

    /// Returns the deadline of its process.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        let local = match self.machine.as_ref()? {
            HostProcess::Own(own) => own.deadline()?,
            HostProcess::Real(node) => node.deadline()?,
            HostProcess::Flood(flood) => flood.deadline(),
            HostProcess::Stranger(stranger) => stranger.deadline()?,
        };
        // One step later, because rounding must not wake it early.
        Some(local.div_f64(self.rate) + self.slept + Duration::from_nanos(100))
    }

    pub(crate) fn accepts(&self) -> bool {
        self.machine.is_some()
            && !matches!(
                self.kind,
                HostKind::Server | HostKind::RealServer | HostKind::Flood | HostKind::Stranger
            )
    }

    pub(crate) fn number(&self, link: ConnectionId) -> Option<u32> {
        self.outward.iter().find(|(of, _)| *of == link).map(|(_, number)| *number)
    }

    pub(crate) fn forget(&mut self, link: ConnectionId) {
        self.outward.retain(|(of, _)| *of != link);
    }

    pub(crate) fn crashed(&mut self) {
        self.epoch += 1;
        self.still.1 = self.still.0;
        self.timer = None;
        self.outward.clear();
        self.placed = false;
    }

    /// Reports whether it has a place in the tree; never for a manager.
    pub(crate) fn placed(&self) -> bool {
        match &self.machine {
            Some(HostProcess::Own(own)) => {
                own.node.memberships().iter().any(|membership| membership.is_attached())
            }
            Some(HostProcess::Real(node)) => node.is_attached(),
            Some(HostProcess::Flood(_) | HostProcess::Stranger(_)) | None => false,
        }
    }

    /// Checks that a node has managers or one inner node as parents, never both.
    pub(crate) fn check_places(&self) {
        if let Some(own) = self.own() {
            for membership in own.node.memberships() {
                let (roots, inner) = (membership.attached_roots().count(), membership.inner().is_some());
                assert!(!(inner && roots > 0), "host {} is in two places", self.index);
            }
        }
    }

    /// Returns the first violation of the limits of work by a process of our own.
    pub(crate) fn take_work_error(&mut self) -> Option<String> {
        match &mut self.machine {
            Some(HostProcess::Own(own)) => own.take_work_error(),
            _ => None,
        }
    }

    /// Reports whether all places of a parent of our own are taken.
    pub(crate) fn is_full(&self) -> bool {
        self.members().is_some_and(|members| members.used().len() == cluster::CELL_SLOTS)
    }

    /// Reports whether logins are parked at a parent of our own.
    pub(crate) fn has_waiting(&self) -> bool {
        self.members().is_some_and(|members| members.waiting() > 0)
    }

    /// Reports whether a parent of our own keeps places for lost children.
    pub(crate) fn keeps_places(&self) -> bool {
        self.members().is_some_and(|members| members.used() != members.online())
    }

    /// Checks that a parent of our own keeps no stale state while all nodes have a place: parked
    /// logins, connections without a node, cells of supervisors that never existed.
    ///
    /// # Errors
    ///
    /// The stale state.
    pub(crate) fn check_stale_state(&self, supervisors: usize) -> Result<(), String> {
        let Some(members) = self.members() else { return Ok(()) };
        let (cells, waiting) = (members.directory().entries().len(), members.waiting());
        let (links, online) = (members.connections(), members.online().len());
        if cells > supervisors || links > online + waiting {
            return Err(format!("{cells} cells, {waiting} wait, {links} connections of {online} children"));
        }
        Ok(())
    }

    /// Describes the state of a process of our own for an error message.
    pub(crate) fn state(&self, now: Duration) -> Option<String> {
        let (host, own) = (self.index, self.own()?);
        let Some(members) = own.node.members() else { return Some(format!("host {host} is a server")) };
        let local = self.local(now);
        let active = members.members().filter(|(_, member)| member.is_active()).count();
        Some(format!(
            "host {host} serves: {}, settled: {}, {} places used, {} online, {active} of at least {} active, {}, {:?}",
            members.serves(),
            members.is_settled(local),
            members.used().len(),
            members.online().len(),
            members.minimum(local),
            own.cell(),
            own.stats(),
        ))
    }

    pub(crate) fn dies(&self) -> bool {
        matches!(&self.machine, Some(HostProcess::Real(node)) if node.is_dead())
    }

    /// Returns the connections to its parents.
    pub(crate) fn parent_links(&self) -> Vec<ConnectionId> {
        match &self.machine {
            Some(HostProcess::Own(own)) => {
                own.node.memberships().iter().flat_map(|m| m.parents().map(|(link, _)| link)).collect()
            }
            Some(HostProcess::Real(node)) => node.parent_links(),
            Some(HostProcess::Flood(_) | HostProcess::Stranger(_)) | None => Vec::new(),
        }
    }

    /// Returns the connections of its children.
    pub(crate) fn child_links(&self) -> Vec<ConnectionId> {
        match &self.machine {
            Some(HostProcess::Own(own)) => own.node.members().map_or_else(Vec::new, |members| {
                members.members().filter_map(|(_, member)| member.link).collect()
            }),
            Some(HostProcess::Real(node)) => node.child_links(),
            Some(HostProcess::Flood(_) | HostProcess::Stranger(_)) | None => Vec::new(),
        }
    }

    fn login(&self) -> LoginMessage {
        let inner = self.kind.is_supervisor() || self.kind.is_manager();
        LoginMessage {
            version: 3,
            mode: if inner { Mode::MANAGER | Mode::SERVER } else { Mode::SERVER }
                | Mode::BLREDIR
                | Mode::NOSTAGE,
            process: self.epoch,
            data_port: DATA_PORT,
            cluster_port: PORT,
            id: self.id().as_str().to_owned(),
            paths: "w /".to_owned(),
            host: Some(host_name(self.index)),
            extensions: match (self.kind.is_own(), self.rushes) {
                (false, _) => Extensions::NONE,
                (true, true) => Extensions::ALL.without(Extensions::NEWCOMER),
                (true, false) => Extensions::ALL,
            },
            ..LoginMessage::default()
        }
    }

    fn id(&self) -> NodeId {
        let kind = match self.kind {
            HostKind::Manager | HostKind::RealManager => 'm',
            HostKind::Supervisor | HostKind::RealSupervisor => 'u',
            HostKind::Server | HostKind::RealServer | HostKind::Flood | HostKind::Stranger => 's',
        };
        NodeId::compose(kind, &format!("anon@{}", host_name(self.index)), None, "1213n0")
    }

    /// Creates the process that runs here from now on.
    pub(crate) fn machine(&self, rng: &mut SimRng, now: Duration) -> HostProcess {
        let now = self.local(now);
        let managers: Vec<Address> = self.managers.iter().map(|index| Self::address(*index)).collect();
        if self.kind == HostKind::Flood {
            return HostProcess::Flood(Box::new(Flood::new(managers, self.login(), SimRng::new(rng.draw()))));
        }
        if self.kind == HostKind::Stranger {
            let stranger =
                Stranger::new(managers, self.login(), self.errand.clone(), SimRng::new(rng.draw()));
            return HostProcess::Stranger(Box::new(stranger));
        }
        if !self.kind.is_own() {
            let parent = self.kind.is_supervisor() || self.kind.is_manager();
            let managers = if self.kind.is_manager() { Vec::new() } else { managers };
            return HostProcess::Real(Box::new(RealNode::new(managers, self.login(), parent)));
        }
        let parent = |acceptor| {
            let mut settings = ParentSettings::new(acceptor, self.id(), Self::address(self.index));
            settings.replicas = self.managers.len() > 1;
            settings.first_start = self.first_start && acceptor == AcceptorRole::Manager;
            settings.door =
                (acceptor == AcceptorRole::Manager).then(|| Address::new(&host_name(self.index), DATA_PORT));
            settings
        };
        let mut child = ChildSettings::new(managers, self.login());
        let (parent, children) = match self.kind {
            HostKind::Manager => (Some(parent(AcceptorRole::Manager)), Vec::new()),
            HostKind::Supervisor => (Some(parent(AcceptorRole::Supervisor)), vec![child]),
            _ => {
                child.remembered.clone_from(&self.remembered);
                (None, vec![child])
            }
        };
        let (inner, has_parents) = (parent.is_some(), !children.is_empty());
        let node = ClusterNode::new(parent, children, rng, now);
        let own = SocketAddr::new(host_ip(self.index), DATA_PORT);
        let cache = match self.sabotage {
            Some(Sabotage::Hoards) => CacheSettings { window: WINDOW, nowhere: None, ..self.cache.clone() },
            _ => self.cache.clone(),
        };
        let own = OwnProcess::new(node, inner.then_some(has_parents), own, &cache, rng);
        let record = LeaseState {
            leases: self.record.leases.map(|until| until.saturating_sub(now)).filter(|time| !time.is_zero()),
            lessees: self.record.lessees.clone(),
        };
        let mut own = own.with(self.behaviour, self.inventory, self.sabotage).after(&record, now);
        own.forwarded = self.forwarded;
        own.turns = self.pace.map(|pace| Box::new(WorkTurns::new(pace)));
        HostProcess::Own(Box::new(own))
    }
}
