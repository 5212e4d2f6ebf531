//! HTTP: its configuration, and the logins of its clients.
//!
//! The requirements for clients of the xroot protocol hold for clients of HTTP. It can send a token, by which it
//! logs in as by `ztn`, or show a certificate, by which it logs in as by `gsi`; where clients must authenticate
//! otherwise, it is refused.

use crate::detailed_monitoring::DetailedMonitors;
use crate::error::StartError;
use crate::summary::metrics::{MetricsPlace, MetricsThreads};
use crate::third_party;
use crate::tls::ServerTls;
use auth::address_text;
use auth::ztn::{ZTN, credentials};
use auth::{Entity, HostName, LoginPeer, RefusedLogin, Secret, ServerLogin, ServerProtocol, ServerStep};
use base::{LineLimit, Supervisor};
use config::{Effective, PageReaders, PersistMode, TlsOperations};
use http::{
    Config, HeaderToCgi, HttpCopyObserver, HttpCounters, HttpCredentials, HttpDoor, HttpIdentity, HttpLogin,
    HttpPeer, HttpRefusal, ListingPolicy, MacaroonEndpoints, MetricsPage, StaticHeader, StatusPages,
    TapeRest,
};
use net::Door;
use session::{BearerLogin, HostRules, LoginPolicy, PendingLogins};
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;
use tokio::sync::oneshot;
use vfs::FileSystem;
use xroot::{LoginPool, PeerNames};

/// The login id of clients, where sessions of the xroot protocol have a name.
const LOGIN_ID: &str = "http";

/// HTTP of a running server.
pub(crate) struct HttpService {
    door: Arc<HttpDoor>,
    /// The server is ending.
    is_ending: Arc<AtomicBool>,
    /// The place of the metrics, if there is a page with them.
    metrics: Option<MetricsPlace>,
}

impl HttpService {
    /// Starts HTTP if the configuration asks for it. It requires of its clients what `door` does.
    pub(crate) fn start(
        effective: &Effective,
        door: &mut xroot::Config,
        (files, monitors): (&Arc<dyn FileSystem>, &DetailedMonitors),
        tls: Option<&Arc<ServerTls>>,
        supervisor: &Supervisor,
    ) -> Result<Option<Self>, StartError> {
        if !effective.serves_http() {
            return Ok(None);
        }
        let is_ending = Arc::<AtomicBool>::default();
        let memory = door.shared_memory();
        let metrics = MetricsPlace::default();
        let pages = figure_pages((effective, tls), &metrics, supervisor);
        let pages = pages.map_err(|source| StartError::System { what: "the threads of metrics", source })?;
        let has_figures = pages.iter().any(Option::is_some);
        let metrics = has_figures.then_some(metrics);
        let certificates = tls.and_then(|tls| tls.client_protocol()).cloned();
        let [page, dashboard] = pages;
        let mut config = configuration(effective, (door, certificates), memory, &is_ending, page);
        config.dashboard = dashboard;
        config.tls = tls.map(|tls| tls.https().clone());
        config.macaroons = macaroon_endpoints(effective, tls);
        let observer = monitors.copies.clone().map(|records| records as Arc<dyn HttpCopyObserver>);
        config.copies = third_party::http_copies(effective, observer);
        config.statuses = monitors.statuses.clone();
        let started = HttpDoor::start(config, files.clone());
        let door = started.map_err(|source| StartError::System { what: "the threads of HTTP", source })?;
        let encrypted = if effective.network.tls.is_some() { "HTTP and HTTPS are" } else { "HTTP is" };
        let shared = effective.shares_port_with_http().then(|| "the port of the xroot protocol".to_owned());
        let own = effective.own_http_ports().into_iter().map(|port| format!("port {port}"));
        let ports: Vec<String> = shared.into_iter().chain(own).collect();
        tracing::info!("{encrypted} served on {}", ports.join(" and "));
        Ok(Some(Self { door: Arc::new(door), is_ending, metrics }))
    }

    /// Returns the door of the port.
    pub(crate) fn door(&self) -> Arc<dyn Door> {
        self.door.clone()
    }

