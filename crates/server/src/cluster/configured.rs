//! Conversion of the effective configuration to the settings of the cluster node.
//!
//! It queries the name server for managers and for roles that need it. It runs once, at the start.

use super::cluster_key::ClusterKey;
use super::health::{HealthSettings, ListFile, LoadSampling, SpaceLimits};
use super::identity::OwnNodeId;
use super::settings::{Listen, Settings};
use crate::admission::Doorkeeper;
use crate::error::StartError;
use base::LogicalPath;
use cluster::tree::limits::PING;
use cluster::tree::{
    AcceptorRole, Address, ChildSettings, Extensions, LoginMessage, Minimum, Mode, ParentSettings,
};
use cluster::{
    AffinityPath, ClientAffinity, ForeignTarget, LookupLimits, Policy, SharedFilePolicy, WaitTimes, Weights,
};
use config::{
    AddressFamily, AffinityKind, AffinityPart, ClusterConfig, Effective, HostPattern, ManagerAddress,
    NodeRole, Port, Quorum, Setting, Visibility, WaitTime,
};
use net::Admission;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Added to the interval of load reports, as the time after which clients retry.
const REPORTS_SLACK: Duration = Duration::from_secs(30);

/// Returns the settings of the cluster node of this process; `None` if the server stands alone.
/// Clients are served at `data_port`. Blocks on the name server and on the admin directory, which
/// keeps the id of the node.
///
/// # Errors
/// [`StartError::Cluster`] if the role lacks a required setting or the key table is not usable, [`StartError::File`] if the id
/// cannot be kept.
pub(crate) fn configured(effective: &Effective, data_port: u16) -> Result<Option<Settings>, StartError> {
    let cluster = &effective.cluster;
    if !cluster.is_cluster_node() {
        return Ok(None);
    }
    // First, because a node that cannot authenticate must not touch anything.
    let key = cluster.key.as_ref().map(|key| ClusterKey::open(key, effective)).transpose()?;
    let identity = OwnNodeId::of(effective)?;
    let role = *cluster.role;
    let own = own_entry(effective);
    let mut settings = Settings::new(role);
    settings.instance.clone_from(&effective.instance);
    settings.listen = listen(effective, own)?;
    settings.of_proxies = cluster.of_proxies;
    let exports = effective.storage.exports.iter();
    settings.exports =
        exports.filter_map(|export| LogicalPath::parse(export.prefix.as_bytes()).ok()).collect();
    settings.parent = parent(effective, &identity, own, (settings.acceptor(), settings.listen));
    settings.children = children(effective, &identity)?;
    settings.policy = policy(cluster);
    settings.resolve.silence = cluster.delay.silence.unwrap_or(*cluster.delay.lookup);
    settings.looks = looks(cluster, settings.resolve.silence);
    settings.cache.window = *cluster.location_hold;
    settings.cache.nowhere = *cluster.nowhere_hold;
    settings.admission = admission(effective);
    settings.key = key.map(Arc::new);
    let host = &effective.host;
    let addresses: Vec<IpAddr> = lookup(host);
    let loops = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    settings.own_addresses =
        addresses.iter().chain(&loops).map(|ip| SocketAddr::new(*ip, data_port)).collect();
    let known = !host.is_empty() && addresses.iter().any(|ip| !ip.is_loopback());
    settings.own_name = known.then(|| host.as_str().into());
    settings.health = health(effective);
    settings.programs = cluster.programs.iter().map(|program| program.value.clone()).collect();
    settings.complete_inventory = *effective.process.complete_inventory && settings.programs.is_empty();
    if *effective.process.complete_inventory && !settings.programs.is_empty() {
        tracing::warn!(
            "cluster: scalla.inventory complete is not in force, because programs of the site (ofs.forward) change names here"
        );
    }
    settings.local_root = effective.storage.local_root.value.clone().unwrap_or_else(|| "/".into());
    settings.name_rules = effective.storage.name_rules.iter().map(|rule| rule.value.clone()).collect();
    settings.forwarding = *cluster.forwarding;
    settings.place_file = Some(identity.place_file());
    Ok(Some(settings))
}

