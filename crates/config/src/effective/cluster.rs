//! Values of the cluster (`cms.` and parts of `all.`): role, managers, delays, selection, space,
//! health.
//!
//! One file is read twice, as xrootd and as cmsd, because the process is both. These values are
//! those that cmsd reads, with the exceptions that [`ClusterConfig`] names.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use super::cluster_key::ClusterKeyConfig;
use super::forwarding::Forwarding;
use super::network::{HostPattern, Port};
use super::process::Trace;
use crate::setting::Setting;

/// Default port of managers on a command line.
pub const CLUSTER_PORT_DEFAULT: u16 = 1213;
/// Maximum number of managers of one node.
pub const MANAGERS_MAX: usize = 16;
/// Maximum length of a tag before a cluster id (`cms.cidtag`), in characters.
pub const CLUSTER_TAG_MAX: usize = 16;
/// Maximum length of an address-independent node id (`cms.vnid`), in characters.
pub const VIRTUAL_ID_MAX: usize = 64;

/// Role of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum NodeRole {
    /// Root above managers.
    MetaManager,
    /// Root of a tree; its parents, if any, are meta managers.
    Manager,
    /// Inner node.
    Supervisor,
    /// Leaf with files. Without a manager it is standalone.
    #[default]
    Server,
}

impl NodeRole {
    /// Returns the name in `all.role`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::MetaManager => "meta manager",
            Self::Manager => "manager",
            Self::Supervisor => "supervisor",
            Self::Server => "server",
        }
    }

    /// Reports whether the role redirects clients: it has children and no files of its own.
    #[must_use]
    pub const fn redirects(self) -> bool {
        !matches!(self, Self::Server)
    }
}

/// A manager as configured: `host[+]:port[%instance][@site]`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ManagerAddress {
    /// Name or address; an IPv6 address without brackets.
    pub host: String,
    /// Set if each address of the name is a manager (`+`).
    pub every_address: bool,
    /// Port of the manager.
    pub port: u16,
    /// Instance name that the manager must have (`%`).
    pub instance: Option<String>,
    /// Site of the manager (`@`). A node belongs to the tree of each site.
    pub site: Option<String>,
    /// Redirectors distribute requests over the managers (`all`) instead of using the first that
    /// answers (`any`).
    pub spread: bool,
}

impl ManagerAddress {
    /// Returns a manager without options.
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

/// Number of children required for service (`cms.delay servers`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Quorum {
    /// An absolute number.
    Count(u32),
    /// A percentage of the children that have joined.
    Percent(u8),
}

/// A wait whose default depends on its use.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum WaitTime {
    /// The default of the role.
    #[default]
    ByRole,
    /// The time of one round of load reports (`*`).
    ByReports,
    /// A fixed time.
    Time(Duration),
}

/// `cms.delay`.
#[derive(Clone, PartialEq, Debug)]
pub struct Delays {
    /// `startup`: time after the start without announcement. Ours announces at quorum.
    pub startup: Setting<Duration>,
    /// `servers`.
    pub quorum: Setting<Quorum>,
    /// `service`: wait sent to clients while the quorum is not reached.
    pub service: Setting<Duration>,
    /// `lookup`: wait sent to clients if the answer of a query cannot be awaited.
    pub lookup: Setting<Duration>,
    /// `qdl`: query timeout of a child; `None` means `lookup`.
    pub silence: Setting<Option<Duration>>,
    /// `qdn`: number of answers that a meta manager waits for.
    pub answers: Setting<u32>,
    /// `hold`: time for which requests are held back, as sent to children.
    pub hold: Setting<Duration>,
    /// `rw`: write requests that may be held back; 0 all, 1 except plain updates, 2 none.
    pub write_queue: Setting<u8>,
    /// `suspend`: wait sent to clients whose servers are suspended.
    pub suspend: Setting<Duration>,
    /// `full`: wait sent to clients whose servers are full; `ByRole` means an error.
    pub full: Setting<WaitTime>,
    /// `overload`: wait sent to clients whose servers are overloaded; `ByRole` means a round of
    /// reports.
    pub overload: Setting<WaitTime>,
    /// `drop`: time for which the slot of a lost child is kept. `None` means 10 minutes, or 0 for a
    /// supervisor.
    pub drop: Setting<Option<Duration>>,
    /// `nostage`: number of servers that could stage a file after which it is not staged again.
    pub stagers: Setting<u32>,
}

