//! [`Client`]: the settings, connections and memory that all operations of a program share.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use auth::tls::TrustAnchors;
use rawclient::Login;
use tokio::time::Instant;

use crate::buffer_pool::DataBufferPool;
use crate::channel::{Channel, Deadlines};
use crate::checksum_timeout::PendingChecksums;
use crate::connect::AddressFilter;
use crate::connection_limits::ConnectionLimits;
use crate::credentials::{CredentialChoice, Credentials};
use crate::failure::Error;
use crate::http::{HttpFile, HttpFiles, HttpPool, HttpUpload, ObjectStore, ObjectUpload};
use crate::listing_memory::ListingMemory;
use crate::pacing::RequestPacing;
use crate::pool::{ConnectionPool, ConnectionRequest};
use crate::redirect::RedirectScope;
use crate::settings::Settings;
use crate::tls_trust::{SharedTrust, TlsTrust};
use crate::url::Url;
use crate::waits::{WaitFor, Waits};

/// Timeout for one reply unless `XRD_REQUESTTIMEOUT` sets another. Arriving data and servers that
/// request more time extend it.
const ANSWER_TIME: Duration = Duration::from_secs(60);

/// Settings, connections and memory shared by operations. Clones share one client.
///
/// All its futures must run on one Tokio runtime, of either kind, because connections are driven by
/// tasks of the runtime on which they were first used. [`blocking`](crate::blocking) needs no
/// runtime.
#[derive(Clone)]
pub struct Client {
    state: Arc<ClientState>,
    /// The turns of requests.
    pacing: Option<Arc<dyn RequestPacing>>,
}

pub(crate) struct ClientState {
    pub(crate) settings: Settings,
    pub(crate) pool: ConnectionPool,
    pub(crate) http: HttpPool,
    pub(crate) blocks: DataBufferPool,
    pub(crate) pending_checksums: PendingChecksums,
    pub(crate) waits: Waits,
    pub(crate) redirects: RedirectScope,
    /// The memory that all listings share.
    listings: OnceLock<ListingMemory>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Client")
    }
}

impl Client {
    /// Creates a client of the program `program` with the settings of this process.
    #[must_use]
    pub fn new(credentials: Credentials, program: &str) -> Self {
        Self::with(Settings::of_process(), credentials, program)
    }

    /// Creates a client with these settings and credentials.
    #[must_use]
    pub fn with(settings: Settings, credentials: Credentials, program: &str) -> Self {
        let login = login_of(program, &settings);
        // Without credentials a client acts for nobody.
        let tls = if credentials.user().is_some() { TlsTrust::of_user() } else { TlsTrust::default() };
        Self::build(settings, login, credentials, None, tls, RedirectScope::Request)
    }

    /// Creates a client for a server that acts for its clients, with the credentials that they have
    /// delegated, if any. It connects only to addresses which `filter` allows, and its requests remain
    /// as they are: redirects lead to other servers, but change neither path nor user nor the given
    /// cgi. It trusts the authorities of `trusted`; `None` for those that the environment names.
    #[must_use]
    pub fn for_server(
        settings: Settings,
        program: &str,
        filter: AddressFilter,
        trusted: Option<TrustAnchors>,
        credentials: Credentials,
    ) -> Self {
        let (login, tls) = (login_of(program, &settings), TlsTrust::of(trusted));
        Self::build(settings, login, credentials, Some(filter), tls, RedirectScope::Place)
    }

    /// Creates a client as [`Self::for_server`] does, which shares its authorities with others.
    #[must_use]
    pub fn for_server_with(
        settings: Settings,
        program: &str,
        filter: AddressFilter,
        trusted: &SharedTrust,
        credentials: Credentials,
    ) -> Self {
        let (login, tls) = (login_of(program, &settings), trusted.present());
        Self::build(settings, login, credentials, Some(filter), tls, RedirectScope::Place)
    }

    /// Returns this client with requests that `pacing` can hold back. For requests about the files that it
    /// opens, see [`File::paced`](crate::File::paced).
    #[must_use]
    pub fn paced(&self, pacing: Arc<dyn RequestPacing>) -> Self {
        Self { state: self.state.clone(), pacing: Some(pacing) }
    }

    /// Returns this client with requests that are held back like those of another one.
    #[must_use]
    pub fn paced_as(&self, other: &Self) -> Self {
        Self { state: self.state.clone(), pacing: other.pacing.clone() }
    }

    /// Returns this client with requests that nothing holds back.
    pub(crate) fn unpaced(&self) -> Self {
        Self { state: self.state.clone(), pacing: None }
    }

    /// Returns the turns of its requests.
    pub(crate) fn pacing(&self) -> Option<&Arc<dyn RequestPacing>> {
        self.pacing.as_ref()
    }

    /// Creates a client with other settings, and with credentials and limits of this one.
    pub(crate) fn with_settings(&self, settings: Settings) -> Self {
        let ClientState { pool, redirects, .. } = &*self.state;
        let mut login = pool.login().clone();
        login.info.clone_from(&settings.mon_info);
        let (credentials, filter) = (pool.credentials().clone(), pool.filter().cloned());
        Self::build(settings, login, credentials, filter, pool.tls().clone(), *redirects)
    }

    fn build(
        settings: Settings,
        login: Login,
        credentials: Credentials,
        filter: Option<AddressFilter>,
        tls: TlsTrust,
        redirects: RedirectScope,
    ) -> Self {
        let blocks = DataBufferPool::default();
        let pool = ConnectionPool::new(login, credentials, filter, tls, blocks.clone());
        let state = Arc::new(ClientState {
            settings,
            pool,
            http: HttpPool::default(),
            blocks,
            pending_checksums: PendingChecksums::default(),
            waits: Waits::default(),
            redirects,
            listings: OnceLock::new(),
        });
        Self { state, pacing: None }
    }