/// Returns the entry of this node among the managers of its level: the one that has its name or
/// resolves to one of its addresses. Of several, it is the one with the configured port, otherwise
/// the last, as in cmsd.
fn own_entry(effective: &Effective) -> Option<&ManagerAddress> {
    let instance = effective.instance.as_deref().unwrap_or(config::ANONYMOUS);
    let port = effective.cluster.port.value;
    let ours = |manager: &&Setting<ManagerAddress>| {
        manager.instance.as_ref().is_none_or(|wanted| wanted == instance) && is_here(&manager.host, effective)
    };
    let ours: Vec<_> = effective.cluster.peers().iter().filter(ours).collect();
    let chosen = ours.iter().find(|manager| port == Some(Port::Number(manager.port)));
    chosen.or(ours.last()).map(|manager| &manager.value)
}

/// Reports whether a host name is one of this host.
fn is_here(host: &str, effective: &Effective) -> bool {
    host.eq_ignore_ascii_case(&effective.host) || lookup(host).into_iter().any(is_own_address)
}

/// Reports whether an address belongs to this host, because the kernel binds only to such
/// addresses.
fn is_own_address(address: IpAddr) -> bool {
    !address.is_unspecified() && UdpSocket::bind((address, 0)).is_ok()
}

fn lookup(host: &str) -> Vec<IpAddr> {
    if let Ok(address) = host.parse::<IpAddr>() {
        return vec![address.to_canonical()];
    }
    let found = dns_lookup::lookup_host(host).map(|found| found.map(|ip| ip.to_canonical()).collect());
    found.unwrap_or_default()
}

/// Returns the endpoint at which nodes log in.
fn listen(effective: &Effective, own: Option<&ManagerAddress>) -> Result<Listen, StartError> {
    let cluster = &effective.cluster;
    let port = match *cluster.role {
        NodeRole::Server => 0,
        NodeRole::Supervisor => cluster.supervisor_port.to_bind(),
        // The command line takes precedence over the file, and the entry of this node over
        // xrd.port, as in cmsd.
        NodeRole::Manager | NodeRole::MetaManager => match (cluster.port.value, own) {
            (Some(port), _) if cluster.port.origin == config::Origin::CommandLine => port.to_bind(),
            (_, Some(own)) => own.port,
            (Some(port), None) => port.to_bind(),
            (None, None) if cluster.peers().is_empty() => config::CLUSTER_PORT_DEFAULT,
            (None, None) => return Err(nobody(effective)),
        },
    };
    let address = match *effective.network.family {
        AddressFamily::Both => None,
        AddressFamily::V4 => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
        AddressFamily::V6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
    };
    Ok(Listen { address, port })
}

fn nobody(effective: &Effective) -> StartError {
    let named: Vec<String> = effective.cluster.peers().iter().map(|m| m.value.to_string()).collect();
    let first = effective.cluster.peers().first().map(|m| format!("{}: ", m.origin)).unwrap_or_default();
    StartError::Cluster(format!(
        "{first}this host ({}) is none of the managers ({}), so the port where nodes log in is not known; name this \
         host there, or give a port (xrd.port … if exec cmsd)",
        effective.host,
        named.join(", ")
    ))
}

