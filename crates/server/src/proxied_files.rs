//! The files of a proxy: configuration to [`ProxyFiles`].

use crate::adapters::{MachineClients, SystemClock};
use crate::assembly;
use crate::cluster::ClusterThread;
use crate::detailed_monitoring::DetailedMonitors;
use crate::error::StartError;
use crate::login;
use crate::process;
use crate::third_party;
use crate::tls;
use auth::s3::S3Credentials;
use auth::sss::IdentityTable;
use base::{LogicalPath, Supervisor};
use cache::{
    CacheLimits, ColdFiles, DirectoryQuota, DiskCacheSettings, DiskShare, FileShares, MemoryCacheSettings,
};
use client::http::ObjectStore;
use client::{Credentials, Scheme, Settings, Source, Url};
use config::{
    CacheSpace, CacheUsage, Effective, HostPattern, OriginBucket, OriginProtocol, ProxyServer, StoreValues,
};
use logical::{CopyingFiles, Prepares};
use proxy::{LocalClients, PrepareIds, ProxyCacheConfig, ProxyConfig, ProxyExport, ProxyFiles};
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use vfs::{Caller, FileSystem};

/// Divisor of the limit of descriptors for the connections to the fixed origin, and for those to origins that
/// clients name. The rest is for clients.
const CONNECTIONS_SHARE: usize = 4;

/// Time within which the name of the origin is looked up at the start.
const LOOK_UP_TIME: Duration = Duration::from_secs(10);

/// Maximum time that the end of the server waits for the records of cached files that were open.
const LAST_FILES_MAX: Duration = Duration::from_secs(2);

/// Ids of prepare requests in the form of other servers.
struct ProxyPrepares(Prepares);

impl PrepareIds for ProxyPrepares {
    fn issue(&self, caller: &Caller) -> String {
        self.0.issue(caller)
    }

    fn has_issued(&self, id: &[u8]) -> bool {
        self.0.has_issued(id)
    }
}

/// Returns the files of the origins, if this server is a proxy.
pub(crate) fn files(effective: &Effective, port: u16) -> Result<Option<Arc<ProxyFiles>>, StartError> {
    if !*effective.proxy.enabled {
        return Ok(None);
    }
    let system = |what, source| StartError::System { what, source };
    let config =
        configuration(effective, port).map_err(|why| system("the origin", std::io::Error::other(why)))?;
    if let Some(origin) = &config.origin
        && is_here(&origin.host, origin.port, port)
    {
        let why = format!("pss.origin {} is this server itself", origin.authority());
        return Err(system("the origin", std::io::Error::other(why)));
    }
    let name = format!("{}:{port}", effective.host);
    let ids = ProxyPrepares(Prepares::new(&name, &SystemClock::new()));
    let files = ProxyFiles::new(config, Box::new(ids)).map_err(|source| system("the proxy", source))?;
    Ok(Some(files))
}

/// Returns the files of a proxy with third-party copies, if a directive allows them. The cluster gets reports
/// whether the origin answers.
pub(crate) fn serve(
    files: Arc<ProxyFiles>,
    effective: &Effective,
    cluster: Option<&ClusterThread>,
    monitors: &DetailedMonitors,
    supervisor: &Supervisor,
) -> std::io::Result<Arc<dyn FileSystem>> {
    monitors.observe(&files);
    if let Some(cluster) = cluster {
        proxy::follow_origin(&files, cluster.origin_reports());
    }
    let files =
        CopyingFiles::before(files, third_party::parts(effective, monitors), Arc::new(SystemClock::new()));
    files.start_timer(supervisor)?;
    Ok(files)
}

/// Reports whether a host and port are those of this server. A host without an address is not.
fn is_here(host: &str, port: u16, own_port: u16) -> bool {
    // Only an address of this machine can be bound.
    let is_own = |address: IpAddr| UdpSocket::bind((address, 0)).is_ok();
    port == own_port && addresses(host).into_iter().any(is_own)
}

/// Returns the addresses of a host, or none if the name service does not answer in time.
fn addresses(host: &str) -> Vec<IpAddr> {
    let (host, (answer, answered)) = (host.to_owned(), std::sync::mpsc::channel());
    let look_up = move || {
        let found = dns_lookup::lookup_host(&host).map(Iterator::collect::<Vec<_>>);
        answer.send(found.unwrap_or_default()).ok();
    };
    let thread = std::thread::Builder::new().name("origin-name".to_owned()).spawn(look_up);
    thread.ok().and_then(|_| answered.recv_timeout(LOOK_UP_TIME).ok()).unwrap_or_default()
}