/// Strength of the affinity between equal paths and a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AffinityKind {
    /// No affinity.
    #[default]
    None,
    /// Applies if no other criterion excludes it.
    Weak,
    /// Applies unless the server is much busier than others.
    Strong,
    /// Applies always.
    Strict,
}

impl AffinityKind {
    /// Returns the name in `cms.sched affinity`.
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
pub struct SchedulingAffinity {
    /// Strength of the affinity.
    pub kind: AffinityKind,
    /// The preference of a client takes precedence (`default`).
    pub by_client: bool,
    /// Servers are selected at random, weighted by load.
    pub randomized: bool,
}

/// `cms.sched affpath`: the part of a path that is compared.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AffinityPart {
    /// The whole path.
    #[default]
    All,
    /// This number of components from the left.
    First(u32),
    /// This number of components from the right.
    Last(u32),
}

/// `host:port` outside the cluster, for clients that cannot be served in it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OutsideAddress {
    /// Name or address.
    pub host: String,
    /// Port.
    pub port: u16,
}

/// A limit on the attempts of clients, and the target beyond it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Limit<T> {
    /// The limit.
    pub limit: T,
    /// Target of the redirect; `None` means an error.
    pub outside: Option<OutsideAddress>,
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
    /// Disk usage, for writers.
    pub space: u8,
}

/// `cms.sched`.
#[derive(Clone, PartialEq, Debug)]
pub struct Scheduling {
    /// `cpu io runq mem pag space`.
    pub weights: Setting<LoadWeights>,
    /// `fuzz`: load difference up to which servers count as equal.
    pub fuzz: Setting<u8>,
    /// `maxload`: load above which a server receives no clients.
    pub load_max: Setting<Option<u8>>,
    /// `refreset`: interval at which selection counts are reset.
    pub reset: Setting<Duration>,
    /// `gshr`: share of clients that a meta manager sends here, in percent; 0 means unspecified.
    pub share: Setting<u8>,
    /// `gsdflt`: share of a manager without `gshr`.
    pub share_default: Setting<u8>,
    /// `affinity`.
    pub affinity: Setting<SchedulingAffinity>,
    /// `affpath`.
    pub affinity_part: Setting<AffinityPart>,
    /// `tryhname`: nodes are sent to others by name instead of address.
    pub try_names: Setting<bool>,
    /// `maxretries`.
    pub tried_max: Setting<Option<Limit<u32>>>,
    /// `nomultisrc`.
    pub one_source: Setting<Option<Limit<()>>>,
}

/// Free space as a percentage of the largest partition and in bytes. The larger one applies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FreeSpace {
    /// Percentage; 0 leaves it to `bytes`.
    pub percent: u8,
    /// Bytes.
    pub bytes: u64,
}

impl FreeSpace {
    /// Returns the recovery limit if only the minimum is given: a tenth more in whole MB, like the
    /// 11g for the default of 10g.
    #[must_use]
    pub fn enough(self) -> Self {
        const MB: u64 = 1 << 20;
        let bytes = self.bytes.saturating_add(self.bytes / 10);
        Self { bytes: bytes.checked_next_multiple_of(MB).unwrap_or(bytes), ..self }
    }
}

/// `cms.space`.
#[derive(Clone, PartialEq, Debug)]
pub struct SelectionSpace {
    /// `linger`: number of uses by which writers stay with a server longer than with another.
    pub linger: Setting<u32>,
    /// `recalc`: interval at which free space is measured.
    pub recalculate: Setting<Duration>,
    /// `min`: free space below which a server receives no writers.
    pub least: Setting<FreeSpace>,
    /// Free space at which it receives them again.
    pub enough: Setting<FreeSpace>,
    /// `mwfiles`: allows several writable copies of a file.
    pub copies: Setting<bool>,
}

