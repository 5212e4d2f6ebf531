//! The state of a node of a cluster and of its children, in the form that is reported to people and
//! programs.
//!
//! It is reported over the admin socket and at the cluster port (`stats`), so that the whole tree
//! can be walked from any node.

use super::node_state::NodeState;
use super::presence::ChildPresence;
use super::settings::Settings;
use super::tree_driver::TreeDriver;
use crate::VERSION;
use cluster::tree::{ClusterMember, LoadReport, Members, Membership, SpaceReport};
use cluster::{LocationResolver, Newness, Slot};
use serde::{Deserialize, Serialize};
use std::rc::Rc;
use std::time::Duration;
use wire::Decode;
use wire::cms::login;

/// Maximum size of the answer to `stats`, above which the paths of the children are left out. A
/// cell of 64 children takes a third of it.
pub(super) const TEXT_BYTES_MAX: usize = 60_000;

/// Maximum age of the cached text, because writing it takes hundreds of microseconds of the cluster
/// thread.
const TEXT_AGE_MAX: Duration = Duration::from_millis(250);

/// A text that is rewritten once it is too old.
#[derive(Default)]
pub(super) struct CachedText {
    written: Option<(Duration, Rc<str>)>,
}

impl CachedText {
    /// Returns the text, which is at most [`TEXT_AGE_MAX`] old.
    pub(super) fn text(&mut self, now: Duration, write: impl FnOnce() -> String) -> Rc<str> {
        match &self.written {
            Some((at, text)) if now < *at + TEXT_AGE_MAX => text.clone(),
            _ => {
                let text: Rc<str> = write().into();
                self.written = Some((now, text.clone()));
                text
            }
        }
    }
}

/// A node.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct NodeStatus {
    /// `server`, `supervisor`, `manager`, `meta manager`.
    pub role: String,
    /// The system id.
    pub id: String,
    /// The host name that it reports.
    pub host: String,
    /// Name of its instance, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of its site (`all.sitename`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Name and version of its program.
    pub version: String,
    /// The address at which other nodes log in, as seen by them; `None` for a server.
    pub cluster_address: Option<String>,
    /// The port to which clients connect.
    pub data_port: u16,
    /// The word for its [`NodeState`].
    pub state: String,
    /// Seconds since its start. XRootD nodes do not report it.
    pub uptime_seconds: Option<u64>,
    /// The nodes to which it is logged in, by configured name or as named by another node.
    pub parents: Vec<String>,
    /// The managers named by its parents: the parents of its parents, or its parents themselves.
    #[serde(default)]
    pub managers: Vec<String>,
    /// The managers that it tries to join, each with the obstacle.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sought: Vec<String>,
    /// The space; for a parent the space of its children.
    pub space: SpaceStatus,
    /// The children; empty for a server.
    pub children: Vec<ChildStatus>,
    /// The number of nodes whose login waits for a free slot.
    pub waiting: u64,
    /// The number of redirectors that are logged in. They belong to other programs, because this
    /// process is its own redirector.
    pub redirectors: u64,
    /// The location cache; `None` for a server.
    pub cache: Option<LocationCacheStatus>,
}

/// A child, as known to its parent.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct ChildStatus {
    /// The slot, 0 to 63.
    pub slot: u8,
    /// The role towards its parent.
    pub role: String,
    /// The system id.
    pub id: String,
    /// The host name that it reports.
    pub host: String,
    /// Name of its instance, if it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Name of its site, if it reports one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub site: Option<String>,
    /// Name and version of its program, or its protocol.
    pub version: String,
    /// The address to which clients are redirected.
    pub address: String,
    /// The address at which nodes below it log in; `None` for a server.
    pub cluster_address: Option<String>,
    /// The word for its [`NodeState`].
    pub state: String,
    /// Set until it is connected to all its managers. It gets no new files before.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub newcomer: bool,
    /// The files and clients that are left at a draining server, if it was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<Activity>,
    /// State of its inventory. `complete`: names that are not in its list are not looked up there
    /// (`scalla.inventory complete`). `listed`: it has sent the names of the files that it had when
    /// it joined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inventory: Option<String>,
    /// The number of names that it listed when it joined, if it lists them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub names: Option<u64>,
    /// Seconds since it joined, or since its connection was lost. XRootD parents do not report it.
    pub age_seconds: Option<u64>,
    /// The load.
    pub load: LoadStatus,
    /// The space.
    pub space: SpaceStatus,
    /// The exports of the child, one line each with rights and prefix.
    pub paths: Vec<String>,
    /// The status reported by the child itself, if it has children and was queried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<Box<NodeStatus>>,
}

