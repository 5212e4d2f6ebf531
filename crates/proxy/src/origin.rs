//! [`OriginServer`]: an origin with its client, its limits and the servers behind it.

use crate::connections::{CONNECTIONS_MAX, NameConnections, file_connection_user, own_connection_user};
use crate::limits::{
    HTTP_QUICK_REQUESTS_MAX, HTTP_REQUESTS_MAX, HTTP_SLOW_REQUESTS_MAX, PERSISTING_MAX, PLACES_MAX,
    QUEUE_MAX, REQUESTS_MAX, RequestLane, Requester, SLOW_REQUESTS_MAX,
};
use crate::names::{FORWARDED_LOOK_UPS_MAX, HOST_LOOK_UPS_MAX, OriginNames};
use crate::origin_file::is_http;
use crate::origin_hosts::OriginHosts;
use crate::place::{OriginPlace, PlaceHooks, ProbeFailure, RequestFailure};
use crate::settings::ProxyConfig;
use crate::upload_memory::UploadMemory;
use crate::upload_removals::UploadRemovals;
use base::LineLimit;
use client::http::ObjectStore;
use client::{AddressFilter, Cause, Client, ConnectionLimits, Credentials, ListingMemory, Url};
use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The name of this program in logins.
const PROGRAM: &str = "scalla proxy";
/// The user of connections that probe a server.
const PROBE_USER: &str = "probe";

/// Part of the connections to origins which clients have named that is for those of one host.
const HOST_SHARE: usize = 4;

/// An origin.
pub(crate) struct OriginServer {
    dialer: OriginDialer,
    /// The origin itself.
    pub(crate) home: Arc<OriginPlace>,
    /// Servers to which it has redirected, by address.
    places: Mutex<HashMap<String, Arc<OriginPlace>>>,
    /// Opens and quick requests about names.
    quick: RequestLane,
    quick_connections: Arc<NameConnections>,
    /// Slow requests about names.
    slow: RequestLane,
    slow_connections: Arc<NameConnections>,
    /// The memory of files that are written, if it is an object store.
    uploads: Arc<UploadMemory>,
    removals: UploadRemovals,
    /// Permits of files that persist on close.
    persisting: Arc<Semaphore>,
    /// Number of files that were opened so.
    persisting_files: AtomicU32,
}

/// The connection of one file that persists on close. The origin removes the file if the connection ends
/// before it was closed.
pub(crate) struct OwnConnection {
    client: Client,
    user: String,
    _permit: OwnedSemaphorePermit,
}

impl OwnConnection {
    /// Returns the client, with requests that are held back like those of `paced`.
    pub(crate) fn client(&self, paced: &Client) -> Client {
        self.client.paced_as(paced)
    }

    /// Returns the URL of the file. The server lets the user who has created the file go on with it, so that
    /// must be no user of other files. An identity of a client has users of its own.
    pub(crate) fn url(&self, url: Url, requester: Requester) -> Url {
        let is_shared = url.user == Some(file_connection_user(requester.owner));
        Url { user: if is_shared { Some(self.user.clone()) } else { url.user }, ..url }
    }

    /// Ends the connection as soon as its file is no longer used.
    pub(crate) fn end(&self) {
        self.client.forget_connections();
    }
}

/// The kind of a request to an origin, which determines its limit and its connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RequestKind {
    /// An open. It uses the connection for open files.
    Open,
    /// A request about names that a server answers at once, such as a stat.
    Quick,
    /// A request about names that can occupy a server for long, such as a checksum or a listing.
    Slow,
}

/// Limits that all origins which clients have named share.
pub(crate) struct ForwardedLimits {
    look_ups: Arc<Semaphore>,
    connections: ConnectionLimits,
    connections_max: usize,
    listings: ListingMemory,
    log: Arc<LineLimit>,
}

/// The part of the limits for the origins that the clients of one host have named.
#[derive(Clone)]
pub(crate) struct HostLimits {
    connections: ConnectionLimits,
    look_ups: Arc<Semaphore>,
}

impl ForwardedLimits {
    /// Creates the limits of a proxy.
    pub(crate) fn new(config: &ProxyConfig, listings: ListingMemory) -> Self {
        Self {
            look_ups: Arc::new(Semaphore::new(FORWARDED_LOOK_UPS_MAX)),
            connections: ConnectionLimits::new(CONNECTIONS_MAX, config.connections_max),
            connections_max: config.connections_max,
            listings,
            log: Arc::default(),
        }
    }

    /// Returns the part of a host that has no origins.
    pub(crate) fn of_host(&self) -> HostLimits {
        HostLimits {
            connections: self.connections.part(self.connections_max.div_ceil(HOST_SHARE)),
            look_ups: Arc::new(Semaphore::new(HOST_LOOK_UPS_MAX)),
        }
    }
}

