//! Values for the cluster (`cms.` and what of `all.` concerns it): role, managers, waits, selection, space, health.
//!
//! One file is read twice, as xrootd and as cmsd read it; what stands here is what the cmsd reads, with the exceptions
//! that [`Cluster`] names.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::network::{HostPattern, Port};
use super::process::Trace;
use crate::setting::Setting;

/// The port of managers where a command line names none.
pub const CLUSTER_PORT_DEFAULT: u16 = 1213;
/// Managers of one node at most.
pub const MANAGERS_MAX: usize = 16;
/// Longest tag in front of a cluster id (`cms.cidtag`), in characters.
pub const CLUSTER_TAG_MAX: usize = 16;
/// Longest id of a node that holds at any address (`cms.vnid`), in characters.
pub const VIRTUAL_ID_MAX: usize = 64;

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Role {
    /// Root above managers.
    MetaManager,
    /// Root of a tree; its parents, if any, are meta managers.
    Manager,
    /// Inner node.
    Supervisor,
    /// Leaf: it has the files. Without a manager it stands alone.
    #[default]
    Server,
}

impl Role {
    /// As `all.role` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MetaManager => "meta manager",
            Self::Manager => "manager",
            Self::Supervisor => "supervisor",
            Self::Server => "server",
        }
    }

    /// True if clients are sent on from here: it has children, and no files of its own.
    #[must_use]
    pub const fn redirects(self) -> bool {
        !matches!(self, Self::Server)
    }
}

/// A manager as it is configured: `host[+]:port[%instance][@site]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerAddress {
    /// Name or address; an address of version 6 without its brackets.
    pub host: String,
    /// Every address of the name is a manager (`+`).
    pub every_address: bool,
    /// Its port.
    pub port: u16,
    /// Only a manager of this instance name is meant (`%`).
    pub instance: Option<String>,
    /// The site whose manager it is; a node belongs to the tree of each site (`@`).
    pub site: Option<String>,
    /// Redirectors spread requests over the managers (`all`) instead of taking the first that answers (`any`).
    pub spread: bool,
}

impl ManagerAddress {
    /// A manager about which nothing else is said.
    #[must_use]
    pub fn new(host: &str, port: u16) -> Self {
        Self { host: host.to_owned(), every_address: false, port, instance: None, site: None, spread: false }
    }
}

impl fmt::Display for ManagerAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.spread {
            f.write_str("all ")?;
        }
        let plus = if self.every_address { "+" } else { "" };
        if self.host.contains(':') {
            write!(f, "[{}]{plus}:{}", self.host, self.port)?;
        } else {
            write!(f, "{}{plus}:{}", self.host, self.port)?;
        }
        if let Some(instance) = &self.instance {
            write!(f, "%{instance}")?;
        }
        self.site.as_ref().map_or(Ok(()), |site| write!(f, "@{site}"))
    }
}

/// How many children must be there for service (`cms.delay servers`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quorum {
    /// That many.
    Count(u32),
    /// That part of those that have joined, in percent.
    Percent(u8),
}

/// A wait with a meaning of its own when nothing is configured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Wait {
    /// What the role has.
    #[default]
    ByRole,
    /// As long as load reports take to come round (`*`).
    ByReports,
    /// So long.
    Time(Duration),
}

/// `cms.delay`.
#[derive(Clone, PartialEq, Debug)]
pub struct Delays {
    /// `startup`: how long nothing is announced after the start. Ours announce at quorum.
    pub startup: Setting<Duration>,
    /// `servers`.
    pub quorum: Setting<Quorum>,
    /// `service`: told to clients while too few children are there.
    pub service: Setting<Duration>,
    /// `lookup`: told to clients where a query cannot be waited for.
    pub lookup: Setting<Duration>,
    /// `qdl`: how long silence of a child is listened to; `None` is `lookup`.
    pub silence: Setting<Option<Duration>>,
    /// `qdn`: answers a meta manager waits for.
    pub answers: Setting<u32>,
    /// `hold`: told to children as the time that requests are held back.
    pub hold: Setting<Duration>,
    /// `rw`: which requests to write may be held back; 0 all, 1 plain updates not, 2 none.
    pub write_queue: Setting<u8>,
    /// `suspend`: told to clients whose servers are suspended.
    pub suspend: Setting<Duration>,
    /// `full`: told to clients whose servers are full; `ByRole` is an error.
    pub full: Setting<Wait>,
    /// `overload`: told to clients whose servers are overloaded; `ByRole` is what load reports take to come round.
    pub overload: Setting<Wait>,
    /// `drop`: how long the place of a lost child is kept; `None`: ten minutes, a supervisor not at all.
    pub drop: Setting<Option<Duration>>,
    /// `nostage`: after so many servers that could have staged a file it is not staged again.
    pub stagers: Setting<u32>,
}