    /// Returns the counters.
    pub(crate) fn counters(&self) -> &Arc<HttpCounters> {
        self.door.counters()
    }

    /// Returns the place of the metrics, if there is a page with them.
    pub(crate) fn metrics(&self) -> Option<&MetricsPlace> {
        self.metrics.as_ref()
    }

    /// Takes no further requests, waits for those in progress, then closes all connections.
    pub(crate) fn drain(&self, limit: std::time::Duration) -> impl Future<Output = usize> + Send + 'static {
        self.is_ending.store(true, Ordering::Relaxed);
        self.door.drain(limit)
    }
}

fn configuration(
    effective: &Effective,
    (door, certificates): (&xroot::Config, Option<Arc<dyn ServerProtocol>>),
    memory: Arc<base::MemoryBudget>,
    is_ending: &Arc<AtomicBool>,
    metrics: Option<MetricsPage>,
) -> Config {
    let values = &effective.http;
    let headers_to_cgi = values.headers_to_cgi.iter().map(|rule| HeaderToCgi {
        header: rule.header.to_ascii_lowercase(),
        key: rule.key.clone(),
        strip_on_redirect: rule.strip_on_redirect,
    });
    let static_headers = values.static_headers.iter().map(|rule| StaticHeader {
        method: rule.method.clone(),
        name: rule.name.clone(),
        value: rule.value.value.clone(),
    });
    let listings = match (*values.denies_listings, &*values.listing_redirect) {
        (true, _) => ListingPolicy::Denied,
        (false, Some(url)) => ListingPolicy::Redirected(url.clone()),
        (false, None) => ListingPolicy::Served,
    };
    let is_ending = is_ending.clone();
    let unready = move || is_ending.load(Ordering::Relaxed).then(|| "The server is ending.".to_owned());
    let status = values.pages.status.then(|| StatusPages { unready: Arc::new(unready) });
    Config {
        login: Arc::new(HttpLogins(Arc::new(HttpLoginRules::of(effective, door, certificates)))),
        tls: door.tls.clone(),
        descriptors: door.settings.descriptors.clone(),
        memory,
        headers_to_cgi: headers_to_cgi.collect(),
        static_headers: static_headers.collect(),
        redirects_to_https: (!values.redirects_to_https.origin.is_default())
            .then_some(*values.redirects_to_https),
        cors_origins: match *values.cors {
            true => values.cors_origins.iter().map(|origin| origin.value.clone()).collect(),
            false => Vec::new(),
        },
        http2: values.pages.http2,
        sendfile: *effective.protocol.sendfile,
        delay_max: *values.delay_max,
        listings,
        accepts_uploads: accepts_uploads(effective),
        accepts_pulls: !*effective.proxy.enabled || is_object_store(effective),
        copies: None,
        statuses: None,
        macaroons: None,
        checksums: effective.protocol.checksums.offered.iter().map(|kind| kind.name().to_owned()).collect(),
        status,
        metrics,
        dashboard: None,
        tape: tape_rest(effective),
    }
}

/// Reports whether files can be uploaded: an unfinished one must be removed. In an object store and at a web server, none
/// appears. The connections to origins of the xroot protocol are shared, so it would stay there.
fn accepts_uploads(effective: &Effective) -> bool {
    if !*effective.proxy.enabled {
        return effective.logical.persist.mode != PersistMode::Off;
    }
    effective.proxy.origin.as_ref().is_some_and(|origin| {
        let fixed = origin.fixed.as_ref().map(|server| &server.protocol);
        fixed.into_iter().chain(&origin.forwards).all(|protocol| protocol.is_http())
    })
}

/// Reports whether the origin of a proxy is an object store, to which files of unknown size can be sent.
fn is_object_store(effective: &Effective) -> bool {
    effective.proxy.origin.as_ref().is_some_and(|origin| origin.bucket.is_some())
}

