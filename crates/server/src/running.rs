//! A server that serves: connects all components and opens the port.
//!
//! In-process tests start one with [`RunningServer::listen`], on another storage with
//! [`RunningServer::listen_over`]; programs use [`crate::daemon`].

use crate::adapters::{LeasedCreation, SystemClock, SystemUsers, install_rings};
use crate::admission::Doorkeeper;
use crate::assembly;
use crate::authorization::{LoadedAuthorization, PolicyRefresh, ServerAuthorization};
use crate::cluster::{self, ClusterThread};
use crate::detailed_monitoring::DetailedMonitors;
use crate::error::StartError;
use crate::expiry;
use crate::exported_files;
use crate::http_certificates::HttpCertificates;
use crate::http_service::HttpService;
use crate::login;
use crate::multi_user;
use crate::notification::{self, EventLines};
use crate::ports::{OpenPorts, PortAcceptors};
use crate::process::{port_owner, raise_descriptors};
use crate::proxied_files;
use crate::purging;
use crate::reader_redirect::ReaderRedirectFileSystem;
use crate::reading_clients::ReadingClients;
use crate::redirector::Redirector;
use crate::reload_reads::{PartRead, READ_TIME_MAX, ReloadReaders};
use crate::static_redirects::StaticRedirects;
use crate::summary::metrics::{MetricsSources, ServerMetrics};
use crate::summary::{ReportedServer, SummaryReporter};
use crate::third_party::{self, Handoff};
use crate::tls::{CertificateWatch, ServerTls};
use base::{Identity, LogicalPath, Supervisor};
use config::{AuthProtocol, Effective};
use logical::{
    AuthorizationRole, AuthorizedFiles, ForwardedChanges, Journals, Logical, LogicalParts, Prepares,
};
use net::{Loops, Refusals};
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use storage::posix::Posix;
use storage::{Backend, UserBackend};
use vfs::FileSystem;

/// A server that serves. Dropping it closes the port. Open connections continue until they end, so
/// [`RunningServer::drain`] must be called first if that matters.
pub struct RunningServer {
    address: SocketAddr,
    loops: Arc<Loops>,
    refusals: Arc<Refusals>,
    doorkeeper: Arc<Doorkeeper>,
    /// The files that are served; `None` for a redirector.
    logical: Option<Arc<Logical>>,
    pub(crate) transfers: Option<purging::ServerResidency>,
    /// The files of origins; `None` if this server is no proxy.
    pub(crate) proxy: Option<Arc<proxy::ProxyFiles>>,
    /// The node of the cluster; `None` for a server that stands alone.
    cluster: Option<ClusterThread>,
    /// The authorization rules; `None` if all clients may do everything.
    authorization: Option<ServerAuthorization>,
    xroot: Arc<xroot::XrootDoor>,
    /// HTTP; `None` if it is not served.
    http: Option<HttpService>,
    reporter: SummaryReporter,
    /// The authentication of clients; `None` if the address identifies them.
    login: Option<Arc<session::LoginPolicy>>,
    /// The encryption of connections; `None` without a certificate.
    tls: Option<Arc<ServerTls>>,
    monitors: Arc<DetailedMonitors>,
    /// Events for a program of the site; `None` without `ofs.notify`.
    notification: Option<Arc<EventLines>>,
    _renewals: Renewals,
    reload_readers: ReloadReaders,
    acceptors: Option<PortAcceptors>,
    supervisor: Supervisor,
}

/// The result of reading keytabs, token issuers and authorization rules again.
pub(crate) struct AccessRefresh {
    /// The reasons why keytabs and certificates are not usable, and why files are not read yet.
    pub(crate) warnings: Vec<String>,
    pub(crate) policy: PolicyRefresh,
}

/// The threads that read keys and certificates again. They end when this is dropped.
type Renewals = (Option<login::KeyRefresh>, Option<CertificateWatch>);

/// Numbers of connections refused since the start.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RefusedCounts {
    /// Connections above the maximum number.
    pub full: u64,
    /// Connections from a host that is not allowed.
    pub denied: u64,
    /// Connections with an unknown protocol.
    pub unknown: u64,
}