/// How strongly equal paths go to the same server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AffinityKind {
    /// Not at all.
    #[default]
    None,
    /// If nothing speaks against it.
    Weak,
    /// Unless it is much busier than others.
    Strong,
    /// Always.
    Strict,
}

impl AffinityKind {
    /// As `cms.sched affinity` names it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Weak => "weak",
            Self::Strong => "strong",
            Self::Strict => "strict",
        }
    }
}

/// `cms.sched affinity`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Affinity {
    /// How strongly.
    pub kind: AffinityKind,
    /// A client's wish counts instead (`default`).
    pub by_client: bool,
    /// Servers are drawn by lot, weighted by load.
    pub randomized: bool,
}

/// `cms.sched affpath`: what of a path makes paths equal.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AffinityPart {
    /// All of it.
    #[default]
    All,
    /// So many components from the left.
    First(u32),
    /// So many components from the right.
    Last(u32),
}

/// `host:port` outside the cluster, for clients that cannot be served in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outside {
    /// Its name or address.
    pub host: String,
    /// Its port.
    pub port: u16,
}

/// A limit on what clients may try, and where they go then.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit<T> {
    /// The limit.
    pub limit: T,
    /// Where to; `None`: they are told that it failed.
    pub outside: Option<Outside>,
}

/// Weights of the load formula, in percent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct LoadWeights {
    /// Processor.
    pub cpu: u8,
    /// Network.
    pub io: u8,
    /// Run queue.
    pub runq: u8,
    /// Memory.
    pub mem: u8,
    /// Paging.
    pub pag: u8,
    /// Filling of disks, for writers.
    pub space: u8,
}

/// `cms.sched`.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduling {
    /// `cpu io runq mem pag space`.
    pub weights: Setting<LoadWeights>,
    /// `fuzz`: loads this close count as equal.
    pub fuzz: Setting<u8>,
    /// `maxload`: with a higher load a server gets no clients.
    pub load_max: Setting<Option<u8>>,
    /// `refreset`: how often it is forgotten who was chosen how often.
    pub reset: Setting<Duration>,
    /// `gshr`: share of clients a meta manager shall send here, in percent; 0 says nothing.
    pub share: Setting<u8>,
    /// `gsdflt`: share of a manager that says nothing.
    pub share_default: Setting<u8>,
    /// `affinity`.
    pub affinity: Setting<Affinity>,
    /// `affpath`.
    pub affinity_part: Setting<AffinityPart>,
    /// `tryhname`: nodes are sent to others by name, not by address.
    pub try_names: Setting<bool>,
    /// `maxretries`.
    pub tried_max: Setting<Option<Limit<u32>>>,
    /// `nomultisrc`.
    pub one_source: Setting<Option<Limit<()>>>,
}

/// Free space, as percent of the largest partition and in bytes: the larger counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeSpace {
    /// Percent; 0 leaves it to `bytes`.
    pub percent: u8,
    /// Bytes.
    pub bytes: u64,
}

impl FreeSpace {
    /// What is enough again where only the least was said: a tenth more in whole MB, as 11g follow the 10g of the default.
    #[must_use]
    pub fn enough(self) -> Self {
        const MB: u64 = 1 << 20;
        let bytes = self.bytes.saturating_add(self.bytes / 10);
        Self { bytes: bytes.checked_next_multiple_of(MB).unwrap_or(bytes), ..self }
    }
}

/// `cms.space`.
#[derive(Clone, PartialEq, Debug)]
pub struct SpaceRules {
    /// `linger`: writers stay with a server for so many uses more than another had.
    pub linger: Setting<u32>,
    /// `recalc`: how often space is looked at.
    pub recalculate: Setting<Duration>,
    /// `min`: with less a server gets no writers.
    pub least: Setting<FreeSpace>,
    /// With as much it gets them again.
    pub enough: Setting<FreeSpace>,
    /// `mwfiles`: several copies of a file may be written.
    pub copies: Setting<bool>,
}

/// `cms.blacklist`, `cms.whitelist`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeList {
    /// It names those who may join, not those who may not.
    pub white: bool,
    /// The file; `None`: `cms.blacklist` (`cms.whitelist`) beside the configuration.
    pub path: Option<PathBuf>,
    /// How often it is looked at.
    pub check: Duration,
}