/// Returns the settings towards children.
fn parent(
    effective: &Effective,
    identity: &OwnNodeId,
    own: Option<&ManagerAddress>,
    (acceptor, listen): (AcceptorRole, Listen),
) -> Option<ParentSettings> {
    let cluster = &effective.cluster;
    if acceptor == AcceptorRole::Server {
        return None;
    }
    let host = own.map_or(effective.host.as_str(), |own| own.host.as_str());
    let host = if host.is_empty() { "localhost" } else { host };
    let address = Address::new(host, listen.port);
    let mut settings = ParentSettings::new(acceptor, identity.system_id(), address);
    settings.site = site(effective);
    settings.replicas = cluster.peers().iter().any(|peer| Some(&peer.value) != own);
    settings.ping = PING.min(*cluster.ping);
    // XRootD nodes report their space with their load, and both only on request.
    settings.usage = *cluster.ping_usage;
    if let Some(drop) = *cluster.delay.drop {
        settings.drop = drop;
    }
    settings.hold = *cluster.delay.hold;
    // Of the others, one child is enough to serve, as in cmsd.
    if acceptor.is_root_of_names() {
        settings.minimum = match *cluster.delay.quorum {
            Quorum::Count(count) => Minimum::Count(usize::try_from(count).unwrap_or(1)),
            Quorum::Percent(percent) => Minimum::Percent(percent),
        };
    }
    // A configured number of servers is always waited for. A supervisor is queried by a manager,
    // which waits itself.
    let counted = matches!(*cluster.delay.quorum, Quorum::Count(_));
    settings.first_start = !counted && !acceptor.is_supervisor();
    Some(settings)
}

/// Returns the settings towards parents: one membership for each site.
fn children(effective: &Effective, identity: &OwnNodeId) -> Result<Vec<ChildSettings>, StartError> {
    let cluster = &effective.cluster;
    let mut parents: Vec<&ManagerAddress> = cluster.parents().iter().map(|setting| &setting.value).collect();
    let subcluster = cluster.subcluster.value.as_ref().filter(|_| *cluster.role == NodeRole::Manager);
    let subman = parents.is_empty() && subcluster.is_some();
    if subman {
        parents.extend(subcluster);
    }
    let mut sites: Vec<Option<&str>> = Vec::new();
    for parent in &parents {
        if !sites.contains(&parent.site.as_deref()) {
            sites.push(parent.site.as_deref());
        }
    }
    let login = login(effective, identity, subman)?;
    let children = sites.iter().enumerate().map(|(number, site)| {
        let of_site = parents.iter().filter(|parent| parent.site.as_deref() == *site);
        let mut child =
            ChildSettings::new(of_site.flat_map(|parent| addresses(parent)).collect(), login.clone());
        child.site = u8::try_from(number).unwrap_or(u8::MAX);
        child.ping = *cluster.ping;
        child
    });
    Ok(children.collect())
}

/// Returns the addresses of a manager: its name, or with `+` each address of the name.
fn addresses(manager: &ManagerAddress) -> Vec<Address> {
    let all = if manager.every_address { lookup(&manager.host) } else { Vec::new() };
    if all.is_empty() {
        return vec![Address::new(&manager.host, manager.port)];
    }
    all.iter().map(|ip| Address::new(&ip.to_string(), manager.port)).collect()
}

fn login(effective: &Effective, identity: &OwnNodeId, subman: bool) -> Result<LoginMessage, StartError> {
    let cluster = &effective.cluster;
    let mut mode = Mode::BLREDIR | Mode::NOSTAGE;
    mode |= match *cluster.role {
        NodeRole::Server => Mode::SERVER,
        NodeRole::Supervisor => Mode::MANAGER | Mode::SERVER,
        NodeRole::Manager | NodeRole::MetaManager => Mode::MANAGER,
    };
    if subman {
        mode |= Mode::SUBMAN;
    }
    if cluster.of_proxies {
        mode |= Mode::PROXY;
    }
    let hours = jiff::Zoned::now().offset().seconds() / 3600;
    mode = mode.with_zone_hours(i8::try_from(hours).unwrap_or(0));
    if *cluster.role == NodeRole::Manager {
        mode = mode.with_share_percent(*cluster.sched.share);
    }
    Ok(LoginMessage {
        version: 3,
        mode,
        process: std::process::id(),
        id: identity.system_id().as_str().to_owned(),
        paths: paths(effective)?,
        host: Some(effective.host.clone()).filter(|host| !host.is_empty()),
        site: site(effective),
        software: Some(format!("scalla {}", crate::VERSION)),
        instance: effective.instance.clone(),
        extensions: match *effective.process.complete_inventory {
            true => Extensions::ALL,
            false => Extensions::ALL.without(Extensions::COMPLETE),
        },
        ..LoginMessage::default()
    })
}