/// Returns the configuration of a proxy.
fn configuration(effective: &Effective, port: u16) -> Result<ProxyConfig, String> {
    let values = &effective.proxy;
    let origin = values.origin.as_ref().ok_or("pss.origin is not set")?;
    let exports = effective.storage.exports.iter().filter_map(|export| {
        Some(ProxyExport {
            prefix: LogicalPath::parse(export.prefix.as_bytes()).ok()?,
            read_only: export.attributes.read_only,
            force_read_only: export.attributes.force_read_only,
            stage: export.attributes.stage,
        })
    });
    let permits: Arc<[HostPattern]> =
        values.permits.iter().filter(|permit| permit.paths).map(|permit| permit.host.clone()).collect();
    let own = assembly::own_address(&effective.host, port);
    let checksums = effective.protocol.checksums.offered.iter();
    let local_root = values.local_root.value.clone().unwrap_or_default();
    let (fixed, local_root, store) = match &origin.bucket {
        None => (origin.fixed.as_ref().map(url).transpose()?, local_root, None),
        Some(bucket) => {
            let url = Url::parse(&values.store.url()).map_err(|error| error.to_string())?;
            let store = object_store(&url, &bucket.name, &values.store)?;
            (Some(url), format!("/{}{}{local_root}", bucket.name, bucket.prefix), Some(store))
        }
    };
    let identities = values.has_client_identities.then(Arc::<IdentityTable>::default);
    Ok(ProxyConfig {
        exports: exports.collect(),
        origin: fixed,
        store,
        forwards: origin.forwards.iter().map(|protocol| scheme(*protocol)).collect(),
        // Permits for object ids only permit no path.
        permits: (!values.permits.is_empty()).then_some(permits),
        local_root,
        host_arena: values.host_arena.value.clone().unwrap_or_default(),
        client: client_settings(effective)?,
        credentials: identities.clone().map_or_else(Credentials::of_user, Credentials::of_identities),
        identities,
        trusted: tls::trusted_servers(effective),
        checksums: checksums.map(|kind| kind.name().to_owned()).collect(),
        connections_max: crate::process::descriptors() / CONNECTIONS_SHARE,
        cache: cache(effective)?,
        local_clients: effective
            .has_direct_reads()
            .then(|| -> Arc<dyn LocalClients> { Arc::new(MachineClients::new()) }),
        memory_cache: memory_cache(effective),
        has_authorization: *effective.authorization.enabled,
        in_cluster: effective.cluster.of_proxies && origin.forwards.is_empty(),
        own_address: (own.address, own.name),
    })
}

/// Returns an object store with its keys, which are read from their file.
fn object_store(url: &Url, bucket: &str, values: &StoreValues) -> Result<Arc<ObjectStore>, String> {
    let keys = values.keys.as_ref().map(|keys| {
        login::keep_out_of_core_dumps("the keys of the object store");
        let read = S3Credentials::read(&keys.file, &keys.section);
        read.map_err(|why| format!("cannot use the keys of the object store: {why}"))
    });
    Ok(ObjectStore::new(url, bucket, &values.region, keys.transpose()?))
}

/// Time that a reader of the disk cache waits for the connection of another one.
const CACHE_PATIENCE: Duration = Duration::from_secs(4);

/// Size of the parts of files that a disk cache removes one by one. The order of removals takes about 200 bytes for each of
/// which something is stored, which is 320 MB for 100 TB of whole parts, and one part is a small share of any disk.
const CACHE_PART_BYTES: u64 = 64 << 20;

/// Time in which a client opens the cached file to which it was redirected.
const DIRECT_LEASE: Duration = Duration::from_secs(60);

/// Number of bytes of files in a cache whose pages have checksums, if the memory of the machine is not known.
const PAGED_BYTES: u64 = 1 << 30;