impl RunningServer {
    /// Opens the port that `effective` names and serves. Blocks while the journals of earlier runs
    /// are replayed.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn listen(effective: &Effective) -> Result<Self, StartError> {
        Self::listen_over(effective, |posix| posix)
    }

    /// Opens the port and serves as a node of a cluster.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn listen_in_cluster(effective: &Effective, cluster: cluster::Settings) -> Result<Self, StartError> {
        Self::listen_in_cluster_over(effective, cluster, |posix| posix)
    }

    /// Opens the port and serves as a node of a cluster, with the storage that `wrap` returns.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn listen_in_cluster_over(
        effective: &Effective,
        cluster: cluster::Settings,
        wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    ) -> Result<Self, StartError> {
        Self::start_over(effective, open(effective)?, Some(cluster), wrap, Supervisor::default())
    }

    /// Opens the port and serves, with the storage that `wrap` returns. It is for measurements and
    /// tests of a storage that is slow or fails.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn listen_over(
        effective: &Effective,
        wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
    ) -> Result<Self, StartError> {
        let ports = open(effective)?;
        Self::start_over(effective, ports, None, wrap, Supervisor::default())
    }

    /// Serves on ports that are already open.
    pub(crate) fn start(
        effective: &Effective,
        ports: OpenPorts,
        supervisor: Supervisor,
    ) -> Result<Self, StartError> {
        let port = ports.address().map(|address| address.port());
        let port = port.map_err(|source| StartError::System { what: "the address of the port", source })?;
        let cluster = cluster::configured(effective, port)?;
        Self::start_over(effective, ports, cluster, |posix| posix, supervisor)
    }

    fn start_over(
        effective: &Effective,
        ports: OpenPorts,
        cluster: Option<cluster::Settings>,
        wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
        supervisor: Supervisor,
    ) -> Result<Self, StartError> {
        let system = |what| move |source| StartError::System { what, source };
        // First, because a server that cannot authenticate must not touch anything.
        let authorization = LoadedAuthorization::load(effective)?;
        let login = login::policy(effective, authorization.as_ref().map(LoadedAuthorization::policy))?;
        let tls = ServerTls::open(effective, HttpCertificates::open(effective, login.as_ref())?)?;
        let address = ports.address().map_err(system("the address of the port"))?;
        let (role, clock) = (cluster.as_ref().map(|settings| settings.role), Arc::new(SystemClock::new()));
        let renewed = |loaded| ServerAuthorization::start(loaded, effective, &supervisor);
        let authorization = authorization.map(renewed).transpose()?;
        let monitors = DetailedMonitors::start(effective, address.port(), &supervisor)?;
        let forwarding = cluster.as_ref().map(|settings| settings.forwarding).unwrap_or_default();
        let proxy = proxied_files::files(effective, address.port())?;
        let has_files = proxy.is_none() && !role.is_some_and(|role| role.redirects());
        let logical = |users| logical(effective, address.port(), users, wrap);
        let logical = has_files.then(|| logical(multi_user::is_enabled(effective))).transpose()?;
        begin_serving(&logical, effective, &monitors, &supervisor).map_err(system("a thread"))?;
        let look = || self::logical(effective, address.port(), false, |posix| posix);
        let looks_itself = cluster.as_ref().is_some_and(cluster::Settings::looks_itself);
        let seen = if looks_itself { Some(look()?) } else { logical.clone() };
        let start = |settings| ClusterThread::start(settings, clock, address.port(), seen, &supervisor);
        let cluster = cluster.map(start).transpose()?;
        let staged = logical.as_ref().map(|logical| purging::start(logical, effective, &supervisor));
        let (own, transfers) = staged.transpose()?.unzip();
        let serve = |files| proxied_files::serve(files, effective, cluster.as_ref(), &monitors, &supervisor);
        let origins = proxy.clone().map(serve).transpose().map_err(system("a thread"))?;
        let (own, notification) = notification::watch(own.or(origins), effective)?;
        let files = served_files(effective, address.port(), own, cluster.as_ref(), forwarding)?;
        let files = guarded_files(files, effective, authorization.as_ref(), role, forwarding);
        let loops = Arc::new(start_loops(effective, &supervisor).map_err(system("threads"))?);
        let mut door = assembly::door(effective, role);
        let doorkeeper = Arc::new(Doorkeeper::new(&effective.network));
        let renewals = protect(&mut door, effective, &supervisor, login.as_ref(), tls.as_ref())?;
        connect(&mut door, (&doorkeeper, &monitors), authorization.as_ref(), cluster.as_ref());
        let http = HttpService::start(effective, &mut door, (&files, &monitors), tls.as_ref(), &supervisor)?;
        let certificates = expiry::list_certificates(login.as_ref().map(|login| &login.policy), tls.as_ref());
        let about = ReportedServer::new((address.port(), role), &logical, &proxy, certificates, &http);
        let (xroot, reporter) = SummaryReporter::open_door((door, files), effective, about, &supervisor)
            .map_err(system("a thread"))?;
        let acceptors = ports.accept(&loops, &xroot, http.as_ref(), &doorkeeper)?;
        set_metrics((&http, &reporter, &xroot), &acceptors, &cluster, transfers.as_ref(), &supervisor)?;
        Ok(Self {
            address,
            loops,
            refusals: acceptors.refusals().clone(),
            doorkeeper,
            logical,
            transfers: transfers.flatten(),
            proxy,
            cluster,
            authorization,
            xroot,
            http,
            reporter,
            login: login.map(|login| login.policy),
            tls,
            monitors: Arc::new(monitors),
            notification,
            _renewals: renewals,
            reload_readers: ReloadReaders::default(),
            acceptors: Some(acceptors),
            supervisor,
        })
    }

    #[cfg(test)]
    pub(crate) fn loops(&self) -> &Loops {
        &self.loops
    }

    /// Returns the address of the port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the supervisor, which reports threads and tasks that have ended unexpectedly. The
    /// server then no longer serves, or not all clients.
    pub fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    /// Returns the number of connections.
    pub fn connections(&self) -> usize {
        self.loops.connections()
    }

    /// Returns the files that are served; `None` for a server without files.
    pub fn logical(&self) -> Option<&Arc<Logical>> {
        self.logical.as_ref()
    }

    /// Returns the numbers of files that are open, pending or busy.
    pub fn files(&self) -> logical::LogicalStatus {
        self.logical.as_ref().map(|logical| logical.status()).unwrap_or_default()
    }

    /// Returns the cluster node; `None` for a server that stands alone.
    pub fn cluster(&self) -> Option<&ClusterThread> {
        self.cluster.as_ref()
    }

    /// Returns the numbers of refused connections.
    pub fn refused(&self) -> RefusedCounts {
        let count = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        RefusedCounts {
            full: count(&self.refusals.full),
            denied: count(&self.refusals.denied),
            unknown: count(&self.refusals.unknown),
        }
    }

    /// Applies the settings that can change while serving.
    pub(crate) fn reconfigure(&self, new: &Effective) {
        self.doorkeeper.set(&new.network);
        self.reporter.set(&new.monitoring);
    }

    /// Begins to read keys, certificate, rules, token issuers and secrets again. Returns a function that waits
    /// for them for a limited time.
    pub(crate) fn refresh_access(&self) -> impl FnOnce() -> AccessRefresh + Send + 'static {
        let (readers, supervisor) = (&self.reload_readers, &self.supervisor);
        let until = Instant::now() + READ_TIME_MAX;
        let keys = self.login.clone();
        let keys = keys.map(|keys| readers.keys.start(supervisor, until, move || login::refresh(&keys)));
        let cluster_key = self.cluster_key().cloned();
        let cluster_key =
            cluster_key.map(|key| readers.cluster_key.start(supervisor, until, move || key.refresh().err()));
        let tls = self.tls.clone();
        let tls = tls.map(|tls| readers.certificate.start(supervisor, until, move || tls.refresh()));
        let policy = self.authorization.as_ref();
        let rules = policy.and_then(ServerAuthorization::rules_refresh);
        let rules = rules.map(|refresh| readers.rules.start(supervisor, until, refresh));
        let issuers = policy.and_then(ServerAuthorization::issuers_refresh);
        let issuers = issuers.map(|refresh| readers.issuers.start(supervisor, until, refresh));
        let macaroons = policy.and_then(ServerAuthorization::secret_refresh);
        let macaroons = macaroons.map(|refresh| readers.macaroons.start(supervisor, until, refresh));
        move || {
            let mut late = Vec::new();
            let keys = read_in_time(keys, &mut late).unwrap_or_default();
            let cluster_key = read_in_time(cluster_key, &mut late).flatten();
            let certificate = read_in_time(tls, &mut late).flatten();
            let rules = read_in_time(rules, &mut late);
            let issuers = read_in_time(issuers, &mut late);
            let macaroons = read_in_time(macaroons, &mut late);
            let warnings = keys.into_iter().chain(cluster_key).chain(certificate).chain(late).collect();
            AccessRefresh { warnings, policy: PolicyRefresh { rules, issuers, macaroons } }
        }
    }

    /// Describes the macaroons, token issuers and authorization rules in force; empty without authorization.
    pub(crate) fn rules_state(&self) -> String {
        self.authorization.as_ref().map(ServerAuthorization::state).unwrap_or_default()
    }

    /// Describes the keys and the certificate in force; empty without any.
    pub(crate) fn keys_state(&self) -> String {
        let keys = self.login.as_deref().map(login::state).unwrap_or_default();
        let certificate = self.tls.as_ref().map(|tls| tls.state()).unwrap_or_default();
        let cluster = self.cluster_key().map(|key| key.state()).unwrap_or_default();
        let states = [keys, cluster, certificate].into_iter().filter(|state| !state.is_empty());
        states.collect::<Vec<_>>().join("; ")
    }

    fn cluster_key(&self) -> Option<&Arc<cluster::ClusterKey>> {
        self.cluster().and_then(ClusterThread::key)
    }

    /// Returns the encryption of connections; `None` without a certificate.
    pub(crate) fn tls(&self) -> Option<&ServerTls> {
        self.tls.as_deref()
    }

    /// Returns the number of sessions, including those that have not logged in.
    pub fn sessions(&self) -> usize {
        self.xroot.sessions()
    }

    /// Returns the counters of the xroot door since the start.
    pub fn totals(&self) -> xroot::Totals {
        self.xroot.totals()
    }

    /// Returns the connected clients.
    pub fn clients(&self) -> Vec<Identity> {
        self.xroot.clients()
    }

    /// Closes the port, lets operations in flight end within `limit`, then closes the remaining
    /// connections, ends copies, and returns the clients. The port is closed when this returns; the
    /// future does the rest.
    pub fn drain(&mut self, limit: Duration) -> impl Future<Output = Vec<Identity>> + Send + 'static {
        if let Some(cluster) = &self.cluster {
            // Before the port is closed, clients must no longer be redirected here.
            cluster.suspend(true);
        }
        self.close_port();
        let (xroot, loops, transfers) = (self.xroot.clone(), self.loops.clone(), self.transfers.clone());
        let http = self.http.as_ref().map(|http| http.drain(limit));
        let (monitors, proxy) = (self.monitors.clone(), self.proxy.clone());
        let notification = self.notification.clone();
        async move {
            let requests = async {
                if let Some(http) = http
                    && let left @ 1.. = http.await
                {
                    tracing::warn!("{left} HTTP connections were closed before their requests had ended");
                }
            };
            let (left, ()) = tokio::join!(xroot.drain(loops.handles(), limit), requests);
            purging::end(transfers).await;
            proxied_files::end(proxy).await;
            monitors.flush().await;
            notification::end(notification).await;
            left
        }
    }

    /// Removes the files with delegated credentials of clients, because the process ends. Blocks some
    /// seconds at most.
    pub(crate) fn end_exports(&self) {
        if let Some(login) = &self.login {
            exported_files::end(login.protocols());
        }
    }

    fn close_port(&mut self) {
        if let Some(acceptors) = self.acceptors.take() {
            acceptors.stop();
        }
    }
}