/// `cms.blacklist`, `cms.whitelist`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NodeList {
    /// Set if the list names allowed nodes, otherwise it names excluded ones.
    pub white: bool,
    /// The file; `None` means `cms.blacklist` (`cms.whitelist`) next to the configuration.
    pub path: Option<PathBuf>,
    /// Interval at which the file is checked.
    pub check: Duration,
}

/// Source of load values (`cms.perf`).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LoadProgramSetting {
    /// The node measures itself.
    #[default]
    Own,
    /// A program that writes lines `runq cpu mem pag net`: program and arguments.
    Program(Vec<String>),
}

/// Operations on names that a program executes in place of the server (`cms.fsxeq`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationCommand {
    /// `chmod mkdir mkpath mv rm rmdir trunc`.
    pub operations: Vec<&'static str>,
    /// Program and arguments.
    pub program: Vec<String>,
}

/// `cms.dfs`: all servers share the same files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedFilesConfig {
    /// Redirectors look up files themselves instead of querying a server (`lookup central`).
    pub central: bool,
    /// Clients are redirected without a look-up (`redirect immed`).
    pub unchecked: bool,
    /// The configuration asks for a look-up before a redirect (`redirect verify`), which is the default.
    pub verified: bool,
    /// Rate limit of look-ups per second of a node (`limit`); 0 means none.
    pub rate_max: u32,
    /// Spreads the look-ups evenly over the second (`=`).
    pub rate_even: bool,
    /// Applies the limit to redirectors only.
    pub rate_central: bool,
    /// Time for which missing directories are cached; zero disables it.
    pub missing_hold: Duration,
    /// Maximum number of queued look-ups (`qmax`); 0 means two and a half times the limit.
    pub queue_max: u32,
    /// Maximum number of servers that a client may try for one file.
    pub retries: u32,
}

/// Values of the cluster, as cmsd reads them. `contact_wait` and `forwarding` are those of xrootd.
#[derive(Clone, PartialEq, Debug)]
pub struct ClusterConfig {
    /// `all.role`.
    pub role: Setting<NodeRole>,
    /// The node belongs to a cluster of proxies (`all.role proxy …`).
    pub of_proxies: bool,
    /// `all.manager`: parents of servers and supervisors. The own entry of a manager has its port.
    pub managers: Vec<Setting<ManagerAddress>>,
    /// `all.manager proxy`: what `managers` is for a node of a cluster of proxies, which takes these in their place.
    pub proxy_managers: Vec<Setting<ManagerAddress>>,
    /// `all.manager meta`: parents of managers. The own entry of a meta manager has its port.
    pub meta_managers: Vec<Setting<ManagerAddress>>,
    /// `all.subcluster`: the manager whose cluster contains this one.
    pub subcluster: Setting<Option<ManagerAddress>>,
    /// `xrd.port` of cmsd if it differs from that of xrootd: the cluster port of a manager.
    pub port: Setting<Option<Port>>,
    /// `cms.superport`: the cluster port of a supervisor.
    pub supervisor_port: Setting<Port>,
    /// `xrd.allow` of cmsd: hosts that may connect to the cluster port; empty allows all.
    pub connect: Vec<Setting<HostPattern>>,
    /// `cms.allow`: hosts that may join; empty allows all.
    pub allow: Vec<Setting<HostPattern>>,
    /// `scalla.clusterkey`; `None` means that nodes do not authenticate.
    pub key: Setting<Option<ClusterKeyConfig>>,
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
    pub space: SelectionSpace,
    /// `cms.fxhold`: time for which a location is cached.
    pub location_hold: Setting<Duration>,
    /// `cms.fxhold noloc`: time for which a missing file is cached; `None` means that of a
    /// location.
    pub nowhere_hold: Setting<Option<Duration>>,
    /// `cms.ping`.
    pub ping: Setting<Duration>,
    /// `cms.ping usage`: number of pings between two load queries.
    pub ping_usage: Setting<u32>,
    /// `cms.perf`.
    pub load_source: Setting<LoadProgramSetting>,
    /// `cms.perf int`.
    pub load_interval: Setting<Duration>,
    /// `cms.dfs`; `None` means that each server has files of its own.
    pub shared: Setting<Option<SharedFilesConfig>>,
    /// `cms.fsxeq`.
    pub programs: Vec<Setting<OperationCommand>>,
    /// `cms.conwait`: wait sent to clients of a redirector without a manager.
    pub contact_wait: Setting<Duration>,
    /// `ofs.forward`.
    pub forwarding: Setting<Forwarding>,
    /// `cms.trace`.
    pub trace: Setting<Trace>,
}