/// Creates clients of one origin.
#[derive(Clone)]
pub(crate) struct OriginDialer {
    config: Arc<ProxyConfig>,
    credentials: Credentials,
    /// The object store, if the origin is one.
    store: Option<Arc<ObjectStore>>,
    /// The hosts to which connections may lead.
    hosts: OriginHosts,
    runtime: Handle,
    names: Arc<OriginNames>,
    limits: ConnectionLimits,
    /// The memory of all listings of the proxy.
    listings: ListingMemory,
    /// Limits the lines of the log about origins that clients have named.
    log: Option<Arc<LineLimit>>,
    /// The client that requests use now.
    current: Arc<Mutex<CurrentClient>>,
}

/// The client of an origin, and the number of trips of the origin when its connections were begun.
#[derive(Default)]
struct CurrentClient {
    client: Option<Client>,
    trips: u64,
}

impl OriginDialer {
    /// Creates the clients of the fixed origin.
    pub(crate) fn fixed(config: &Arc<ProxyConfig>, runtime: Handle, listings: &ListingMemory) -> Self {
        let credentials = config.credentials.clone();
        let (names, current) = (Arc::new(OriginNames::new(Vec::new())), Arc::default());
        let limits = ConnectionLimits::new(CONNECTIONS_MAX, config.connections_max);
        let web_server = config.origin.as_ref().filter(|url| is_http(url));
        let of_web_server = |url: &Url| OriginHosts::of_web_server(&url.host, config.permits.clone());
        let hosts = web_server.map(of_web_server).unwrap_or_default();
        let (config, listings, store) = (config.clone(), listings.clone(), config.store.clone());
        Self { config, credentials, store, hosts, runtime, names, limits, listings, log: None, current }
    }

    /// Creates the clients of an origin that a client has named.
    pub(crate) fn forwarded(
        config: &Arc<ProxyConfig>,
        runtime: Handle,
        shared: &ForwardedLimits,
        of_host: &HostLimits,
    ) -> Self {
        let fixed = Self::fixed(config, runtime, &shared.listings);
        let names = Arc::new(OriginNames::new(vec![of_host.look_ups.clone(), shared.look_ups.clone()]));
        // A client could have the credentials of this server sent to any host of its choice.
        let credentials = if config.permits.is_some() { fixed.credentials } else { Credentials::none() };
        Self {
            credentials,
            // Its keys are for no other origin.
            store: None,
            hosts: OriginHosts::permitted(config.permits.clone()),
            names,
            limits: of_host.connections.clone(),
            log: Some(shared.log.clone()),
            ..fixed
        }
    }

    /// Returns the time of a request.
    fn request_time(&self) -> Duration {
        self.config.client.operation_time()
    }

    /// Creates a client for requests.
    fn limited_client(&self) -> Client {
        let client = self.client();
        client.limit_connections(self.limits.clone());
        client.limit_listings(self.listings.clone());
        client
    }

    fn client(&self) -> Client {
        let hosts = self.hosts.clone();
        let filter =
            AddressFilter::new(move |host, address| hosts.check(host, address).map(|()| vec![address]));
        let filter = filter.with_resolver(self.names.clone());
        let ProxyConfig { client, trusted, .. } = &*self.config;
        let client =
            Client::for_server(client.clone(), PROGRAM, filter, trusted.clone(), self.credentials.clone());
        if let Some(store) = &self.store {
            client.use_object_store(store.clone());
        }
        client
    }

    /// Creates the place of a server.
    fn place(&self, url: &Url) -> Arc<OriginPlace> {
        let url = Url { user: Some(PROBE_USER.to_owned()), cgi: Default::default(), ..url.clone() };
        let (dialer, authority) = (self.clone(), url.authority());
        let (current, server, server_url) = (self.current.clone(), url.clone(), url.clone());
        let is_connected = move || {
            let current = current.lock().unwrap_or_else(PoisonError::into_inner);
            current.client.as_ref().is_some_and(|client| client.is_connected(&server))
        };
        let probe = move || -> crate::place::Probing {
            // A new client has no connection that a silent network has swallowed.
            let (client, url) = (dialer.client(), url.clone());
            Box::pin(async move {
                match client.probe(&url).await {
                    Ok(()) => Ok(()),
                    Err(error) => probe_failure(error.cause()).map_or(Ok(()), Err),
                }
            })
        };
        let hooks = PlaceHooks { probe: Box::new(probe), is_connected: Box::new(is_connected) };
        let requests_max = if is_http(&server_url) { HTTP_REQUESTS_MAX } else { REQUESTS_MAX };
        let data = RequestLane::new(requests_max, QUEUE_MAX, self.request_time());
        OriginPlace::new(authority, self.runtime.clone(), hooks, (data, self.log.clone()))
    }
}

/// Returns the failure of a probe with this cause. A refused login is an answer.
fn probe_failure(cause: &Cause) -> Option<ProbeFailure> {
    match cause {
        Cause::Unreachable(_) | Cause::Lost(_) | Cause::TimedOut(_) => {
            Some(ProbeFailure::Silent(cause.to_string()))
        }
        Cause::Unresolved(_) => Some(ProbeFailure::Unresolved(cause.to_string())),
        Cause::NoResources(_) => Some(ProbeFailure::NotMade),
        _ => None,
    }
}