/// Gives HTTP the metrics of a server, which has all its parts now.
fn set_metrics(
    (http, reporter, xroot): (&Option<HttpService>, &SummaryReporter, &Arc<xroot::XrootDoor>),
    acceptors: &PortAcceptors,
    cluster: &Option<ClusterThread>,
    residency: Option<&Option<purging::ServerResidency>>,
    supervisor: &Supervisor,
) -> Result<(), StartError> {
    let Some(place) = http.as_ref().and_then(HttpService::metrics) else { return Ok(()) };
    let residency = residency.and_then(Option::as_ref);
    let sources = MetricsSources {
        refusals: acceptors.refusals().clone(),
        cluster: cluster.as_ref().map(ClusterThread::view),
        queue: residency.and_then(purging::ServerResidency::queue_directory).map(ToOwned::to_owned),
        purge: residency.and_then(|residency| residency.purge.as_ref()).map(Arc::downgrade),
    };
    let metrics = ServerMetrics::start(reporter.summary().clone(), xroot, sources, supervisor);
    place.set(metrics.map_err(|source| StartError::System { what: "a thread", source })?);
    Ok(())
}

/// Starts the loops of the connections, with io_uring and polling as configured.
fn start_loops(effective: &Effective, supervisor: &Supervisor) -> std::io::Result<Loops> {
    let loops = Loops::per_core(supervisor)?;
    install_rings(loops.handles(), *effective.process.io_uring);
    if *effective.process.polling {
        loops.poll();
    }
    Ok(loops)
}