/// Returns the tape API, if the configuration asks for it.
fn tape_rest(effective: &Effective) -> Option<TapeRest> {
    let prefix = effective.http.pages.tape.clone()?;
    let site = effective.process.site_name.value.clone().unwrap_or_else(crate::adapters::host_name);
    Some(TapeRest { prefix, site })
}

/// Returns the endpoints for macaroons, if the configuration asks for them. The names of the server are those in
/// its configuration and in its certificate, by which clients address it.
fn macaroon_endpoints(effective: &Effective, tls: Option<&Arc<ServerTls>>) -> Option<MacaroonEndpoints> {
    effective.issues_macaroons().then(|| MacaroonEndpoints {
        needs_tls: !effective.http.macaroons_without_tls,
        is_own_host: own_names(effective, tls),
    })
}

/// Returns whether a header `Host` has a name of the server.
fn own_names(effective: &Effective, tls: Option<&Arc<ServerTls>>) -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
    let (own, tls) = (effective.host.clone(), tls.cloned());
    Arc::new(move |host: &str| {
        let names = tls.as_ref().map(|tls| tls.names()).unwrap_or_default();
        names.iter().chain([&own]).any(|name| is_host_name(host, name))
    })
}

/// Returns whether a header `Host` has a name of the server, for pages that anyone on this host may read, also without
/// TLS. The owner of a domain could lead a name of it to this server, so names with `*.` do not count. A name
/// without a domain is not that of another site.
fn page_names(
    effective: &Effective,
    tls: Option<&Arc<ServerTls>>,
) -> Arc<dyn Fn(&str) -> bool + Send + Sync> {
    let (own, tls) = (effective.host.clone(), tls.cloned());
    Arc::new(move |host: &str| {
        let names = tls.as_ref().map(|tls| tls.names()).unwrap_or_default();
        let short = own.split_once('.').map(|(first, _)| first.to_owned());
        let names = names.iter().filter(|name| !name.starts_with("*.")).chain([&own]).chain(&short);
        names.into_iter().any(|name| is_host_name(host, name) || is_host_name(host, &format!("{name}.")))
    })
}

/// Reports whether the value of a header `Host` is a name, with or without a port. A name of a certificate can
/// begin with `*.`, which stands for one label.
fn is_host_name(host: &str, name: &str) -> bool {
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    let host = match host.rsplit_once(':') {
        Some((host, port)) if is_port(port) => host,
        _ => host,
    };
    let is_label = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    match name.strip_prefix("*.") {
        Some(domain) => host
            .split_once('.')
            .is_some_and(|(label, rest)| is_label(label) && rest.eq_ignore_ascii_case(domain)),
        None => host.eq_ignore_ascii_case(name),
    }
}

/// Returns the pages that show the figures of the server: those with metrics and the dashboard.
fn figure_pages(
    (effective, tls): (&Effective, Option<&Arc<ServerTls>>),
    place: &MetricsPlace,
    supervisor: &Supervisor,
) -> io::Result<[Option<MetricsPage>; 2]> {
    let pages = &effective.http.pages;
    let readers = [&pages.metrics, &pages.dashboard];
    if readers.iter().all(|readers| **readers == PageReaders::Nobody) {
        return Ok([const { None }; 2]);
    }
    let threads = MetricsThreads::start(place, supervisor)?;
    Ok(readers.map(|readers| {
        let (readers, threads) = (readers.clone(), threads.clone());
        (readers != PageReaders::Nobody).then(|| MetricsPage {
            is_reader: Arc::new(move |address| readers.includes(address)),
            is_own_host: page_names(effective, tls),
            text: Arc::new(move |format| Box::pin(threads.clone().text(format))),
        })
    }))
}

/// The logins of HTTP.
struct HttpLogins(Arc<HttpLoginRules>);

impl HttpLogin for HttpLogins {
    fn log_in(
        &self,
        peer: HttpPeer,
        credentials: HttpCredentials,
    ) -> Pin<Box<dyn Future<Output = Result<HttpIdentity, HttpRefusal>> + Send>> {
        let rules = self.0.clone();
        Box::pin(async move { rules.log_in(peer, credentials).await })
    }
}

