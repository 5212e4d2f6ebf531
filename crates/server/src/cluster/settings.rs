//! Settings of the cluster part of a server, filled from the configuration, or by hand in a test.
//!
//! They are plain values. The settings of the pure machines of `cluster` have the types of that
//! crate. The other settings are for their drivers, which connect to other nodes and answer
//! clients.

use super::cluster_key::ClusterKey;
use super::health::HealthSettings;
use base::LogicalPath;
use cluster::tree::{AcceptorRole, Blacklist, ChildSettings, ParentSettings};
use cluster::{CacheSettings, LookupLimits, Policy, ResolveSettings};
use config::{NodeRole, OperationCommand};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

/// Default for the maximum number of bytes that wait for one slow node before its connection is
/// closed. It has room for two of the longest frames for each question that a parent may ask in a
/// burst.
pub const OUTBOX_BYTES_MAX: usize = 8 << 20;

/// Returns the role of a node towards nodes that log in to it, in a cluster that is not one of proxies.
pub const fn acceptor_role(role: NodeRole) -> AcceptorRole {
    match role {
        NodeRole::MetaManager => AcceptorRole::MetaManager,
        NodeRole::Manager => AcceptorRole::Manager,
        NodeRole::Supervisor => AcceptorRole::Supervisor,
        NodeRole::Server => AcceptorRole::Server,
    }
}

/// The endpoint to which other nodes connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Listen {
    /// The address; `None`: all addresses.
    pub address: Option<IpAddr>,
    /// The port; 0: selected by the kernel.
    pub port: u16,
}

/// The settings of a cluster node.
#[derive(Clone)]
pub struct Settings {
    /// The role of the node.
    pub role: NodeRole,
    /// The node belongs to a cluster of proxies, each of which has all files.
    pub of_proxies: bool,
    /// The exports, for parents that ask a proxy for a file.
    pub exports: Vec<LogicalPath>,
    /// Name of the instance, for display.
    pub instance: Option<String>,
    /// The endpoint to which children connect. It is only used by roles that have children; a
    /// server has no such port.
    pub listen: Listen,
    /// Settings of the tree machine towards children; `None` for a server. A port 0 in its address
    /// stands for the port that was opened.
    pub parent: Option<ParentSettings>,
    /// Settings of the tree machine towards parents, one for each cluster to which the node
    /// belongs; empty for a manager without meta manager. In the login, a data port 0 stands for
    /// the port for clients, and a cluster port 0 for the port that was opened. The mode is
    /// complete except for `suspend`.
    pub children: Vec<ChildSettings>,
    /// The policy that selects a child for a client.
    pub policy: Policy,
    /// Settings of the location machine. The driver sets `has_parents` and `supervises`.
    pub resolve: ResolveSettings,
    /// Settings of the cache of the location machine.
    pub cache: CacheSettings,
    /// The hosts that may connect (`cms.allow`); `None`: all.
    pub admission: Option<net::Admission>,
    /// The key by which nodes authenticate (`scalla.clusterkey`); `None`: they do not.
    pub key: Option<Arc<ClusterKey>>,
    /// The nodes that may not join, according to the file at the start.
    pub blacklist: Blacklist,
    /// Addresses by which clients know this node. A child at one of them would bring clients back
    /// here.
    pub own_addresses: Vec<SocketAddr>,
    /// The host name given to clients for children that connect from this host over its loopback
    /// address. `None`: the loopback address, which only clients on this host can use.
    pub own_name: Option<Arc<str>>,
    /// Maximum number of bytes that wait for one slow node. Its connection is closed if there are
    /// more.
    pub outbox_bytes_max: usize,
    /// File in which a node records the address of its parent, so that it tries that one first
    /// after a restart; `None`: not recorded.
    pub place_file: Option<PathBuf>,
    /// The measurements of this node, and the list of nodes that may join.
    pub health: HealthSettings,
    /// Programs that perform operations on names instead of a server (`cms.fsxeq`).
    pub programs: Vec<OperationCommand>,
    /// The directory on the disk of a server that corresponds to `/`.
    pub local_root: PathBuf,
    /// The translation of logical paths to paths below `local_root`.
    pub name_rules: Vec<config::NameRule>,
    /// The name changes that a redirector forwards to all servers, instead of redirecting the
    /// client to one.
    pub forwarding: config::Forwarding,
    /// Limits for look-ups of paths on behalf of parents, or of the clients of a redirector.
    pub looks: LookupLimits,
    /// Maximum number of paths that a server reports to a new parent, so that a restarted manager
    /// knows where files are. With 0 the parent has to ask.
    pub inventory_max: usize,
    /// Set if names appear on this server only through it, so that parents need not ask for names
    /// that it has not reported.
    pub complete_inventory: bool,
}

/// Default for the maximum number of paths reported to a new parent: about 100 MB.
pub const INVENTORY_MAX: usize = 1_000_000;

impl Settings {
    /// Returns the role of the node towards nodes that log in to it.
    pub fn acceptor(&self) -> AcceptorRole {
        match acceptor_role(self.role) {
            AcceptorRole::Manager if self.of_proxies => AcceptorRole::ProxyManager,
            AcceptorRole::Supervisor if self.of_proxies => AcceptorRole::ProxySupervisor,
            role => role,
        }
    }

    /// Reports whether a redirector sees the files that all its servers share, and looks them up
    /// itself (`cms.dfs lookup central`).
    pub fn looks_itself(&self) -> bool {
        self.role.redirects() && self.policy.shared.is_some_and(|shared| shared.central && !shared.unchecked)
    }

    /// Returns the default settings of a role. The caller has to fill in the two sides of the tree
    /// machine.
    pub fn new(role: NodeRole) -> Self {
        Self {
            role,
            of_proxies: false,
            exports: Vec::new(),
            instance: None,
            listen: Listen::default(),
            parent: None,
            children: Vec::new(),
            policy: Policy::default(),
            resolve: ResolveSettings::default(),
            cache: CacheSettings::default(),
            admission: None,
            key: None,
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
            name_rules: Vec::new(),
            forwarding: config::Forwarding::default(),
            looks: LookupLimits::default(),
        }
    }
}