/// The use of a server that prevents it from being drained.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Activity {
    /// Number of open files, counting each handle.
    pub open_files: u64,
    /// Number of files among them that are open for writing. Nodes of earlier versions do not count
    /// them.
    #[serde(default)]
    pub open_for_writing: u64,
    /// Number of client connections.
    pub clients: u64,
}

impl std::fmt::Display for Activity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let plural = |count: u64| if count == 1 { "" } else { "s" };
        let Self { open_files, open_for_writing, clients } = *self;
        write!(f, "{open_files} file{} open", plural(open_files))?;
        if open_for_writing > 0 {
            write!(f, " ({open_for_writing} for writing)")?;
        }
        write!(f, ", {clients} client{}", plural(clients))
    }
}

/// Load, each component 0 to 100.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct LoadStatus {
    /// Processors.
    pub cpu: u8,
    /// Network.
    pub net: u8,
    /// Run queue.
    pub run_queue: u8,
    /// Memory.
    pub memory: u8,
    /// Paging.
    pub paging: u8,
    /// Disks.
    pub disk: u8,
}

impl LoadStatus {
    /// Returns the highest component and its name. The filling of disks is not included, because it
    /// is shown as space.
    pub fn highest(&self) -> (u8, &'static str) {
        let parts = [
            (self.paging, "paging"),
            (self.memory, "memory"),
            (self.run_queue, "run queue"),
            (self.net, "network"),
            (self.cpu, "cpu"),
        ];
        parts.into_iter().max_by_key(|(percent, _)| *percent).unwrap_or_default()
    }
}

impl From<LoadReport> for LoadStatus {
    fn from(load: LoadReport) -> Self {
        let LoadReport { cpu, net, run_queue, memory, paging, disk } = load;
        Self { cpu, net, run_queue, memory, paging, disk }
    }
}

/// Space, in MB of 2^20 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SpaceStatus {
    /// Total of all file systems; for a node with children the total of all servers below it.
    pub total_mb: u64,
    /// Free space of the file system that has most.
    pub free_mb: u32,
    /// Minimum free space for the placement of new files.
    pub minimum_mb: u32,
    /// Percentage in use.
    pub used_percent: u8,
}

impl From<SpaceReport> for SpaceStatus {
    fn from(space: SpaceReport) -> Self {
        let SpaceReport { total_mb, free_mb, minimum_mb, used_percent, .. } = space;
        Self { total_mb: total_mb.into(), free_mb, minimum_mb, used_percent }
    }
}

/// The location cache.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct LocationCacheStatus {
    /// Number of locations held.
    pub locations: u64,
    /// Look-ups that found a location, since the start.
    pub hits: u64,
    /// Look-ups of unknown paths, since the start.
    pub misses: u64,
    /// Fraction of look-ups that found a location, 0 to 1.
    pub hit_rate: f64,
    /// Number of paths whose location is being queried.
    pub queries: u64,
    /// Number of requests that wait for these queries.
    pub waiters: u64,
    /// Number of requests that wait for nodes that are away.
    #[serde(default)]
    pub held: u64,
}

/// The inputs of the status of this node.
pub(super) struct StatusInputs<'a> {
    pub(super) settings: &'a Settings,
    pub(super) tree: &'a TreeDriver,
    pub(super) resolver: Option<&'a LocationResolver>,
    pub(super) presence: Option<&'a ChildPresence>,
    /// Set if the administrator has suspended this node, so that it accepts no clients.
    pub(super) suspended: bool,
    /// Set if the administrator is draining this node, so that it accepts no new clients.
    pub(super) draining: bool,
}