/// What the server asks of its clients.
struct HttpLoginRules {
    policy: Option<Arc<LoginPolicy>>,
    /// Identifies clients by the certificates of their handshakes.
    certificates: Option<Arc<dyn ServerProtocol>>,
    host_rules: Option<HostRules>,
    selects_by_address: bool,
    /// Requests without TLS are refused: operations must be encrypted or signed.
    needs_tls: bool,
    names: Option<PeerNames>,
    pending: Arc<PendingLogins>,
    pool: Option<LoginPool>,
    /// Lines about certificates of clients that are refused.
    refused_certificates: LineLimit,
}

impl HttpLoginRules {
    fn of(
        effective: &Effective,
        door: &xroot::Config,
        certificates: Option<Arc<dyn ServerProtocol>>,
    ) -> Self {
        let settings = &door.settings;
        let encrypted = settings.tls.map(|requirements| requirements.all).unwrap_or_default();
        let TlsOperations { login, session, data, .. } = encrypted;
        // Sessions of the xroot protocol may have no logins.
        let own_pool = || certificates.as_ref().map(|_| crate::login::pool());
        let pool = door.login_pool.clone().or_else(own_pool);
        Self {
            policy: settings.login.clone(),
            certificates,
            host_rules: settings.host_rules.clone(),
            selects_by_address: settings.selects_by_address,
            needs_tls: login || session || data || effective.security.signing.is_in_force(),
            names: door.peer_names.clone(),
            pending: settings.pending_logins.clone(),
            pool,
            refused_certificates: LineLimit::default(),
        }
    }

    async fn log_in(
        &self,
        peer: HttpPeer,
        credentials: HttpCredentials,
    ) -> Result<HttpIdentity, HttpRefusal> {
        if self.needs_tls && !peer.is_tls {
            return Err(HttpRefusal::Forbidden("This server requires encryption; use https.".to_owned()));
        }
        let address = peer.address.ip().to_canonical();
        let host_name = self.host_name(address).await;
        let is_selected_by_name =
            !self.selects_by_address && self.policy.as_ref().is_some_and(|policy| policy.needs_host_name());
        if is_selected_by_name && host_name == HostName::Failed {
            // The binding of the name could ask for more than that of the address.
            let text = "The name of this client's host cannot be looked up; try again later.";
            return Err(HttpRefusal::Unavailable(text.to_owned()));
        }
        let known = host_name.known().filter(|_| !self.selects_by_address).map(|name| name.to_string());
        let host = known.unwrap_or_else(|| address_text(address));
        let HttpCredentials { token, certificates } = credentials;
        let accepts = self.policy.as_ref().is_none_or(|policy| policy.accepts_certificates(&host));
        let by_certificate = certificates.filter(|_| accepts);
        let by_certificate = self.certificates.as_ref().zip(by_certificate);
        let entity = match (&self.policy, by_certificate) {
            // A token counts first where it logs clients in.
            (Some(policy), Some(_))
                if token.is_some() && policy.bearer_login(&host, peer.is_tls).is_token() =>
            {
                self.by_token(policy, peer, &host, token).await?
            }
            (_, Some((protocol, chain))) => Some(self.by_certificate(&**protocol, peer, &host, chain).await?),
            (None, None) => self.host_rules.as_ref().map(|_| Entity::of_host(&host)),
            (Some(policy), None) => self.by_token(policy, peer, &host, token).await?,
        };
        let entity = entity.map(|entity| entity.at(host_name, &address_text(address)));
        Ok(HttpIdentity { entity, host })
    }

    async fn host_name(&self, address: std::net::IpAddr) -> HostName {
        let by_login = || self.policy.as_ref().is_some_and(|policy| policy.wants_host_name());
        let by_rules = || self.host_rules.as_ref().is_some_and(|HostRules(needs_hosts)| needs_hosts());
        let is_needed = (!self.selects_by_address && by_login()) || by_rules();
        match &self.names {
            Some(PeerNames(look_up)) if is_needed => look_up(address).await,
            Some(_) => HostName::NotAsked,
            None => HostName::Unknown,
        }
    }