impl ClusterConfig {
    /// Reports whether the process is a node of a cluster and not a standalone server.
    #[must_use]
    pub fn is_cluster_node(&self) -> bool {
        self.role.redirects() || !self.managers.is_empty()
    }

    /// Returns the role in the form of `all.role`.
    #[must_use]
    pub fn role_name(&self) -> String {
        if self.of_proxies { format!("proxy {}", self.role.name()) } else { self.role.name().to_owned() }
    }

    /// Reports whether a redirector sees the shared files of its servers and looks them up itself
    /// (`cms.dfs lookup central`).
    #[must_use]
    pub fn looks_itself(&self) -> bool {
        let shared = self.shared.as_ref().is_some_and(|shared| shared.central && !shared.unchecked);
        shared && self.role.redirects() && *self.role != NodeRole::MetaManager
    }

    /// Returns the parents of the role.
    #[must_use]
    pub fn parents(&self) -> &[Setting<ManagerAddress>] {
        match *self.role {
            NodeRole::MetaManager => &[],
            NodeRole::Manager => &self.meta_managers,
            NodeRole::Supervisor | NodeRole::Server => &self.managers,
        }
    }

    /// Returns the managers of the same level, including the node's own entry. Roles that are not
    /// roots have none.
    #[must_use]
    pub fn peers(&self) -> &[Setting<ManagerAddress>] {
        match *self.role {
            NodeRole::MetaManager => &self.meta_managers,
            NodeRole::Manager => &self.managers,
            NodeRole::Supervisor | NodeRole::Server => &[],
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
            full: Setting::default_of(WaitTime::ByRole),
            overload: Setting::default_of(WaitTime::ByRole),
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
            affinity: Setting::default_of(SchedulingAffinity::default()),
            affinity_part: Setting::default_of(AffinityPart::All),
            try_names: Setting::default_of(true),
            tried_max: Setting::default_of(None),
            one_source: Setting::default_of(None),
        }
    }
}

impl Default for SelectionSpace {
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

impl Default for SharedFilesConfig {
    fn default() -> Self {
        Self {
            central: false,
            unchecked: false,
            verified: false,
            rate_max: 0,
            rate_even: false,
            rate_central: false,
            missing_hold: Duration::ZERO,
            queue_max: 0,
            retries: 2,
        }
    }
}

impl Default for ClusterConfig {
    fn default() -> Self {
        Self {
            role: Setting::default_of(NodeRole::Server),
            of_proxies: false,
            managers: Vec::new(),
            proxy_managers: Vec::new(),
            meta_managers: Vec::new(),
            subcluster: Setting::default_of(None),
            port: Setting::default_of(None),
            supervisor_port: Setting::default_of(Port::Any),
            connect: Vec::new(),
            allow: Vec::new(),
            key: Setting::default_of(None),
            node_list: Setting::default_of(None),
            tag: Setting::default_of(None),
            virtual_id: Setting::default_of(None),
            delay: Delays::default(),
            sched: Scheduling::default(),
            space: SelectionSpace::default(),
            location_hold: Setting::default_of(seconds(8 * 3600)),
            nowhere_hold: Setting::default_of(None),
            ping: Setting::default_of(seconds(60)),
            ping_usage: Setting::default_of(10),
            load_source: Setting::default_of(LoadProgramSetting::Own),
            load_interval: Setting::default_of(seconds(180)),
            shared: Setting::default_of(None),
            programs: Vec::new(),
            contact_wait: Setting::default_of(seconds(10)),
            forwarding: Setting::default_of(Forwarding::default()),
            trace: Setting::default_of(Trace::default()),
        }
    }
}