fn site(effective: &Effective) -> Option<String> {
    effective.process.site_name.value.clone()
}

/// Returns the exports in the form reported to the cluster. Staging is not in force, so none of
/// them is marked for staging.
fn paths(effective: &Effective) -> Result<String, StartError> {
    let exports = effective.storage.exports.iter();
    let told = exports.filter(|export| export.attributes.visibility != Visibility::Local);
    let lines: Vec<String> = told
        .map(|export| {
            let attributes = &export.attributes;
            let only_read = attributes.read_only
                || attributes.cache
                || attributes.visibility == Visibility::GlobalReadOnly;
            format!("{} {}", if only_read { 'r' } else { 'w' }, export.prefix)
        })
        .collect();
    if lines.is_empty() {
        // An empty list would be understood as all paths.
        let text = "every export is local, so there is nothing to tell the cluster; export something global, or remove \
                    all.manager";
        return Err(StartError::Cluster(text.to_owned()));
    }
    Ok(lines.join("\n"))
}

fn weights(cluster: &ClusterConfig) -> Weights {
    let config::LoadWeights { cpu, io, runq, mem, pag, space } = *cluster.sched.weights;
    Weights { cpu, io, runq, mem, pag, space }
}

fn policy(cluster: &ClusterConfig) -> Policy {
    let sched = &cluster.sched;
    let reports = *cluster.ping * *cluster.ping_usage + REPORTS_SLACK;
    let wait = |wait: &WaitTime, by_role| match *wait {
        WaitTime::ByRole => by_role,
        WaitTime::ByReports => Some(reports),
        WaitTime::Time(time) => Some(time),
    };
    let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
    let elsewhere = |outside: &config::OutsideAddress| ForeignTarget {
        host: outside.host.as_str().into(),
        port: outside.port,
    };
    let delay = &cluster.delay;
    Policy {
        weights: weights(cluster),
        fuzz: *sched.fuzz,
        load_max: *sched.load_max,
        reset: *sched.reset,
        share: Some(*sched.share_default)
            .filter(|share| *share > 0 && *cluster.role == NodeRole::MetaManager),
        linger: *cluster.space.linger,
        loads_known: *cluster.ping_usage > 0,
        randomized: sched.affinity.randomized,
        affinity: match sched.affinity.kind {
            AffinityKind::None => ClientAffinity::None,
            AffinityKind::Weak => ClientAffinity::Weak,
            AffinityKind::Strong => ClientAffinity::Strong,
            AffinityKind::Strict => ClientAffinity::Strict,
        },
        affinity_by_client: sched.affinity.by_client,
        affinity_path: match *sched.affinity_part {
            AffinityPart::All => AffinityPath::All,
            AffinityPart::First(components) => AffinityPath::First(count(components)),
            AffinityPart::Last(components) => AffinityPath::Last(count(components)),
        },
        copies: *cluster.space.copies,
        tried_max: sched.tried_max.as_ref().map(|limit| count(limit.limit)),
        tried_elsewhere: sched.tried_max.as_ref().and_then(|limit| limit.outside.as_ref()).map(elsewhere),
        one_source: sched.one_source.is_some(),
        source_elsewhere: sched.one_source.as_ref().and_then(|limit| limit.outside.as_ref()).map(elsewhere),
        stagers_tried_max: count(*delay.stagers),
        // The managers below a meta manager have separate files.
        shared: cluster.shared.as_ref().filter(|_| *cluster.role != NodeRole::MetaManager).map(|shared| {
            SharedFilePolicy {
                unchecked: shared.unchecked,
                central: shared.central,
                tries_max: count(shared.retries),
            }
        }),
        waits: WaitTimes {
            lookup: *delay.lookup,
            service: *delay.service,
            suspend: *delay.suspend,
            full: wait(&delay.full, None),
            overload: wait(&delay.overload, Some(reports)),
        },
    }
}