    /// Returns the identity of a client that shows a token or nothing.
    async fn by_token(
        &self,
        policy: &LoginPolicy,
        peer: HttpPeer,
        host: &str,
        token: Option<Secret>,
    ) -> Result<Option<Entity>, HttpRefusal> {
        Ok(match policy.bearer_login(host, peer.is_tls) {
            BearerLogin::NotNeeded => Some(Entity::of_host(host)),
            BearerLogin::Token(protocol) => Some(self.verify(&*protocol, peer, host, token).await?),
            BearerLogin::NeedsTls => {
                return Err(HttpRefusal::Forbidden("Tokens are accepted over https only.".to_owned()));
            }
            BearerLogin::Impossible => return Err(HttpRefusal::Forbidden(self.impossible(policy, host))),
        })
    }

    /// Returns the reason why a client without a certificate cannot log in.
    fn impossible(&self, policy: &LoginPolicy, host: &str) -> String {
        let text = match self.certificates.is_some() && policy.accepts_certificates(host) {
            true => "Clients must authenticate: use https with a certificate.",
            false => {
                "Clients must authenticate, which this server does not support over HTTP: its sec.protocol lines do \
                 not include ztn."
            }
        };
        text.to_owned()
    }

    /// Returns the identity of the owner of a certificate.
    async fn by_certificate(
        &self,
        protocol: &dyn ServerProtocol,
        peer: HttpPeer,
        host: &str,
        chain: Arc<[Vec<u8>]>,
    ) -> Result<Entity, HttpRefusal> {
        let login = protocol.begin_with_chain(&login_peer(peer, host), chain);
        let forbidden = |text: String| HttpRefusal::Forbidden(text);
        let login = login.ok_or_else(|| forbidden("Certificates do not count at this server.".to_owned()))?;
        self.exchange(login, peer, Secret::from(&[][..])).await?.map_err(|refused| {
            let address = peer.address.ip().to_canonical();
            if let Some(others) = self.refused_certificates.admit() {
                let reason = base::shown(refused.reason().as_bytes());
                tracing::info!(
                    "{}: {address}: the certificate of the client is refused: {reason}{others}",
                    protocol.id()
                );
            }
            forbidden(refused.text_for_peer())
        })
    }

    /// Returns the identity of the bearer of a token.
    async fn verify(
        &self,
        protocol: &dyn ServerProtocol,
        peer: HttpPeer,
        host: &str,
        token: Option<Secret>,
    ) -> Result<Entity, HttpRefusal> {
        let unauthorized = |text: &str| HttpRefusal::Unauthorized(text.to_owned());
        let token = token.ok_or_else(|| unauthorized("A token is required (Authorization: Bearer …)."))?;
        let credentials = credentials(token.expose()).map(Secret::new);
        let credentials = credentials.ok_or_else(|| unauthorized("The token is too long."))?;
        if credentials.expose().len() < protocol.credential_bytes_min() {
            return Err(unauthorized("The token is too short."));
        }
        let login = protocol.begin(&login_peer(peer, host));
        self.exchange(login, peer, credentials).await?.map_err(|refused| {
            let address = peer.address.ip().to_canonical();
            tracing::debug!("{ZTN} over HTTP: {address}: {}", base::shown(refused.reason().as_bytes()));
            HttpRefusal::Unauthorized(refused.text_for_peer())
        })
    }

