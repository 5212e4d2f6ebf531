//! What the cluster part of a server is told at its start: filled from the configuration, or by hand in a test.
//!
//! Plain values. What the pure machines of `cluster` are told stands here in their own types; the rest is what their
//! driver needs to reach other nodes and to answer clients.

use super::health::HealthSettings;
use cluster::tree::{Acceptor, Blacklist, ChildSettings, ParentSettings};
use cluster::{CacheSettings, LookRules, Policy, ResolveSettings};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Bytes that wait for one slow node before its connection is given up, unless configured: two of the longest frames for
/// each of the questions a parent may ask in a burst.
pub const OUTBOX_BYTES_MAX: usize = 8 << 20;

/// What a node of the cluster is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Role {
    /// Root above managers: clients are sent to managers.
    MetaManager,
    /// Root of a tree; its parents, if any, are meta managers.
    Manager,
    /// Inner node of a tree: clients are sent to its children.
    Supervisor,
    /// Leaf: it has the files itself.
    Server,
}

impl Role {
    /// Whether clients are sent on from here: it has children and no files.
    pub const fn redirects(self) -> bool {
        !matches!(self, Self::Server)
    }

    /// What this node is to nodes that log in to it. A proxy's is for who configures it to say.
    pub const fn acceptor(self) -> Acceptor {
        match self {
            Self::MetaManager => Acceptor::MetaManager,
            Self::Manager => Acceptor::Manager,
            Self::Supervisor => Acceptor::Supervisor,
            Self::Server => Acceptor::Server,
        }
    }
}

/// Where other nodes connect to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listen {
    /// The address; `None`: all.
    pub address: Option<IpAddr>,
    /// The port; 0: the kernel picks one.
    pub port: u16,
}

/// A program that does operations in the server's place (`cms.fsxeq`). It is called with the operation, its mode or size
/// where it has one, and the local paths: `program… chmod 644 /local/path`, `program… mv /local/old /local/new`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OperationProgram {
    /// Of `chmod mkdir mkpath mv rm rmdir trunc`.
    pub operations: Vec<&'static str>,
    /// Program and arguments.
    pub program: Vec<String>,
}

/// What the cluster part of a server is told.
#[derive(Clone)]
pub struct Settings {
    /// What the node is.
    pub role: Role,
    /// Name of the instance, for people.
    pub instance: Option<String>,
    /// Where children connect to. Only for roles that have children; a server has no such port.
    pub listen: Listen,
    /// For the children's side of the tree machine; `None` for a server. A port 0 in its address stands for the one that
    /// was opened.
    pub parent: Option<ParentSettings>,
    /// For the parents' side, one for each cluster the node belongs to; none for a manager without meta manager. In the
    /// login a data port 0 stands for the one clients are served on, a cluster port 0 for the one that was opened. The
    /// mode is complete but for `suspend`.
    pub children: Vec<ChildSettings>,
    /// Which child a client is sent to.
    pub policy: Policy,
    /// The numbers of the location machine; `has_parents` and `supervises` are set by the driver.
    pub resolve: ResolveSettings,
    /// The numbers of its cache.
    pub cache: CacheSettings,
    /// Which hosts may connect (`cms.allow`); `None`: all.
    pub admission: Option<net::Admission>,
    /// Who may not join, as the file said at the start.
    pub blacklist: Blacklist,
    /// Addresses clients know this node by: a child at one of them would bring them back here.
    pub own_addresses: Vec<SocketAddr>,
    /// What clients are told of children that connect from this very host over its loopback address: a name others can
    /// use. `None`: the loopback address, which only clients on this host can use.
    pub own_name: Option<Arc<str>>,
    /// Bytes that may wait for one slow node; beyond, its connection is closed.
    pub outbox_bytes_max: usize,
    /// File in which a node keeps where its place was, so that it asks there first after a restart; `None`: nowhere.
    pub place_file: Option<PathBuf>,
    /// What is measured about this node, and the list of who may join.
    pub health: HealthSettings,
    /// Programs that do operations on names in a server's place (`cms.fsxeq`).
    pub programs: Vec<OperationProgram>,
    /// What `/` stands for on a server's disk.
    pub local_root: PathBuf,
    /// Which changes of names a redirector passes on to all servers, instead of sending the client to one.
    pub forwarding: config::Forwarding,
    /// How many paths are looked up when parents, or a redirector's clients, ask for them.
    pub looks: LookRules,
    /// Paths a server tells a new parent it has, so that a restarted manager knows where files are; 0: it is asked.
    pub inventory_max: usize,
    /// Whether nothing comes to exist on this server but through it, so that parents need not ask for names it has not told.
    pub complete_inventory: bool,
}

/// Paths told to a new parent, unless configured: about 100 MB of them.
pub const INVENTORY_MAX: usize = 1_000_000;

impl Settings {
    /// Whether a redirector sees the files that all its servers share, and looks itself (`cms.dfs lookup central`).
    pub fn looks_itself(&self) -> bool {
        self.role.redirects() && self.policy.shared.is_some_and(|shared| shared.central && !shared.unchecked)
    }

    /// Those of a node about which nothing special is configured. The sides of the tree machine are to be filled in.
    pub fn new(role: Role) -> Self {
        Self {
            role,
            instance: None,
            listen: Listen::default(),
            parent: None,
            children: Vec::new(),
            policy: Policy::default(),
            resolve: ResolveSettings::default(),
            cache: CacheSettings::default(),
            admission: None,
            blacklist: Blacklist::default(),
            own_addresses: Vec::new(),
            own_name: None,
            outbox_bytes_max: OUTBOX_BYTES_MAX,
            place_file: None,
            inventory_max: INVENTORY_MAX,
            complete_inventory: false,
            health: HealthSettings::default(),
            programs: Vec::new(),
            local_root: PathBuf::from("/"),
            forwarding: config::Forwarding::default(),
            looks: LookRules::default(),
        }
    }
}