/// Requires authentication and encryption of the clients of a front end, and starts the threads that
/// read keys and certificates again.
fn protect(
    door: &mut xroot::Config,
    effective: &Effective,
    supervisor: &Supervisor,
    login: Option<&login::ConfiguredLogin>,
    tls: Option<&Arc<ServerTls>>,
) -> Result<Renewals, StartError> {
    let thread = |source| StartError::System { what: "a thread", source };
    door.settings.selects_by_address = !*effective.network.resolve_names;
    let mut renewals = (None, None);
    let protocols = login.map(|login| login.policy.protocols()).unwrap_or_default();
    exported_files::record(protocols, &effective.admin_directory())?;
    if let Some(login) = login {
        login::require(&login.policy, effective, door);
        renewals.0 = Some(login::start_refresh(login, effective, supervisor).map_err(thread)?);
        login::await_ready(&login.policy);
    }
    if let Some(tls) = tls {
        tls.require(effective, door);
        login::encrypt(login.map(|login| &*login.policy), door);
        renewals.1 = Some(tls.watch(supervisor).map_err(thread)?);
    }
    Ok(renewals)
}

/// Gives a front end the names of hosts, the rules about them, monitoring, and the values of the cluster.
fn connect(
    door: &mut xroot::Config,
    (doorkeeper, monitors): (&Arc<Doorkeeper>, &DetailedMonitors),
    authorization: Option<&ServerAuthorization>,
    cluster: Option<&ClusterThread>,
) {
    monitors.join(door);
    door.peer_names = Some(login::peer_names(doorkeeper));
    door.settings.host_rules = authorization.map(ServerAuthorization::host_rules);
    door.settings.live_values = cluster.map(ClusterThread::live_values).unwrap_or_default();
}

