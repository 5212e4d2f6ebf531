//! [`OriginServer`]: an origin with its client, its limits and the servers behind it.

use crate::limits::{CONNECTIONS_MAX, LOOK_UPS_MAX, PLACES_MAX, QUEUE_MAX, REQUESTS_MAX, RequestLane};
use crate::place::{OriginPlace, RequestFailure};
use crate::settings::ProxyConfig;
use base::Owner;
use client::{AddressFilter, Cause, Client, Credentials, Resolver, Resolving, Url};
use config::HostPattern;
use std::collections::HashMap;
use std::future::Future;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::{AcquireError, Semaphore, oneshot};

/// The name of this program in logins.
const PROGRAM: &str = "scalla proxy";
/// The user of connections that probe a server.
const PROBE_USER: &str = "probe";

/// An origin.
pub(crate) struct OriginServer {
    dialer: OriginDialer,
    /// The origin itself.
    pub(crate) home: Arc<OriginPlace>,
    /// Servers to which it has redirected, by address.
    places: Mutex<HashMap<String, Arc<OriginPlace>>>,
    /// The client, and the number of trips of the origin when it was created.
    client: Mutex<(Client, u64)>,
    names: RequestLane,
    pub(crate) data: RequestLane,
}

/// Creates clients of one origin.
#[derive(Clone)]
pub(crate) struct OriginDialer {
    config: Arc<ProxyConfig>,
    credentials: Credentials,
    /// The hosts to which connections may lead; `None` for all.
    permits: Option<Arc<[HostPattern]>>,
    runtime: Handle,
    look_ups: Arc<OriginLookups>,
}

impl OriginDialer {
    /// Creates the clients of the fixed origin.
    pub(crate) fn fixed(config: &Arc<ProxyConfig>, runtime: Handle) -> Self {
        let credentials = config.credentials.clone();
        let look_ups = OriginLookups { own: Arc::new(Semaphore::new(LOOK_UPS_MAX)), shared: None };
        Self { config: config.clone(), credentials, permits: None, runtime, look_ups: Arc::new(look_ups) }
    }

    /// Creates the clients of an origin that a client has named. These share the permits of look-ups.
    pub(crate) fn forwarded(config: &Arc<ProxyConfig>, runtime: Handle, shared: &Arc<Semaphore>) -> Self {
        let fixed = Self::fixed(config, runtime);
        let own = Arc::new(Semaphore::new(LOOK_UPS_MAX));
        let look_ups = Arc::new(OriginLookups { own, shared: Some(shared.clone()) });
        // A client could have the credentials of this server sent to any host of its choice.
        let credentials = if config.permits.is_some() { fixed.credentials } else { Credentials::none() };
        Self { credentials, permits: config.permits.clone(), look_ups, ..fixed }
    }

    fn client(&self) -> Client {
        let permits = self.permits.clone();
        let filter = AddressFilter::new(move |host, address| {
            let is_permitted = permits.as_ref().is_none_or(|permits| {
                let text = address.to_string();
                permits.iter().any(|pattern| pattern.matches(host) || pattern.matches(&text))
            });
            if is_permitted {
                Ok(vec![address])
            } else {
                Err(format!("{host} is not permitted (pss.permit)"))
            }
        });
        let filter = filter.with_resolver(self.look_ups.clone());
        let ProxyConfig { client, trusted, .. } = &*self.config;
        Client::for_server(client.clone(), PROGRAM, filter, trusted.clone(), self.credentials.clone())
    }

    /// Creates the place of a server.
    fn place(&self, url: &Url) -> Arc<OriginPlace> {
        let url = Url { user: Some(PROBE_USER.to_owned()), cgi: Default::default(), ..url.clone() };
        let (dialer, authority) = (self.clone(), url.authority());
        let probe = move || -> crate::place::Probing {
            // A new client has no connection that a silent network has swallowed.
            let (client, url) = (dialer.client(), url.clone());
            Box::pin(async move {
                match client.channel(&url).await {
                    Err(error) if is_silent(error.cause()) => Err(error.cause().to_string()),
                    // A refused login is an answer too.
                    _ => Ok(()),
                }
            })
        };
        OriginPlace::new(authority, self.runtime.clone(), Box::new(probe))
    }
}

/// Reports whether the server has not answered.
fn is_silent(cause: &Cause) -> bool {
    matches!(cause, Cause::Unreachable(_) | Cause::Unresolved(_) | Cause::Lost(_) | Cause::TimedOut(_))
}

impl OriginServer {
    /// Creates an origin at `url`, whose path and opaque text are ignored.
    pub(crate) fn new(url: &Url, dialer: OriginDialer) -> Arc<Self> {
        Arc::new(Self {
            home: dialer.place(url),
            places: Mutex::default(),
            client: Mutex::new((dialer.client(), 0)),
            names: RequestLane::new(REQUESTS_MAX, QUEUE_MAX),
            data: RequestLane::new(REQUESTS_MAX, QUEUE_MAX),
            dialer,
        })
    }

    /// Returns the client. Connections of the time before the breaker opened are not used again,
    /// because a silent network may have swallowed them.
    pub(crate) fn client(&self) -> Client {
        let mut client = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        let trips = self.home.trips();
        if client.1 != trips {
            *client = (self.dialer.client(), trips);
        }
        client.0.clone()
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
            places.retain(|_, place| Arc::strong_count(place) > 1);
        }
        let place = self.dialer.place(url);
        if places.len() < PLACES_MAX {
            places.insert(authority, place.clone());
        }
        place
    }

    /// Makes a request about names within the limits of this origin.
    pub(crate) async fn run<T>(
        &self,
        work: impl Future<Output = Result<T, client::Error>>,
    ) -> Result<T, RequestFailure> {
        let _turn = self.names.enter().await?;
        self.home.run(work).await
    }
}

/// Returns the user of the connection for requests of a session. Sessions share connections, so the
/// number of connections to a server is bounded.
pub(crate) fn connection_user(owner: Owner) -> String {
    format!("p{}", owner.0 % CONNECTIONS_MAX)
}

/// Look-ups of names for one origin. Their threads keep the permits, so a name service that does not
/// answer occupies few threads.
struct OriginLookups {
    own: Arc<Semaphore>,
    /// The permits of all origins that clients have named.
    shared: Option<Arc<Semaphore>>,
}

impl Resolver for OriginLookups {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let (own, shared, host) = (self.own.clone(), self.shared.clone(), host.to_owned());
        Box::pin(async move {
            if let Ok(address) = host.parse::<IpAddr>() {
                return Ok(vec![SocketAddr::new(address, port)]);
            }
            let closed = |error: AcquireError| error.to_string();
            let own = own.acquire_owned().await.map_err(closed)?;
            let shared = match shared {
                Some(shared) => Some(shared.acquire_owned().await.map_err(closed)?),
                None => None,
            };
            let (answer, answered) = oneshot::channel();
            let look_up = move || {
                let found = (host.as_str(), port).to_socket_addrs();
                drop((own, shared));
                answer.send(found.map(Iterator::collect::<Vec<_>>).map_err(|error| error.to_string())).ok();
            };
            std::thread::Builder::new()
                .name("origin-name".to_owned())
                .spawn(look_up)
                .map_err(|error| error.to_string())?;
            answered.await.unwrap_or_else(|_| Err("the look-up broke off".to_owned()))
        })
    }
}
