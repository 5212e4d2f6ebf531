//! Translates the effective configuration into the configuration of each crate.
//!
//! There is one function for each crate, because the other crates are configured by plain values
//! and do not evaluate directives.

use crate::VERSION;
use crate::adapters::SystemNames;
use crate::process;
use crate::third_party::{Outbound, ProgramEnvironment, ProgramPuller, Puller};
use auth::tls::TrustAnchors;
use base::{DescriptorBudget, LogicalPath};
use config::{AddressFamily, ChecksumKind, CopyAttribute, Effective, KeepAlive, NodeRole};
use digest::Algorithm;
use net::{Keepalive, ListenerConfig, SocketConfig};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;
use wire::xroot::flags::ServerFlags;

/// Share of the descriptors reserved for files, journals and the server itself: one in this many.
const FILES_SHARE: u64 = 4;

/// Share of the machine's memory for requests in flight: one in this many bytes.
const MEMORY_SHARE: u64 = 4;

/// Maximum number of streams that a session may bind in addition to its first connection.
const BIND_MAX: u32 = 15;

/// Number of parallel checksum computations and transfers that is reported to clients.
const PARALLEL_IO_MAX: u32 = 5;

/// The receive buffer of a socket on systems that do not report their default.
const WINDOW_BYTES: &str = "131072";

/// Returns the options of accepted sockets.
pub(crate) fn socket(effective: &Effective) -> SocketConfig {
    let network = &effective.network;
    let KeepAlive { idle, interval, count } = *network.keepalive_parameters;
    SocketConfig {
        keepalive: network.keepalive.then_some(Keepalive { idle, interval, count }),
        buffer_bytes: network.socket_buffer_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
    }
}