impl StatusInputs<'_> {
    /// Returns the state of this node.
    pub(super) fn status(&self) -> NodeStatus {
        let node = self.tree.node();
        let members = node.members();
        let login = node.memberships().first().map(Membership::login);
        let data_port = login.map(|login| login.data_port).filter(|port| *port > 0);
        let own_port = self.settings.own_addresses.first().map(std::net::SocketAddr::port);
        let host = login.and_then(|login| login.host.clone());
        let parent = self.settings.parent.as_ref();
        NodeStatus {
            role: self.settings.role.name().to_owned(),
            id: match (login, parent) {
                (_, Some(parent)) => parent.id.as_str().to_owned(),
                (login, None) => login.map(|login| login.id.clone()).unwrap_or_default(),
            },
            host: host.or_else(|| parent.map(|parent| parent.address.host().to_owned())).unwrap_or_default(),
            name: self.settings.instance.clone(),
            site: parent
                .and_then(|parent| parent.site.clone())
                .or_else(|| login.and_then(|login| login.site.clone())),
            version: format!("scalla {VERSION}"),
            cluster_address: parent.map(|parent| parent.address.to_string()),
            data_port: data_port.or(own_port).unwrap_or(0),
            state: self.state().into(),
            uptime_seconds: Some(self.tree.now().as_secs()),
            parents: node.parent_addresses().map(ToString::to_string).collect(),
            managers: node
                .memberships()
                .iter()
                .flat_map(Membership::managers)
                .map(ToString::to_string)
                .collect(),
            sought: self.tree.sought(),
            space: match members {
                Some(members) => total(members),
                None => node.memberships().first().map(|m| m.space().into()).unwrap_or_default(),
            },
            children: members.map(|members| self.children(members)).unwrap_or_default(),
            waiting: members.map_or(0, |members| members.waiting() as u64),
            redirectors: node.redirectors().count() as u64,
            cache: self.resolver.map(|resolver| {
                let stats = resolver.stats();
                let (hits, misses) = (stats.cache.hits, stats.cache.misses);
                let asked = hits + misses;
                LocationCacheStatus {
                    locations: stats.cache.locations,
                    hits,
                    misses,
                    hit_rate: if asked == 0 { 0.0 } else { hits as f64 / asked as f64 },
                    queries: stats.queries as u64,
                    waiters: stats.waiters as u64,
                    held: stats.held as u64,
                }
            }),
        }
    }

    fn state(&self) -> NodeState {
        let node = self.tree.node();
        let attached = node.memberships().iter().any(Membership::is_attached);
        match node.members() {
            _ if self.suspended => NodeState::Suspended,
            _ if self.draining => NodeState::Draining,
            Some(members) if !members.serves() => NodeState::TooFewNodes,
            Some(_) if node.memberships().is_empty() => NodeState::Serving,
            _ if attached => NodeState::Serving,
            _ => NodeState::LookingForParent,
        }
    }

    fn children(&self, members: &Members) -> Vec<ChildStatus> {
        let alternates = members.alternates().map(|(slot, member)| (slot, member, true));
        let all = members.members().map(|(slot, member)| (slot, member, false)).chain(alternates);
        all.map(|(slot, member, stands_by)| self.child(slot.number(), member, stands_by)).collect()
    }

    fn child(&self, slot: u8, member: &ClusterMember, stands_by: bool) -> ChildStatus {
        let state = match () {
            () if !member.is_online() => NodeState::Away,
            () if member.condition.drains() => NodeState::Draining,
            () if member.condition.suspended => NodeState::Suspended,
            () if stands_by => NodeState::StandingBy,
            () => NodeState::Serving,
        };
        let cell = self.resolver.map(LocationResolver::cell);
        let is_in = |slots: fn(&cluster::Cell) -> cluster::SlotMask| {
            cell.is_some_and(|cell| Slot::new(slot).is_some_and(|slot| slots(cell).contains(slot)))
        };
        let inventory = match () {
            () if is_in(cluster::Cell::complete) => Some("complete"),
            () if is_in(cluster::Cell::listed) => Some("listed"),
            () => None,
        };
        let known = cell.and_then(|cell| cell.child(Slot::new(slot)?));
        ChildStatus {
            slot,
            newcomer: known
                .is_some_and(|child| child.state.connected && child.state.newness == Newness::Unknown),
            role: child_role(member.role).to_owned(),
            id: member.identity.id.as_str().to_owned(),
            host: member.host.clone(),
            name: member.instance.clone().or_else(|| name_in(member.identity.id.as_str())),
            site: member.site.clone(),
            version: member.software.clone().unwrap_or_else(|| format!("cms {}", member.version)),
            address: member.data.to_string(),
            cluster_address: (!member.is_leaf()).then(|| member.address.to_string()),
            state: state.into(),
            left: None,
            inventory: inventory.map(str::to_owned),
            names: Slot::new(slot).and_then(|slot| self.presence?.names(slot)),
            age_seconds: Some(self.tree.now().saturating_sub(member.since).as_secs()),
            load: member.load.into(),
            space: space_of(member),
            paths: member.paths.lines().map(str::to_owned).collect(),
            node: None,
        }
    }

    /// Returns the answer to the `stats` request of a redirector: the state of this node as JSON.
    /// If the text of a cell would be too long, the paths of the children are left out.
    pub(super) fn text(&self) -> String {
        let mut status = self.status();
        let mut text = serde_json::to_string(&status).unwrap_or_default();
        if text.len() > TEXT_BYTES_MAX {
            status.children.iter_mut().for_each(|child| child.paths.clear());
            text = serde_json::to_string(&status).unwrap_or_default();
        }
        text
    }
}

/// Extracts the instance name from the id of an XRootD node, `s-name@host cluster`, if it has one.
fn name_in(id: &str) -> Option<String> {
    let id = login::SystemId::decode(id.as_bytes()).ok().filter(|id| !id.anywhere)?;
    let (name, _) = std::str::from_utf8(id.instance).ok()?.split_once('@')?;
    (name != config::ANONYMOUS).then(|| name.to_owned())
}