/// Waits for a part of the files. Adds the reason to `late` if it cannot be read in time.
fn read_in_time<T>(part: Option<PartRead<T>>, late: &mut Vec<String>) -> Option<T> {
    part?.wait().map_err(|reason| late.push(reason)).ok()
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.close_port();
    }
}

/// Lets clients have files copied between servers, if a directive allows it, and starts the timer.
fn begin_serving(
    logical: &Option<Arc<Logical>>,
    effective: &Effective,
    monitors: &DetailedMonitors,
    supervisor: &Supervisor,
) -> io::Result<()> {
    let Some(logical) = logical else { return Ok(()) };
    if let Some(parts) = third_party::parts(effective, monitors) {
        logical.copy_for_others(parts);
    }
    logical.start_timer(supervisor)
}

/// Opens the ports that the configuration names.
fn open(effective: &Effective) -> Result<OpenPorts, StartError> {
    let descriptors = raise_descriptors(effective.network.max_fd.value).map_err(StartError::Limits)?;
    OpenPorts::open(effective, descriptors).map_err(|error| {
        let port = error.address.port();
        StartError::Port { port, owner: port_owner(port), source: error.source }
    })
}

/// Returns the files that clients reach: those of this server, or those of the nodes below it.
fn served_files(
    effective: &Effective,
    port: u16,
    own: Option<Arc<dyn FileSystem>>,
    cluster: Option<&ClusterThread>,
    forwarding: config::Forwarding,
) -> Result<Arc<dyn FileSystem>, StartError> {
    Ok(match (own, cluster.and_then(ClusterThread::front)) {
        (_, Some(front)) => {
            let name = format!("{}:{port}", effective.host);
            Redirector::new(front.clone(), forwarding, Prepares::new(&name, &SystemClock::new()))
        }
        (Some(own), None) => match cluster {
            Some(cluster) => {
                let leased = LeasedCreation::before(own, cluster.leases().clone());
                ReaderRedirectFileSystem::before(leased, cluster.reader_redirect().clone())
            }
            None => own,
        },
        (None, None) => {
            let source = std::io::Error::other("there is nothing to serve");
            return Err(StartError::System { what: "files", source });
        }
    })
}