    /// Returns the settings of the client.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.state.settings
    }

    /// Returns the pool of memory for reads. Callers can take blocks for writes from it.
    #[must_use]
    pub fn blocks(&self) -> &DataBufferPool {
        &self.state.blocks
    }

    /// Returns the connection to the server of a URL and connects if there is none. It serves
    /// requests that this library has no methods for, and queries about the server.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn channel(&self, url: &Url) -> Result<Arc<Channel>, Error> {
        let until = Instant::now() + self.settings().operation_time();
        let rounds = self.settings().connection_retry;
        let _waiting = self.waits().begin(url, WaitFor::Connection);
        let choice = &CredentialChoice::of(url);
        let wanted = ConnectionRequest { url, choice, settings: self.settings(), rounds, until };
        let made = self.state.pool.channel(wanted).await;
        made.map_err(|cause| Error::new("connect", url, cause).at(url.authority(), &[]))
    }

    /// Opens a file of an HTTP server for reading.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open_http(&self, url: &Url) -> Result<HttpFile, Error> {
        HttpFile::open(self, url).await
    }

    /// Looks whether an object of the object store may be created, which replaces one unless `is_new` is set.
    ///
    /// # Errors
    /// [`Error`], also if the requests are not those of an object store.
    pub async fn create_object(&self, url: &Url, is_new: bool) -> Result<ObjectUpload, Error> {
        ObjectUpload::open(self, url, is_new).await
    }

    /// Looks whether a file of a web server with WebDAV may be created, which replaces one unless `is_new` is set.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn create_http(&self, url: &Url, is_new: bool) -> Result<HttpUpload, Error> {
        HttpUpload::open(self, url, is_new).await
    }

    /// Returns the files of the HTTP server of a URL.
    #[must_use]
    pub fn http_files(&self, url: &Url) -> HttpFiles {
        HttpFiles::new(self.clone(), url.clone())
    }

    /// Makes a request that each server answers at once: a login, or with HTTP one for the head of `/`, whatever
    /// its answer. A client without connections makes a new one.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn probe(&self, url: &Url) -> Result<(), Error> {
        match url.is_http() {
            true => self.http_files(url).probe().await,
            false => self.channel(url).await.map(drop),
        }
    }

    /// Limits the memory of all of its listings together. Only the first limit counts.
    pub fn limit_listings(&self, memory: ListingMemory) {
        self.state.listings.set(memory).ok();
    }

    /// Limits its connections from now on. Unused ones are closed to make room for others.
    pub fn limit_connections(&self, limits: ConnectionLimits) {
        limits.add(&self.state);
        self.state.http.limit(limits.clone());
        self.state.pool.limit(limits);
    }

    /// Has its requests of HTTP be those of an object store from now on: they are signed, carry no token and no
    /// query of callers, and follow no redirect. Only the first store counts.
    pub fn use_object_store(&self, store: Arc<ObjectStore>) {
        self.state.http.use_object_store(store);
    }

    /// Reports whether its requests of HTTP are those of an object store.
    #[must_use]
    pub fn has_object_store(&self) -> bool {
        self.state.http.object_store().is_some()
    }

    /// Connects again for later requests. A connection without open files ends when its callers have left.
    pub fn forget_connections(&self) {
        self.state.pool.forget_connections();
        self.state.http.forget_connections();
    }

    /// Reports whether there is a connection to the server of a URL, of any user.
    #[must_use]
    pub fn is_connected(&self, url: &Url) -> bool {
        match url.is_http() {
            true => self.state.http.is_connected(&url.host, url.port),
            false => self.state.pool.is_connected(&url.host, url.port),
        }
    }

    /// Returns the waits of its operations.
    #[must_use]
    pub fn waits(&self) -> &Waits {
        &self.state.waits
    }

    /// Returns the memory limit for the listings that one operation holds at once.
    pub(crate) fn listing_memory(&self) -> ListingMemory {
        let bytes_max = usize::try_from(self.settings().listing_bytes).unwrap_or(usize::MAX);
        match self.state.listings.get() {
            Some(whole) => whole.part(bytes_max),
            None => ListingMemory::new(bytes_max),
        }
    }

    pub(crate) fn pending_checksums(&self) -> &PendingChecksums {
        &self.state.pending_checksums
    }

    /// Returns what redirects may change.
    pub(crate) fn redirects(&self) -> RedirectScope {
        self.state.redirects
    }

    pub(crate) fn pool(&self) -> &ConnectionPool {
        &self.state.pool
    }

    pub(crate) fn http_pool(&self) -> &HttpPool {
        &self.state.http
    }

    /// Returns the deadline of an operation that begins now.
    pub(crate) fn end(&self) -> Instant {
        Instant::now() + self.settings().operation_time()
    }

    /// Returns the deadlines of one reply within an operation that ends at `end`.
    pub(crate) fn until(&self, end: Instant) -> Deadlines {
        let settings = self.settings();
        let time = if settings.is_set("RequestTimeout") { settings.operation_time() } else { ANSWER_TIME };
        Deadlines { answer: end.min(Instant::now() + time), end }
    }
}

/// Returns the login of this process for a program.
fn login_of(program: &str, settings: &Settings) -> Login {
    let program = if settings.app_name.is_empty() { program } else { &settings.app_name };
    let mut login = Login::of_process(program);
    login.redirects = true;
    login.info.clone_from(&settings.mon_info);
    login
}