/// Returns the configuration of a listener.
pub(crate) fn listener(effective: &Effective, port: u16, descriptors: u64) -> ListenerConfig {
    let network = &effective.network;
    ListenerConfig {
        port,
        address: match *network.family {
            AddressFamily::Both => None,
            AddressFamily::V4 => Some(IpAddr::V4(Ipv4Addr::UNSPECIFIED)),
            AddressFamily::V6 => Some(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        },
        socket: socket(effective),
        hail: *network.hail_timeout,
        connections_max: connections_max(descriptors),
    }
}

/// Returns the limit of connections, which leaves enough descriptors for files.
fn connections_max(descriptors: u64) -> usize {
    usize::try_from(descriptors - descriptors / FILES_SHARE).unwrap_or(usize::MAX)
}

/// Returns the configuration of the xroot door.
pub(crate) fn door(effective: &Effective, role: Option<NodeRole>) -> xroot::Config {
    let limit = &effective.protocol.prepare_limit;
    xroot::Config {
        settings: session::Settings {
            flags: with_cache(flags(role, *effective.proxy.enabled), effective),
            configuration: answers(effective, role),
            has_cache: *effective.proxy.enabled && *effective.proxy.cache.enabled,
            has_path_commands: *effective.proxy.enabled && *effective.proxy.cache.path_commands,
            has_local_files: effective.has_direct_reads(),
            prepares_silent: limit.silent,
            prepares_max: limit.per_connection.and_then(|most| usize::try_from(most).ok()),
            descriptors: Arc::new(DescriptorBudget::new(process::descriptors())),
            ..session::Settings::default()
        },
        hail: *effective.network.hail_timeout,
        idle: *effective.network.idle_timeout,
        memory_bytes: memory_bytes(effective),
        sendfile: *effective.protocol.sendfile,
        log_logins: effective.protocol.session_log.login,
        log_disconnects: effective.protocol.session_log.disconnect,
        ..xroot::Config::default()
    }
}

/// Returns the memory for requests in flight: as configured, or a share of the machine's memory.
fn memory_bytes(effective: &Effective) -> usize {
    let share = || process::memory_bytes().map(|bytes| bytes / MEMORY_SHARE);
    let bytes = effective.process.memory.value.or_else(share);
    bytes.and_then(|bytes| usize::try_from(bytes).ok()).unwrap_or(xroot::MEMORY_BYTES)
}

/// Adds the flag of a proxy with a disk cache.
fn with_cache(flags: ServerFlags, effective: &Effective) -> ServerFlags {
    let proxy = &effective.proxy;
    if *proxy.enabled && *proxy.cache.enabled { flags | ServerFlags::ATTR_CACHE } else { flags }
}

/// Returns the flags that describe this server to clients. Clients return to a manager after
/// another server has failed. Source: xroot protocol, kXR_protocol.
fn flags(role: Option<NodeRole>, is_proxy: bool) -> ServerFlags {
    let able = match is_proxy {
        // The connections to origins are shared, so a file cannot depend on one.
        true => ServerFlags::SUPPGRW | ServerFlags::ATTR_PROXY,
        false => ServerFlags::SUPPGRW | ServerFlags::SUPPOSC,
    };
    able | match role {
        None | Some(NodeRole::Server) => ServerFlags::IS_SERVER,
        Some(NodeRole::Manager) => ServerFlags::IS_MANAGER,
        Some(NodeRole::Supervisor) => ServerFlags::IS_MANAGER | ServerFlags::ATTR_SUPER,
        Some(NodeRole::MetaManager) => ServerFlags::IS_MANAGER | ServerFlags::ATTR_META,
    }
}

/// Returns the replies to `query config`. A key that is missing here is echoed, which means that it
/// has no value.
fn answers(effective: &Effective, role: Option<NodeRole>) -> Vec<(String, String)> {
    let xattr = &effective.logical.xattr;
    let (name, value) = if xattr.enabled && !*effective.proxy.enabled {
        (xattr.name_bytes_max, xattr.value_bytes_max)
    } else {
        (0, 0)
    };
    let mut answers = vec![
        ("bind_max", BIND_MAX.to_string()),
        ("cms", "none|".to_owned()),
        ("fattr", format!("{name} {value}")),
        ("pio_max", PARALLEL_IO_MAX.to_string()),
        ("readv_ior_max", wire::xroot::limits::READV_SEGMENT_BYTES_MAX.to_string()),
        ("readv_iov_max", wire::xroot::limits::READV_SEGMENTS_MAX.to_string()),
        ("role", role.unwrap_or(NodeRole::Server).name().to_owned()),
        ("start", jiff::Zoned::now().strftime("%y%m%d:%H%M%S.0").to_string()),
        ("sysid", " sysid".to_owned()),
        ("version", VERSION.to_owned()),
        ("window", window(effective)),
    ];
    answers.extend(crate::proxied_files::query_answer(effective).map(|answer| ("proxy", answer)));
    let copies = effective.logical.third_party.value.as_ref();
    if copies.is_some() {
        answers.push(("tpc", "1".to_owned()));
    }
    if copies.is_some_and(|copies| copies.credentials.is_some()) {
        answers.push(("tpcdlg", auth::gsi::GSI.to_owned()));
    }
    let offered = &effective.protocol.checksums.offered;
    if !offered.is_empty() {
        let list: Vec<_> =
            offered.iter().enumerate().map(|(n, kind)| format!("{n}:{}", kind.name())).collect();
        answers.push(("chksum", list.join(",")));
    }
    if let Some(site) = &effective.process.site_name.value {
        answers.push(("sitename", site.clone()));
    }
    answers.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Returns the bytes of a socket's receive buffer as the system reports it. That is twice the
/// configured size, limited by the system, because the kernel adds its own data; without a
/// configured size it is the system default.
fn window(effective: &Effective) -> String {
    if let Some(bytes) = *effective.network.socket_buffer_bytes {
        let most = std::fs::read_to_string("/proc/sys/net/core/rmem_max").unwrap_or_default();
        return (2 * bytes.min(most.trim().parse().unwrap_or(bytes))).to_string();
    }
    let limits = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_rmem").unwrap_or_default();
    limits.split_whitespace().nth(1).unwrap_or(WINDOW_BYTES).to_owned()
}

/// Returns the configuration of the logical file system.
pub(crate) fn logical(effective: &Effective, port: u16) -> logical::Config {
    let wanted = &effective.logical;
    // The access time has to be exact enough for the shortest of them.
    let holds = effective.residency.purge_rules().filter(|rule| rule.free.is_some()).map(|rule| rule.hold);
    let hold = holds.min().unwrap_or(effective.residency.purge.value.hold);
    let exports = effective.storage.exports.iter().filter_map(|one| export(one, hold)).collect();
    let mut config = logical::Config::new(exports, effective.persist_directory());
    config.file_mode = wanted.creation_modes.files;
    config.directory_mode = wanted.creation_modes.directories;
    let own_umask = effective.multi_user.umask.filter(|_| *effective.multi_user.enabled);
    config.umask = own_umask.unwrap_or_else(umask);
    config.opens_private_directories = own_umask.is_some();
    config.persist = logical::config::Persist {
        mode: wanted.persist.mode,
        hold: wanted.persist.hold,
        sync: wanted.persist.sync,
        durability: match wanted.persist.synced {
            true => logical::config::Durability::Synced,
            false => logical::config::Durability::Relaxed,
        },
    };
    config.persist_directory = effective.persist_directory();
    config.checkpoints = logical::config::Checkpoints {
        enabled: effective.checkpoint_directory().is_some(),
        bytes_max: u32::try_from(wanted.checkpoint.bytes_max).unwrap_or(u32::MAX),
        on_failure: wanted.checkpoint.on_failure,
    };
    // Checkpoints of an earlier run must be found even if they are off now.
    config.checkpoint_directory = effective.checkpoint_path();
    let checksums = &effective.protocol.checksums;
    config.checksums = logical::config::Checksums {
        types: checksums.offered.iter().map(|kind| algorithm(*kind)).collect(),
        concurrent: usize::try_from(checksums.concurrent_max).unwrap_or(1).max(1),
        read_bytes: usize::try_from(*wanted.checksum_read_bytes).unwrap_or(1 << 20),
    };
    config.attributes = logical::config::AttributeLimits {
        enabled: wanted.xattr.enabled,
        name_bytes_max: wanted.xattr.name_bytes_max as usize,
        value_bytes_max: wanted.xattr.value_bytes_max as usize,
    };
    config.delay_max = *wanted.delay_max;
    config.own_address = own_address(&effective.host, port);
    config
}

/// Returns the configuration of third-party copies, with the program or client that carries them
/// out. It trusts sources by the authorities of `trusted`; `None` for those of the environment. A proxy has no files that a program could write.
pub(crate) fn third_party(
    copies: &config::ThirdPartyCopy,
    effective: &Effective,
    outbound: Outbound,
    trusted: Option<TrustAnchors>,
    observer: Option<Arc<dyn logical::CopyObserver>>,
) -> logical::ThirdPartyParts {
    let path = |text: &String| LogicalPath::parse(text.as_bytes()).ok();
    let proofs = |counts: fn(&config::CopyRequire) -> bool| {
        let rules = copies.require.iter().filter(|rule| counts(rule));
        let proof = |rule: &config::CopyRequire| logical::ProofRule {
            protocol: rule.protocol.clone(),
            encrypted: rule.encrypted,
        };
        rules.map(proof).collect()
    };
    let host = |rule: &config::CopyAllow| logical::HostRule {
        host: rule.host.clone(),
        attributes: rule.attributes.iter().map(destination_attribute).collect(),
    };
    let settings = logical::ThirdPartySettings {
        ttl: copies.ttl,
        ttl_max: copies.ttl_max,
        jobs_max: usize::try_from(copies.jobs_max).unwrap_or(1),
        streams: copies.streams,
        streams_max: copies.streams_max,
        checksum: copies.checksum.map(algorithm),
        restrict: copies.restrict.iter().filter_map(path).collect(),
        allow: copies.allow.iter().map(host).collect(),
        require_client: proofs(|rule| rule.client),
        require_destination: proofs(|rule| rule.destination),
        object_ids: copies.object_ids,
        log_success: copies.log_success,
        credentials: match &copies.credentials {
            None => logical::DelegatedCredentials::Unused,
            Some(credentials) if credentials.is_optional => logical::DelegatedCredentials::Optional,
            Some(_) => logical::DelegatedCredentials::Required,
        },
    };
    let program = copies.program.as_ref().filter(|_| !*effective.proxy.enabled);
    let fetcher: Arc<dyn logical::Fetcher> = match program {
        Some(program) => {
            let variable = copies.credentials.as_ref().map(|credentials| credentials.variable.clone());
            let login_protocols = login_protocols(&effective.security);
            let directory = effective.copy_credentials_directory();
            let environment = ProgramEnvironment { trusted, variable, directory, login_protocols };
            environment.remove_leftovers();
            Arc::new(ProgramPuller::new(program.clone(), copies.scan, copies.echo, outbound, environment))
        }
        None => Arc::new(Puller::new(outbound, trusted)),
    };
    logical::ThirdPartyParts { settings, fetcher, names: Arc::new(SystemNames), observer }
}

/// Returns the ids of the protocols by which clients log in.
fn login_protocols(security: &config::SecurityConfig) -> Vec<String> {
    let mut ids: Vec<String> = Vec::new();
    for protocol in security.protocols.iter().filter(|_| *security.enabled) {
        if ids.iter().all(|known| known != protocol.id()) {
            ids.push(protocol.id().to_owned());
        }
    }
    ids
}

fn destination_attribute((kind, value): &(CopyAttribute, String)) -> logical::DestinationAttribute {
    // A word of the configuration cannot contain a blank.
    let value = value.replace("%20", " ");
    match kind {
        CopyAttribute::Subject => logical::DestinationAttribute::Subject(value),
        CopyAttribute::Group => logical::DestinationAttribute::Group(value),
        CopyAttribute::Organization => logical::DestinationAttribute::Organization(value),
    }
}

/// Returns the umask of the process. It is read from `/proc`, because the system call would also
/// set it; the fallback is 022.
fn umask() -> u32 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("Umask:"));
    line.and_then(|text| u32::from_str_radix(text.trim(), 8).ok()).unwrap_or(0o022)
}