/// Where load figures come from (`cms.perf`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LoadSource {
    /// The node measures itself.
    #[default]
    Own,
    /// A program writes lines `runq cpu mem pag net`: program and arguments.
    Program(Vec<String>),
}

/// Operations on names that a program may do in a server's place (`cms.fsxeq`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationProgram {
    /// `chmod mkdir mkpath mv rm rmdir trunc`.
    pub operations: Vec<&'static str>,
    /// Program and arguments.
    pub program: Vec<String>,
}

/// `cms.dfs`: all servers see the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedFiles {
    /// Redirectors look themselves instead of asking a server (`lookup central`).
    pub central: bool,
    /// Clients are sent on without a look (`redirect immed`).
    pub unchecked: bool,
    /// Look-ups that a node begins in a second (`limit`); 0 is no limit.
    pub rate_max: u32,
    /// They are spread evenly over the second (`=`).
    pub rate_even: bool,
    /// The limit holds for redirectors alone.
    pub rate_central: bool,
    /// How long missing folders are remembered; zero: not at all.
    pub missing_hold: Duration,
    /// Look-ups that may wait for their turn (`qmax`); 0: two and a half times the limit.
    pub queue_max: u32,
    /// Servers a client may try for one file.
    pub retries: u32,
}

/// How operations on names are passed on to all servers (`ofs.forward`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum ForwardWay {
    /// Not: the client is sent to one server.
    #[default]
    Off,
    /// Passed on; the client is told at once that it is done.
    OneWay,
    /// Passed on; the client is told what came of it.
    TwoWay,
}

/// `ofs.forward`, for each operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Forwarding {
    /// Change of permissions.
    pub chmod: ForwardWay,
    /// New folders.
    pub mkdir: ForwardWay,
    /// Renaming.
    pub mv: ForwardWay,
    /// Removal of files.
    pub rm: ForwardWay,
    /// Removal of folders.
    pub rmdir: ForwardWay,
    /// Truncation.
    pub trunc: ForwardWay,
}

/// Values for the cluster. Taken from what cmsd reads, but for `request_wait` and `forwarding`, which xrootd reads.
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// `all.role`.
    pub role: Setting<Role>,
    /// `all.manager`: parents of servers and supervisors; a manager's own entry among them has its port.
    pub managers: Vec<Setting<ManagerAddress>>,
    /// `all.manager meta`: parents of managers; a meta manager's own entry has its port.
    pub meta_managers: Vec<Setting<ManagerAddress>>,
    /// `all.subcluster`: the manager that this manager's cluster is a part of.
    pub subcluster: Setting<Option<ManagerAddress>>,
    /// `xrd.port` as cmsd reads it, where that is not what xrootd reads: the cluster port of a manager.
    pub port: Setting<Option<Port>>,
    /// `cms.superport`: the cluster port of a supervisor.
    pub supervisor_port: Setting<Port>,
    /// `xrd.allow` as cmsd reads it: who may connect to the cluster port; empty lets everybody in.
    pub connect: Vec<Setting<HostPattern>>,
    /// `cms.allow`: who may join; empty lets everybody in.
    pub allow: Vec<Setting<HostPattern>>,
    /// `cms.blacklist`, `cms.whitelist`.
    pub node_list: Setting<Option<NodeList>>,
    /// `cms.cidtag`.
    pub tag: Setting<Option<String>>,
    /// `cms.vnid`.
    pub virtual_id: Setting<Option<String>>,
    /// `cms.delay`.
    pub delay: Delays,
    /// `cms.sched`.
    pub sched: Scheduling,
    /// `cms.space`.
    pub space: SpaceRules,
    /// `cms.fxhold`: how long a location is remembered.
    pub location_hold: Setting<Duration>,
    /// `cms.fxhold noloc`: how long "nobody has it" is believed; `None`: as long as a location.
    pub nowhere_hold: Setting<Option<Duration>>,
    /// `cms.ping`.
    pub ping: Setting<Duration>,
    /// `cms.ping usage`: pings between two questions for loads.
    pub ping_usage: Setting<u32>,
    /// `cms.perf`.
    pub load_source: Setting<LoadSource>,
    /// `cms.perf int`.
    pub load_interval: Setting<Duration>,
    /// `cms.dfs`; `None`: every server has files of its own.
    pub shared: Setting<Option<SharedFiles>>,
    /// `cms.fsxeq`.
    pub programs: Vec<Setting<OperationProgram>>,
    /// `cms.conwait`: told to clients that nobody can be asked for.
    pub contact_wait: Setting<Duration>,
    /// `ofs.forward`.
    pub forwarding: Setting<Forwarding>,
    /// `cms.trace`.
    pub trace: Setting<Trace>,
}

