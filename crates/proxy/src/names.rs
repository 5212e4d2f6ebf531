//! [`OriginNames`]: the addresses of the servers of one origin.
//!
//! All connections share one look-up of a name, whose result is kept for a minute. While later look-ups
//! fail or are slow, the last addresses are used, so a name service that is down ends no reader. Each
//! look-up occupies a thread until the name service answers. The threads keep permits, so that a name
//! service that does not answer occupies few.

use client::{Resolver, Resolving};
use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::Instant;

/// Time for which addresses are used without another look-up.
const ADDRESS_TIME: Duration = Duration::from_secs(60);
/// Time until a look-up that has failed is repeated, if older addresses are known.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// Time for which a connection waits for new addresses if older ones are known.
const REFRESH_WAIT: Duration = Duration::from_millis(500);
/// Look-ups of names of one origin at once, and of all origins that clients have named.
const LOOK_UPS_MAX: usize = 2;
pub(crate) const FORWARDED_LOOK_UPS_MAX: usize = 256;
/// Maximum number of names of one origin whose addresses are kept.
const NAMES_MAX: usize = 4096;

/// Returns the addresses of a name, and blocks meanwhile.
type LookUp = dyn Fn(&str) -> Result<Vec<IpAddr>, String> + Send + Sync;

/// The names of the servers of one origin.
pub(crate) struct OriginNames {
    names: Mutex<HashMap<String, Arc<OriginName>>>,
    look_ups: Arc<LookUps>,
}

/// The permits of look-ups, and the function that makes them.
struct LookUps {
    own: Arc<Semaphore>,
    /// The permits of all origins that clients have named.
    shared: Option<Arc<Semaphore>>,
    look_up: Box<LookUp>,
}

/// The addresses of one name.
struct OriginName(watch::Sender<NameState>);

struct NameState {
    addresses: Option<Vec<IpAddr>>,
    /// The reason why the last look-up has failed.
    failure: Option<String>,
    /// Time of the next look-up.
    next: Instant,
    is_looked_up: bool,
}

impl OriginNames {
    /// Creates an empty table. Look-ups also take permits of `shared`.
    pub(crate) fn new(shared: Option<Arc<Semaphore>>) -> Self {
        Self::with(shared, |host| {
            let found = (host, 0).to_socket_addrs().map_err(|error| error.to_string())?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn with(
        shared: Option<Arc<Semaphore>>,
        look_up: impl Fn(&str) -> Result<Vec<IpAddr>, String> + Send + Sync + 'static,
    ) -> Self {
        let (own, look_up) = (Arc::new(Semaphore::new(LOOK_UPS_MAX)), Box::new(look_up));
        Self { names: Mutex::default(), look_ups: Arc::new(LookUps { own, shared, look_up }) }
    }

    fn name(&self, host: &str) -> Arc<OriginName> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(host) {
            return name.clone();
        }
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        let state = NameState { addresses: None, failure: None, next: Instant::now(), is_looked_up: false };
        let name = Arc::new(OriginName(watch::Sender::new(state)));
        names.insert(host.to_owned(), name.clone());
        name
    }
}

impl Resolver for OriginNames {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Box::pin(async move { Ok(vec![SocketAddr::new(address, port)]) });
        }
        let (name, look_ups, host) = (self.name(host), self.look_ups.clone(), host.to_owned());
        Box::pin(async move {
            let found = name.addresses(look_ups, host).await?;
            Ok(found.into_iter().map(|address| SocketAddr::new(address, port)).collect())
        })
    }
}

impl OriginName {
    async fn addresses(self: Arc<Self>, look_ups: Arc<LookUps>, host: String) -> Result<Vec<IpAddr>, String> {
        let mut state = self.0.subscribe();
        let begins = self.0.send_if_modified(|state| {
            let begins = !state.is_looked_up && Instant::now() >= state.next;
            state.is_looked_up |= begins;
            begins
        });
        if begins {
            let name = self.clone();
            // The look-up goes on for later connections if this one is given up.
            tokio::spawn(async move { name.record(look_ups.find(host).await) });
        }
        let is_known = state.borrow().addresses.is_some();
        let ended = state.wait_for(|state| !state.is_looked_up);
        if is_known {
            tokio::time::timeout(REFRESH_WAIT, ended).await.ok();
        } else {
            ended.await.ok();
        }
        let state = self.0.borrow();
        let failure = || state.failure.clone().unwrap_or_default();
        state.addresses.clone().ok_or_else(failure)
    }

    fn record(&self, found: Result<Vec<IpAddr>, String>) {
        self.0.send_modify(|state| {
            state.is_looked_up = false;
            state.next = Instant::now();
            match found {
                Ok(addresses) => {
                    state.addresses = Some(addresses);
                    state.next += ADDRESS_TIME;
                }
                Err(failure) => {
                    if state.addresses.is_some() {
                        state.next += RETRY_TIME;
                    }
                    state.failure = Some(failure);
                }
            }
        });
    }
}

impl LookUps {
    /// Looks a name up on a thread.
    async fn find(self: Arc<Self>, host: String) -> Result<Vec<IpAddr>, String> {
        let own = permit(&self.own).await?;
        let shared = match &self.shared {
            Some(shared) => Some(permit(shared).await?),
            None => None,
        };
        let permits = (own, shared);
        let (answer, answered) = oneshot::channel();
        let look_up = move || {
            answer.send((self.look_up)(&host)).ok();
            drop(permits);
        };
        let thread = std::thread::Builder::new().name("origin-name".to_owned()).spawn(look_up);
        thread.map_err(|error| error.to_string())?;
        answered.await.unwrap_or_else(|_| Err("the look-up broke off".to_owned()))
    }
}

async fn permit(permits: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, String> {
    permits.clone().acquire_owned().await.map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn connections_share_one_look_up() {
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, answers) = (count.clone(), Arc::new(AtomicBool::new(false)));
        let answering = answers.clone();
        let names = Arc::new(OriginNames::with(None, move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            while !answering.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            Ok(vec![ADDRESS])
        }));
        let waiting: Vec<_> = (0..64).map(|_| tokio::spawn(names.resolve("o", 7))).collect();
        tokio::task::yield_now().await;
        answers.store(true, Ordering::Relaxed);
        for found in waiting {
            assert_eq!(found.await.unwrap(), Ok(vec![SocketAddr::new(ADDRESS, 7)]));
        }
        names.resolve("o", 8).await.unwrap();
        assert_eq!(count.load(Ordering::Relaxed), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_addresses_are_used_while_look_ups_fail() {
        let works = Arc::new(AtomicBool::new(true));
        let working = works.clone();
        let names = OriginNames::with(None, move |_| match working.load(Ordering::Relaxed) {
            true => Ok(vec![ADDRESS]),
            false => Err("no name service".to_owned()),
        });
        assert!(names.resolve("o", 7).await.is_ok());
        works.store(false, Ordering::Relaxed);
        assert_eq!(names.resolve("p", 7).await, Err("no name service".to_owned()));
        for _ in 0..3 {
            tokio::time::advance(ADDRESS_TIME).await;
            assert_eq!(names.resolve("o", 7).await, Ok(vec![SocketAddr::new(ADDRESS, 7)]));
        }
    }
}