/// Returns files behind authorization and the redirects of the configuration.
fn guarded_files(
    files: Arc<dyn FileSystem>,
    effective: &Effective,
    authorization: Option<&ServerAuthorization>,
    role: Option<config::NodeRole>,
    forwarding: config::Forwarding,
) -> Arc<dyn FileSystem> {
    let decides = match role {
        Some(role) if role.redirects() => AuthorizationRole::Redirector(ForwardedChanges {
            make_directory: forwarding.mkdir != config::ForwardWay::Off,
            rename: forwarding.mv != config::ForwardWay::Off,
        }),
        _ => AuthorizationRole::Server,
    };
    let policy = authorization.map(ServerAuthorization::policy);
    let exports = effective.storage.exports.iter();
    let exports = exports.filter_map(|export| LogicalPath::parse(export.prefix.as_bytes()).ok()).collect();
    let names_users = multi_user::is_enabled(effective);
    let files = AuthorizedFiles::before(files, policy, (decides, names_users), exports);
    let has_proxies =
        effective.security.protocols.iter().any(|one| matches!(one.value, AuthProtocol::Gsi(_)))
            || effective.asks_for_certificates();
    let files = ReadingClients::before(files, has_proxies);
    let rules = effective.protocol.redirects.iter().map(|rule| rule.value.clone()).collect();
    let copies = effective.logical.third_party.value.as_ref();
    let files = Handoff::before(files, copies.map(|copies| copies.redirects.clone()).unwrap_or_default());
    StaticRedirects::before(files, rules, &effective.host)
}

/// Creates the logical file system over the storage that `wrap` makes of the POSIX tree. With
/// `acts_for_users`, it accesses the storage with the rights of the accounts of clients.
fn logical(
    effective: &Effective,
    port: u16,
    acts_for_users: bool,
    wrap: impl FnOnce(Arc<dyn Backend>) -> Arc<dyn Backend>,
) -> Result<Arc<Logical>, StartError> {
    let config = storage::posix::Config::from_effective(&effective.storage);
    let backend =
        Posix::new(&config).map_err(|source| StartError::Storage { path: config.root.clone(), source })?;
    let backend = wrap(Arc::new(backend));
    let (backend, accounts) = match acts_for_users {
        true => {
            let switch = Arc::new(multi_user::claim()?);
            (
                Arc::new(UserBackend::new(backend, switch)) as Arc<dyn Backend>,
                Some(multi_user::accounts(effective)),
            )
        }
        false => (backend, None),
    };
    let told = assembly::logical(effective, port);
    Logical::new(LogicalParts {
        journals: Journals::on_disk(&told),
        config: told,
        backend,
        clock: Arc::new(SystemClock::new()),
        users: Arc::new(SystemUsers::new()),
        locator: None,
        accounts,
    })
    .map_err(StartError::Recovery)
}