impl Cluster {
    /// True if the process is a node of a cluster: not a server that stands alone.
    #[must_use]
    pub fn takes_part(&self) -> bool {
        self.role.redirects() || !self.managers.is_empty()
    }

    /// True of a redirector that sees the files its servers share, and looks itself (`cms.dfs lookup central`).
    #[must_use]
    pub fn looks_itself(&self) -> bool {
        let shared = self.shared.as_ref().is_some_and(|shared| shared.central && !shared.unchecked);
        shared && self.role.redirects() && *self.role != Role::MetaManager
    }

    /// The parents that the role looks for.
    #[must_use]
    pub fn parents(&self) -> &[Setting<ManagerAddress>] {
        match *self.role {
            Role::MetaManager => &[],
            Role::Manager => &self.meta_managers,
            Role::Supervisor | Role::Server => &self.managers,
        }
    }

    /// Managers of the same level, the node's own entry among them: none for roles that are no roots.
    #[must_use]
    pub fn peers(&self) -> &[Setting<ManagerAddress>] {
        match *self.role {
            Role::MetaManager => &self.meta_managers,
            Role::Manager => &self.managers,
            Role::Supervisor | Role::Server => &[],
        }
    }
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Default for Delays {
    fn default() -> Self {
        Self {
            startup: Setting::default_of(seconds(90)),
            quorum: Setting::default_of(Quorum::Percent(80)),
            service: Setting::default_of(seconds(15)),
            lookup: Setting::default_of(seconds(5)),
            silence: Setting::default_of(None),
            answers: Setting::default_of(0),
            hold: Setting::default_of(Duration::from_millis(178)),
            write_queue: Setting::default_of(2),
            suspend: Setting::default_of(seconds(30)),
            full: Setting::default_of(Wait::ByRole),
            overload: Setting::default_of(Wait::ByRole),
            drop: Setting::default_of(None),
            stagers: Setting::default_of(3),
        }
    }
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            weights: Setting::default_of(LoadWeights::default()),
            fuzz: Setting::default_of(20),
            load_max: Setting::default_of(None),
            reset: Setting::default_of(seconds(3600)),
            share: Setting::default_of(0),
            share_default: Setting::default_of(0),
            affinity: Setting::default_of(Affinity::default()),
            affinity_part: Setting::default_of(AffinityPart::All),
            try_names: Setting::default_of(true),
            tried_max: Setting::default_of(None),
            one_source: Setting::default_of(None),
        }
    }
}

impl Default for SpaceRules {
    fn default() -> Self {
        Self {
            linger: Setting::default_of(0),
            recalculate: Setting::default_of(seconds(12)),
            least: Setting::default_of(FreeSpace { percent: 2, bytes: 10 << 30 }),
            enough: Setting::default_of(FreeSpace { percent: 5, bytes: 11 << 30 }),
            copies: Setting::default_of(false),
        }
    }
}

impl Default for SharedFiles {
    fn default() -> Self {
        Self {
            central: false,
            unchecked: false,
            rate_max: 0,
            rate_even: false,
            rate_central: false,
            missing_hold: Duration::ZERO,
            queue_max: 0,
            retries: 2,
        }
    }
}

impl Default for Cluster {
    fn default() -> Self {
        Self {
            role: Setting::default_of(Role::Server),
            managers: Vec::new(),
            meta_managers: Vec::new(),
            subcluster: Setting::default_of(None),
            port: Setting::default_of(None),
            supervisor_port: Setting::default_of(Port::Any),
            connect: Vec::new(),
            allow: Vec::new(),
            node_list: Setting::default_of(None),
            tag: Setting::default_of(None),
            virtual_id: Setting::default_of(None),
            delay: Delays::default(),
            sched: Scheduling::default(),
            space: SpaceRules::default(),
            location_hold: Setting::default_of(seconds(8 * 3600)),
            nowhere_hold: Setting::default_of(None),
            ping: Setting::default_of(seconds(60)),
            ping_usage: Setting::default_of(10),
            load_source: Setting::default_of(LoadSource::Own),
            load_interval: Setting::default_of(seconds(180)),
            shared: Setting::default_of(None),
            programs: Vec::new(),
            contact_wait: Setting::default_of(seconds(10)),
            forwarding: Setting::default_of(Forwarding::default()),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