/// Returns the space of a child, including that of the servers below it if the child reports it.
fn space_of(member: &ClusterMember) -> SpaceStatus {
    let own = SpaceStatus::from(member.space);
    SpaceStatus { total_mb: member.sums.map_or(own.total_mb, |sums| sums.total_mb), ..own }
}

/// Returns the total space of all children. The free space is that of the best child that accepts
/// new files; if no child accepts them, that of the best child.
fn total(members: &Members) -> SpaceStatus {
    let online = members.members().filter(|(_, member)| member.is_online());
    sum(&online.map(|(_, member)| space_of(member)).collect::<Vec<_>>())
}

fn sum(spaces: &[SpaceStatus]) -> SpaceStatus {
    let total_mb = spaces.iter().fold(0_u64, |sum, space| sum.saturating_add(space.total_mb));
    let takes_files = |space: &SpaceStatus| space.free_mb > 0 && space.free_mb >= space.minimum_mb;
    let best = spaces.iter().copied().max_by_key(|space| (takes_files(space), space.free_mb));
    SpaceStatus { total_mb, ..best.unwrap_or_default() }
}

const fn child_role(role: login::Role) -> &'static str {
    match role {
        login::Role::Manager | login::Role::ProxyManager | login::Role::PeerManager => "manager",
        login::Role::Supervisor => "supervisor",
        login::Role::Peer => "peer",
        login::Role::Redirector => "redirector",
        login::Role::Server | login::Role::ProxyServer => "server",
    }
}

/// Formats a duration for people: its two largest units.
pub fn show_age(age: Duration) -> String {
    let seconds = age.as_secs();
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m{:02}s", seconds % 60),
        (0, hours, minutes) => format!("{hours}h{minutes:02}m"),
        (days, hours, _) => format!("{days}d{hours:02}h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn however_many_ask_the_text_is_written_four_times_a_second() {
        let (mut cached, mut written) = (CachedText::default(), 0);
        for ms in 0..1000 {
            let text = cached.text(Duration::from_millis(ms), || {
                written += 1;
                ms.to_string()
            });
            assert!(ms - text.parse::<u64>().unwrap() < 250);
        }
        assert_eq!(written, 4);
    }

    #[test]
    fn ids_of_real_nodes_hold_the_name_of_their_instance() {
        let table = [
            ("s-disk1@host 1213redir", Some("disk1")),
            ("s-anon@host 1213redir", None),
            ("*s-disk1-00ff 1213redir", None),
            ("nonsense", None),
        ];
        for (id, name) in table {
            assert_eq!(name_in(id).as_deref(), name, "{id}");
        }
    }

    #[test]
    fn the_busiest_part_of_a_load_is_named() {
        let load = LoadStatus { cpu: 3, run_queue: 100, disk: 100, ..LoadStatus::default() };
        assert_eq!(load.highest(), (100, "run queue"));
        assert_eq!(LoadStatus { cpu: 7, net: 7, ..LoadStatus::default() }.highest(), (7, "cpu"));
    }

    #[test]
    fn ages_are_short() {
        let table =
            [(0, "0s"), (59, "59s"), (61, "1m01s"), (3600, "1h00m"), (90_061, "1d01h"), (864_000, "10d00h")];
        for (seconds, shown) in table {
            assert_eq!(show_age(Duration::from_secs(seconds)), shown);
        }
    }

    #[test]
    fn of_several_children_the_space_of_one_that_takes_files_is_told() {
        let space = |free_mb, minimum_mb| SpaceStatus { total_mb: 100, free_mb, minimum_mb, used_percent: 1 };
        let (full, fit, silent) = (space(50, 60), space(20, 10), space(0, 0));
        let all = |best: SpaceStatus, count: u64| SpaceStatus { total_mb: count * 100, ..best };
        assert_eq!(sum(&[full, fit, silent]), all(fit, 3));
        assert_eq!(sum(&[full, space(5, 10), silent]), all(full, 3));
        assert_eq!(sum(&[silent]), silent);
        assert_eq!(sum(&[]), SpaceStatus::default());
    }

    #[test]
    fn a_full_cell_fits_into_an_answer() {
        let child = ChildStatus {
            id: "*s-".to_owned() + &"x".repeat(64) + " 1213" + &"h".repeat(60),
            host: "h".repeat(60),
            version: "scalla v10.20.30".to_owned(),
            address: "a".repeat(64),
            site: Some("s".repeat(63)),
            ..ChildStatus::default()
        };
        let status = NodeStatus { children: vec![child; cluster::CELL_SLOTS], ..NodeStatus::default() };
        let text = serde_json::to_string(&status).unwrap();
        assert!(text.len() < TEXT_BYTES_MAX, "{}", text.len());
    }
}