/// Returns the limits for look-ups in a file system that all servers share. After `patience`, the
/// requester no longer waits for the answer.
fn looks(cluster: &ClusterConfig, patience: Duration) -> LookupLimits {
    let Some(shared) = cluster.shared.as_ref() else { return LookupLimits::default() };
    let here = cluster.role.redirects() || !shared.rate_central;
    // The value is that of cmsd.
    let waiting = if shared.queue_max > 0 { shared.queue_max } else { shared.rate_max.saturating_mul(5) / 2 };
    LookupLimits {
        rate: NonZeroU32::new(shared.rate_max).filter(|_| here),
        even: shared.rate_even,
        queue_max: usize::try_from(waiting.max(1)).unwrap_or(usize::MAX),
        wait_max: patience,
        missing_hold: shared.missing_hold,
    }
}

/// Returns the hosts that may connect to the cluster port: those that both `cms.allow` and
/// `xrd.allow` as read by cmsd admit.
fn admission(effective: &Effective) -> Option<Admission> {
    let keeper = |allow: &[Setting<HostPattern>]| {
        let network = config::NetworkConfig { allow: allow.to_vec(), ..effective.network.clone() };
        (!allow.is_empty()).then(|| Arc::new(Doorkeeper::new(&network)))
    };
    let keepers: Vec<_> = [&effective.cluster.allow, &effective.cluster.connect]
        .into_iter()
        .filter_map(|list| keeper(list))
        .collect();
    if keepers.is_empty() {
        return None;
    }
    Some(Arc::new(move |address| {
        let keepers = keepers.clone();
        Box::pin(async move {
            for keeper in keepers {
                if !keeper.admits(address).await {
                    return false;
                }
            }
            true
        })
    }))
}

/// Returns the settings of the measurements, and the file that lists the nodes that may join. The
/// default location of that file is the directory of the configuration.
fn health(effective: &Effective) -> HealthSettings {
    let cluster = &effective.cluster;
    let leaf = !cluster.role.redirects();
    let interval = &cluster.load_interval;
    let load = match &*cluster.load_source {
        config::LoadProgramSetting::Program(command) => {
            LoadSampling::Program { command: command.clone(), interval: interval.value }
        }
        config::LoadProgramSetting::Own if interval.origin.is_default() => LoadSampling::default(),
        config::LoadProgramSetting::Own => LoadSampling::Own { interval: interval.value },
    };
    let space = &cluster.space;
    let rules = SpaceLimits {
        recalculate: *space.recalculate,
        least_percent: space.least.percent,
        least_bytes: space.least.bytes,
        enough_percent: space.enough.percent,
        enough_bytes: space.enough.bytes,
    };
    let told = effective.storage.exports.iter();
    let told = told.filter(|export| export.attributes.visibility != Visibility::Local);
    let paths = told.filter_map(|export| LogicalPath::parse(export.prefix.as_bytes()).ok()).collect();
    let list = cluster.node_list.as_ref().filter(|_| !leaf).map(|list| {
        let beside = || {
            let name = if list.white { "cms.whitelist" } else { "cms.blacklist" };
            let file = match &cluster.node_list.origin {
                config::Origin::File(position) => Some(Path::new(&*position.file)),
                config::Origin::Default | config::Origin::CommandLine => None,
            };
            file.and_then(Path::parent).unwrap_or(Path::new("/")).join(name)
        };
        ListFile { path: list.path.clone().unwrap_or_else(beside), white: list.white, check: list.check }
    });
    HealthSettings {
        load: leaf.then_some(load),
        fuzz: *cluster.sched.fuzz,
        space: leaf.then_some((rules, paths)),
        list,
    }
}

#[cfg(test)]
mod tests;
