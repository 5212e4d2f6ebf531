//! [`ProxyConfig`]: the configuration of a proxy, as plain values.

use crate::cached_origin::ProxyCache;
use crate::direct_reads::LocalClients;
use auth::sss::IdentityTable;
use auth::tls::TrustAnchors;
use base::LogicalPath;
use cache::{CacheClock, CacheStartError, DiskCacheSettings, MemoryCacheSettings};
use client::http::ObjectStore;
use client::{Credentials, Scheme, Settings, Source, Url};
use config::HostPattern;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::runtime::Handle;

/// Seconds for one attempt to connect to an origin, including the login. A black hole is then
/// reported within 5 s.
const CONNECTION_WINDOW: u64 = 4;
/// Attempts before a server is given up. The circuit breaker continues in the background.
const CONNECTION_ROUNDS: u64 = 1;

/// Seconds of silence after which a connection counts as lost: longer than any request.
const STREAM_TIMEOUT: u64 = 86_400;
/// Seconds and number of the TCP probes by which a connection that a network has swallowed is noticed, in
/// 60 s. A slow server acknowledges them.
const KEEP_ALIVE_TIME: u64 = 20;
const KEEP_ALIVE_INTERVAL: u64 = 10;
const KEEP_ALIVE_PROBES: u64 = 4;

/// An exported part of the name space.
#[derive(Clone, Debug)]
pub struct ProxyExport {
    /// The root of the export. A path belongs to the export with the longest matching prefix.
    pub prefix: LogicalPath,
    /// Refuse all changes.
    pub read_only: bool,
    /// Turn opens for writing into opens for reading.
    pub force_read_only: bool,
    /// The origin may stage missing files.
    pub stage: bool,
}

/// The disk cache of a proxy.
#[derive(Clone, Debug)]
pub struct ProxyCacheConfig {
    /// The directory of the cached files.
    pub directory: PathBuf,
    /// Sizes and limits.
    pub settings: DiskCacheSettings,
}

impl ProxyCacheConfig {
    /// Starts the cache.
    pub(crate) fn start(&self, runtime: &Handle) -> io::Result<Arc<ProxyCache>> {
        let started = cache::open_disk(&self.directory).map_err(CacheStartError::Disk).and_then(|disk| {
            ProxyCache::start(disk, &self.settings, (runtime.clone(), CacheClock::system()))
        });
        started.map_err(|error| {
            io::Error::other(format!("cannot use the cache in {}: {error}", self.directory.display()))
        })
    }
}

/// The configuration of a proxy.
#[derive(Clone)]
pub struct ProxyConfig {
    /// The exports.
    pub exports: Vec<ProxyExport>,
    /// The fixed origin; `None` if all paths name theirs.
    pub origin: Option<Url>,
    /// The object store that is the fixed origin, if it is one. Its bucket is part of `local_root`.
    pub store: Option<Arc<ObjectStore>>,
    /// Protocols by which paths may name an origin: `/root:/host:port/path`. With none, they name no origin.
    pub forwards: Vec<Scheme>,
    /// The hosts that forwarded paths may name, and to which a fixed web server may redirect; `None` for all.
    pub permits: Option<Arc<[HostPattern]>>,
    /// Prefix of paths at the fixed origin; empty for none.
    pub local_root: String,
    /// Text before each path at an origin; empty for none.
    pub host_arena: String,
    /// Settings of the client.
    pub client: Settings,
    /// Credentials for the fixed origin and for permitted ones.
    pub credentials: Credentials,
    /// The identities of clients that these credentials send in place of that of the proxy; `None` for the latter.
    pub identities: Option<Arc<IdentityTable>>,
    /// The authorities of origins with TLS; `None` for those that the environment names.
    pub trusted: Option<TrustAnchors>,
    /// Types of checksums that clients may query; all if it is empty.
    pub checksums: Vec<String>,
    /// Maximum number of connections to the fixed origin and its servers, and as many to all others.
    pub connections_max: usize,
    /// The disk cache, if there is one.
    pub cache: Option<ProxyCacheConfig>,
    /// The processes of clients on this machine, for direct reads of cached files; `None` if they are not known.
    pub local_clients: Option<Arc<dyn LocalClients>>,
    /// The sizes of the memory cache, if there is one. It is for proxies without a disk cache.
    pub memory_cache: Option<MemoryCacheSettings>,
    /// An authorization of this server decides about requests before they arrive here.
    pub has_authorization: bool,
    /// The server is in a cluster, in which another one may reach the fixed origin, which all paths have, if
    /// this one does not.
    pub in_cluster: bool,
    /// The address of this server in replies to locate: numeric form, and with a name.
    pub own_address: (Arc<str>, Arc<str>),
}

/// Returns the settings of the client before directives change them.
#[must_use]
pub fn client_settings() -> Settings {
    let mut settings = Settings::default();
    settings.connection_window = CONNECTION_WINDOW;
    settings.connection_retry = CONNECTION_ROUNDS;
    settings.stream_error_window = 0;
    // The circuit breaker decides whether a silent server is dead.
    settings.stream_timeout = STREAM_TIMEOUT;
    // A reply may take all of the time of its request.
    settings.set("RequestTimeout", &settings.request_timeout.to_string(), Source::Option).ok();
    (settings.tcp_keep_alive, settings.tcp_keep_alive_time) = (1, KEEP_ALIVE_TIME);
    (settings.tcp_keep_alive_interval, settings.tcp_keep_alive_probes) =
        (KEEP_ALIVE_INTERVAL, KEEP_ALIVE_PROBES);
    settings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_breaker_decides_about_silence_before_the_client() {
        let settings = client_settings();
        assert!(settings.silence() > settings.operation_time());
        assert!(settings.is_set("RequestTimeout"), "one reply has all of the time");
    }
}