fn algorithm(kind: ChecksumKind) -> Algorithm {
    match kind {
        ChecksumKind::Adler32 => Algorithm::Adler32,
        ChecksumKind::Crc32 => Algorithm::Crc32,
        ChecksumKind::Crc32c => Algorithm::Crc32c,
        ChecksumKind::Zcrc32 => Algorithm::Zcrc32,
        ChecksumKind::Md5 => Algorithm::Md5,
        ChecksumKind::Sha1 => Algorithm::Sha1,
        ChecksumKind::Sha256 => Algorithm::Sha256,
    }
}

/// Number of accesses that are recorded within the hold time of a file, and the limits of the time between
/// two of them.
const ACCESSES_PER_HOLD: u32 = 10;
const ACCESS_INTERVAL_MIN: Duration = Duration::from_secs(1);
const ACCESS_INTERVAL_MAX: Duration = Duration::from_secs(3600);

fn export(export: &config::Export, hold: Duration) -> Option<logical::config::ExportConfig> {
    let attributes = &export.attributes;
    Some(logical::config::ExportConfig {
        prefix: LogicalPath::parse(export.prefix.as_bytes()).ok()?,
        read_only: attributes.read_only,
        force_read_only: attributes.force_read_only,
        lock: attributes.lock,
        stage: attributes.stage,
        check: attributes.check,
        remote_create: attributes.remote_create,
        remote_directories: attributes.remote_directories,
        migrate: attributes.migrate,
        purge: attributes.purge,
        access_interval: attributes.purge.then(|| access_interval(hold)),
    })
}

/// Returns the time after which an access is recorded again, for files that stay for the time `hold` after
/// it.
fn access_interval(hold: Duration) -> Duration {
    (hold / ACCESSES_PER_HOLD).clamp(ACCESS_INTERVAL_MIN, ACCESS_INTERVAL_MAX)
}

/// Returns the names of this server in replies to locate: an address of the form
/// `[::a.b.c.d]:port`, and a host name.
pub(crate) fn own_address(host: &str, port: u16) -> logical::config::OwnAddress {
    let addresses: Vec<IpAddr> = dns_lookup::lookup_host(host).map(Iterator::collect).unwrap_or_default();
    let reachable = addresses.iter().find(|address| !address.is_loopback()).or_else(|| addresses.first());
    let address = match reachable.map(IpAddr::to_canonical) {
        Some(IpAddr::V6(address)) => format!("[{address}]:{port}"),
        Some(IpAddr::V4(address)) => format!("[::{address}]:{port}"),
        None => format!("[::{}]:{port}", Ipv4Addr::LOCALHOST),
    };
    let name = if host.is_empty() { "localhost" } else { host };
    logical::config::OwnAddress { address: address.into(), name: format!("{name}:{port}").into() }
}