impl OriginServer {
    /// Creates an origin at `url`, whose path and opaque text are ignored.
    pub(crate) fn new(url: &Url, dialer: OriginDialer) -> Arc<Self> {
        let lane = |requests_max| RequestLane::new(requests_max, QUEUE_MAX, dialer.request_time());
        let (quick_max, slow_max) = match is_http(url) {
            true => (HTTP_QUICK_REQUESTS_MAX, HTTP_SLOW_REQUESTS_MAX),
            false => (REQUESTS_MAX, SLOW_REQUESTS_MAX),
        };
        let home = dialer.place(url);
        Arc::new(Self {
            removals: UploadRemovals::new(home.clone(), dialer.runtime.clone()),
            home,
            places: Mutex::default(),
            quick: lane(quick_max),
            quick_connections: Arc::new(NameConnections::new('n')),
            slow: lane(slow_max),
            slow_connections: Arc::new(NameConnections::new('s')),
            uploads: UploadMemory::new(),
            persisting: Arc::new(Semaphore::new(PERSISTING_MAX)),
            persisting_files: AtomicU32::new(0),
            dialer,
        })
    }

    /// Returns the client. Connections of the time before the breaker opened are not used again,
    /// because a silent network may have swallowed them.
    pub(crate) fn client(&self) -> Client {
        let mut current = self.dialer.current.lock().unwrap_or_else(PoisonError::into_inner);
        let client = current.client.get_or_insert_with(|| self.dialer.limited_client()).clone();
        let trips = self.home.trips();
        if std::mem::replace(&mut current.trips, trips) != trips {
            client.forget_connections();
        }
        client
    }

    /// Returns the memory of files that are written to an object store.
    pub(crate) fn upload_memory(&self) -> &Arc<UploadMemory> {
        &self.uploads
    }

    /// Returns the removals of what files have left that were not completed.
    pub(crate) const fn upload_removals(&self) -> &UploadRemovals {
        &self.removals
    }

    /// Reports whether this is an object store.
    pub(crate) fn is_object_store(&self) -> bool {
        self.dialer.store.is_some()
    }

    /// Returns the connection for a file that is to persist on close; `None` if there are too many.
    pub(crate) fn own_connection(&self) -> Option<OwnConnection> {
        let permit = self.persisting.clone().try_acquire_owned().ok()?;
        let user = own_connection_user(self.persisting_files.fetch_add(1, Ordering::Relaxed));
        Some(OwnConnection { client: self.dialer.limited_client(), user, _permit: permit })
    }

    fn places(&self) -> MutexGuard<'_, HashMap<String, Arc<OriginPlace>>> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the place of the server at which a file is open.
    pub(crate) fn place(&self, url: &Url, origin: &Url) -> Arc<OriginPlace> {
        let authority = url.authority();
        if authority == origin.authority() {
            return self.home.clone();
        }
        let mut places = self.places();
        if let Some(place) = places.get(&authority) {
            return place.clone();
        }
        if places.len() >= PLACES_MAX {
            places.retain(|_, place| Arc::strong_count(place) > 1 || place.has_failed());
        }
        let place = self.dialer.place(url);
        if places.len() < PLACES_MAX {
            places.insert(authority, place.clone());
        }
        place
    }

    /// Returns the lane and the connections of a kind of requests.
    fn limits_of(&self, kind: RequestKind) -> (&RequestLane, Option<&Arc<NameConnections>>) {
        match kind {
            RequestKind::Open => (&self.quick, None),
            RequestKind::Quick => (&self.quick, Some(&self.quick_connections)),
            RequestKind::Slow => (&self.slow, Some(&self.slow_connections)),
        }
    }

    /// Makes a request within the limits of this origin. It gets the user of its connection, unless it uses
    /// that for open files.
    pub(crate) async fn run<T>(
        &self,
        (kind, requester): (RequestKind, Requester),
        work: impl AsyncFnOnce(Client, Option<String>) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        self.make(false, (kind, requester), work).await
    }

    /// Makes a request that changes something. Its failure tells whether the change may still happen.
    pub(crate) async fn change<T>(
        &self,
        (kind, requester): (RequestKind, Requester),
        work: impl AsyncFnOnce(Client, Option<String>) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        self.make(true, (kind, requester), work).await
    }

    async fn make<T>(
        &self,
        changes: bool,
        (kind, requester): (RequestKind, Requester),
        work: impl AsyncFnOnce(Client, Option<String>) -> Result<T, client::Error>,
    ) -> Result<T, RequestFailure> {
        let (lane, connections) = self.limits_of(kind);
        // Ends connections of the time before the breaker opened, whose requests hold turns.
        self.client();
        let turn = lane.enter(requester).await?;
        let user = connections.map(|connections| {
            let connection = connections.choose(requester);
            let user = connection.user();
            turn.set_connection(connection);
            user
        });
        // Boxed after the wait, so that a request in the queue takes little memory.
        let request = Box::pin(work(self.client().paced(turn.pacing()), user));
        let result = self.home.run(request).await;
        result.map_err(|failure| if changes && turn.is_sent() { failure.of_change() } else { failure })
    }
}