    /// Executes a login whose only message are these credentials.
    async fn exchange(
        &self,
        login: Box<dyn ServerLogin>,
        peer: HttpPeer,
        credentials: Secret,
    ) -> Result<Result<Entity, RefusedLogin>, HttpRefusal> {
        let busy = || HttpRefusal::Unavailable("Too many logins wait; try again later.".to_owned());
        let pool = self.pool.as_ref().ok_or_else(busy)?;
        let address = peer.address.ip().to_canonical();
        // A step goes on without a client that has left, and counts for its host until it ends.
        let slot = Arc::new(self.pending.enter(Some(address)).map_err(|_| busy())?);
        let exchange = Arc::new(Mutex::new(login));
        loop {
            let (done, ended) = oneshot::channel();
            let (stepped, credentials, counted) = (exchange.clone(), credentials.clone(), slot.clone());
            let step = move || {
                let mut exchange = stepped.lock().unwrap_or_else(PoisonError::into_inner);
                // The request may have ended.
                let _ = done.send(exchange.step(credentials.expose(), SystemTime::now()));
                drop((exchange, counted));
            };
            if !(pool.0)(slot.owner(), Box::new(step)) {
                return Err(busy());
            }
            match ended.await {
                Ok(ServerStep::Done(entity)) => return Ok(Ok(entity)),
                Ok(ServerStep::Refused(refused)) => return Ok(Err(refused)),
                Ok(ServerStep::Later) => {
                    let (wake, woken) = oneshot::channel();
                    let waker = Box::new(move || _ = wake.send(()));
                    exchange.lock().unwrap_or_else(PoisonError::into_inner).wake_when_ready(waker);
                    woken.await.map_err(|_| busy())?;
                }
                Ok(ServerStep::Continue(_)) | Err(_) => return Err(busy()),
            }
        }
    }
}

/// Returns the client of a login.
fn login_peer(peer: HttpPeer, host: &str) -> LoginPeer {
    LoginPeer {
        address: peer.address,
        host: host.to_owned(),
        login_id: LOGIN_ID.to_owned(),
        is_tls: peer.is_tls,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_takes_files_only_for_origins_at_which_unfinished_ones_do_not_appear() {
        for (origin, expected) in [
            ("http://o", true),
            ("https://o", true),
            ("s3://bucket", true),
            ("=http,https", true),
            ("= https://o", false),
            ("=http root://o", false),
            ("=root https://o", false),
            ("root://o", false),
        ] {
            let text = format!("ofs.osslib libXrdPss.so\npss.origin {origin}\n");
            let request = config::ConfigInput { file: Some("f".to_owned()), ..Default::default() };
            let loaded = config::load(&request, &config::MemorySource::new().with("f", text.as_str()));
            assert_eq!(accepts_uploads(&loaded.effective), expected, "{origin}: {}", loaded.report);
        }
    }

    #[test]
    fn pages_have_the_names_of_the_host() {
        let request = config::ConfigInput { file: Some("f".to_owned()), ..Default::default() };
        let mut effective = config::load(&request, &config::MemorySource::new().with("f", "")).effective;
        effective.host = "h.example.org".to_owned();
        let is_own = page_names(&effective, None);
        for host in ["h.example.org", "h.example.org.:1094", "h", "h:1094", "H."] {
            assert!(is_own(host), "{host}");
        }
        for host in ["", ".", "example.org", "h.example", "evil.example.org", "h.evil.example"] {
            assert!(!is_own(host), "{host}");
        }
    }

    #[test]
    fn hosts_are_compared_with_names() {
        for (host, name) in [
            ("h.example.org", "h.example.org"),
            ("H.example.org:1094", "h.example.org"),
            ("h.example.org:443", "*.example.org"),
            ("[2001:db8::1]:1094", "[2001:db8::1]"),
        ] {
            assert!(is_host_name(host, name), "{host} {name}");
        }
        for (host, name) in [
            ("", "h.example.org"),
            ("example.org", "h.example.org"),
            ("h.example.org.evil", "h.example.org"),
            ("h.example.org:", "h.example.org"),
            ("h.example.org:1/x", "h.example.org"),
            ("h.example.org:65536", "h.example.org"),
            ("h.example.org:+1", "h.example.org"),
            ("u@h.example.org", "h.example.org"),
            ("a.b.example.org", "*.example.org"),
            (".example.org", "*.example.org"),
            ("example.org", "*.example.org"),
            ("evil/.example.org", "*.example.org"),
            ("evil:1@h.example.org", "*.example.org"),
        ] {
            assert!(!is_host_name(host, name), "{host} {name}");
        }
    }
}