/// Returns the configuration of the disk cache, if there is one.
fn cache(effective: &Effective) -> Result<Option<ProxyCacheConfig>, String> {
    let values = &effective.proxy.cache;
    let directory = effective.storage.local_root.value.clone().filter(|_| *values.enabled);
    let Some(directory) = directory else { return Ok(None) };
    let CacheUsage { low, high, files, interval, cold } = *values.usage;
    let shares = files.map(|[base, nominal, most]| FileShares {
        base: space(base),
        nominal: space(nominal),
        most: space(most),
    });
    let cold = cold.map(|(age, every)| ColdFiles {
        age: i64::try_from(age.as_secs()).unwrap_or(i64::MAX),
        interval: interval.saturating_mul(every),
    });
    let settings = DiskCacheSettings {
        block_bytes: *values.block_bytes,
        part_bytes: Some(CACHE_PART_BYTES),
        memory_bytes: *values.memory,
        paged_bytes: process::memory_bytes().unwrap_or(PAGED_BYTES),
        prefetch_bytes: u64::from(*values.prefetch).saturating_mul(*values.block_bytes),
        patience: CACHE_PATIENCE,
        limits: CacheLimits { low: space(low), high: space(high), files: *values.files_bytes, shares },
        cold,
        direct: effective.has_direct_reads().then_some(DIRECT_LEASE),
        quotas: values.quota_file.value.as_deref().map_or(Ok(Vec::new()), quotas)?,
    };
    Ok(Some(ProxyCacheConfig { directory, settings }))
}

/// Returns the sizes of the memory cache, if there is one. A disk cache replaces it.
fn memory_cache(effective: &Effective) -> Option<MemoryCacheSettings> {
    let values = &effective.proxy;
    let memory = &values.memory_cache;
    (*memory.enabled && !*values.cache.enabled).then(|| MemoryCacheSettings {
        bytes: memory.size(),
        page_bytes: *memory.page_bytes,
        read_bytes_max: memory.read_bytes_max(),
        patience: CACHE_PATIENCE,
    })
}

/// Reads the quotas of directories.
fn quotas(file: &Path) -> Result<Vec<DirectoryQuota>, String> {
    let failed = |why: String| format!("pfc.purgelib: cannot use the quotas in {}: {why}", file.display());
    let text = std::fs::read_to_string(file).map_err(|error| failed(error.to_string()))?;
    let quotas = config::cache_quotas(&text).map_err(failed)?;
    Ok(quotas.into_iter().map(|(directory, bytes)| DirectoryQuota { directory, bytes }).collect())
}

fn space(space: CacheSpace) -> DiskShare {
    match space {
        CacheSpace::Share(millionths) => DiskShare::Millionths(millionths),
        CacheSpace::Bytes(bytes) => DiskShare::Bytes(bytes),
    }
}

const fn scheme(protocol: OriginProtocol) -> Scheme {
    match protocol {
        OriginProtocol::Root => Scheme::Root,
        OriginProtocol::Roots => Scheme::Roots,
        OriginProtocol::Http => Scheme::Http,
        OriginProtocol::Https => Scheme::Https,
    }
}

fn url(server: &ProxyServer) -> Result<Url, String> {
    Url::parse(&server.url()).map_err(|error| error.to_string())
}

/// Returns the settings of the client: those of a proxy, then the environment, then `pss.setopt`.
fn client_settings(effective: &Effective) -> Result<Settings, String> {
    let mut settings = proxy::client_settings();
    settings.take_environment(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    for problem in settings.problems() {
        tracing::warn!("{problem}");
    }
    for option in &effective.proxy.options {
        let set = settings.set(option.setting, &option.number.to_string(), Source::Option);
        set.map_err(|error| format!("pss.setopt: {error}"))?;
    }
    if *effective.proxy.only_ipv4 {
        settings.set("NetworkStack", "IPv4", Source::Option).map_err(|error| error.to_string())?;
    }
    Ok(settings)
}

/// Returns the reply to `query config proxy`; `None` if this server is no proxy.
pub(crate) fn query_answer(effective: &Effective) -> Option<String> {
    let origin = effective.proxy.origin.as_ref().filter(|_| *effective.proxy.enabled)?;
    let forwards = if origin.forwards.is_empty() { "" } else { "= " };
    let bucket = || origin.bucket.as_ref().map(OriginBucket::url);
    let fixed = origin.fixed.as_ref().map(ProxyServer::authority).or_else(bucket).unwrap_or_default();
    Some(format!("{forwards}{fixed}"))
}

/// Waits until the cache has recorded the use of the files that clients had open, within a limited time.
pub(crate) async fn end(proxy: Option<Arc<ProxyFiles>>) {
    if let Some(proxy) = proxy {
        proxy.cache_closed(LAST_FILES_MAX).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::{ConfigInput, MemorySource, load};

    fn effective(text: &str) -> Effective {
        let request = ConfigInput { file: Some("f".to_owned()), ..ConfigInput::default() };
        let text = format!("ofs.osslib libXrdPss.so\n{text}");
        let loaded = load(&request, &MemorySource::new().with("f", text.as_str()));
        assert!(loaded.report.is_ok(), "{}", loaded.report);
        loaded.effective
    }

    #[test]
    fn origins_and_options_are_taken_from_the_directives() {
        let text = "pss.origin roots://o.example.org:2\npss.setopt StreamTimeout 7\npss.setopt RedirectLimit 3\n\
            pss.setopt StreamTimeout 9\npss.inetmode v4\npss.localroot /store\nall.export /data r/o";
        let config = configuration(&effective(text), 1).unwrap();
        let origin = config.origin.unwrap();
        assert_eq!((origin.scheme.name(), origin.authority().as_str()), ("roots", "o.example.org:2"));
        let settings = &config.client;
        assert_eq!((settings.stream_timeout, settings.redirect_limit), (9, 3));
        assert_eq!((settings.connection_window, settings.network_stack.as_str()), (4, "IPv4"));
        assert!(config.exports[0].read_only && config.forwards.is_empty() && config.permits.is_none());
        assert_eq!(config.local_root, "/store");
    }

    #[test]
    fn a_proxy_is_not_its_own_origin() {
        for (host, port, expected) in
            [("127.0.0.1", 7, true), ("localhost", 7, true), ("127.0.0.1", 8, false), ("192.0.2.1", 7, false)]
        {
            assert_eq!(is_here(host, port, 7), expected, "{host}:{port}");
        }
    }

    #[test]
    fn permits_for_object_ids_permit_no_path() {
        let config = configuration(&effective("pss.origin =\npss.permit * *.example.org"), 1).unwrap();
        assert_eq!(config.permits.map(|permits| permits.len()), Some(0));
        let config = configuration(&effective("pss.origin =\npss.permit / *.example.org"), 1).unwrap();
        assert_eq!(config.permits.map(|permits| permits.len()), Some(1));
    }

    #[test]
    fn limits_of_a_cache_are_taken_from_the_directives() {
        let directory = std::env::temp_dir().join(format!("scalla-quotas-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, shown) = (directory.join("quotas"), directory.display());
        std::fs::write(&file, "/data 5g\n").unwrap();
        let text = format!(
            "pss.origin o:1\noss.localroot {shown}\npss.cachelib libXrdPfc.so\n\
            pfc.diskusage 0.5 0.6 files 1g 2g 0.3 purgeinterval 10m purgecoldfiles 2h 3\n\
            pfc.purgelib libXrdPfcPurgeQuota.so {}",
            file.display()
        );
        let settings = configuration(&effective(&text), 1).unwrap().cache.unwrap().settings;
        let (base, nominal) = (DiskShare::Bytes(1 << 30), DiskShare::Bytes(2 << 30));
        let most = DiskShare::Millionths(300_000);
        assert_eq!(settings.limits.shares, Some(FileShares { base, nominal, most }));
        assert_eq!(settings.cold, Some(ColdFiles { age: 7200, interval: Duration::from_secs(1800) }));
        let data = LogicalPath::parse(b"/data").unwrap();
        assert_eq!(settings.quotas, [DirectoryQuota { directory: data, bytes: 5 << 30 }]);
        for content in [Some("/data"), None] {
            std::fs::remove_file(&file).ok();
            content.into_iter().for_each(|content| std::fs::write(&file, content).unwrap());
            let error = configuration(&effective(&text), 1).err().unwrap();
            assert!(error.contains("cannot use the quotas in") && error.contains("quotas:"), "{error}");
        }
        std::fs::remove_dir_all(&directory).ok();
    }

    #[test]
    fn a_query_names_the_origin() {
        let answer = |text: &str| query_answer(&effective(text)).unwrap();
        assert_eq!(answer("pss.origin o:1"), "o:1");
        assert_eq!(answer("pss.origin [::1]:2"), "[::1]:2");
        assert_eq!(answer("pss.origin = o 3"), "= o:3");
        assert_eq!(answer("pss.origin ="), "= ");
        assert_eq!(answer("pss.origin s3://b/p"), "s3://b/p");
        assert_eq!(query_answer(&Effective::default()), None);
    }
}
