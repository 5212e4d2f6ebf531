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
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::Instant;

/// Time for which addresses are used without another look-up.
const ADDRESS_TIME: Duration = Duration::from_secs(60);
/// Time until a look-up that has failed is repeated, if older addresses are known.
const RETRY_TIME: Duration = Duration::from_secs(5);
/// Time for which a connection waits for new addresses if older ones are known.
const REFRESH_WAIT: Duration = Duration::from_millis(500);
/// Time for which addresses are used while look-ups fail.
const FALLBACK_TIME: Duration = Duration::from_secs(86_400);
/// Time within which a look-up has to find addresses, including the wait for its thread.
const LOOK_UP_TIME: Duration = Duration::from_secs(20);
/// Look-ups of names of one origin at once, of all origins that clients have named, and of those that the
/// clients of one host have named.
const LOOK_UPS_MAX: usize = 2;
pub(crate) const FORWARDED_LOOK_UPS_MAX: usize = 256;
pub(crate) const HOST_LOOK_UPS_MAX: usize = FORWARDED_LOOK_UPS_MAX / 4;
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
    /// Those of the origin, and those that it shares with others. They are taken in this order, so that
    /// an origin waits for its own without a permit that others need.
    permits: Vec<Arc<Semaphore>>,
    look_up: Box<LookUp>,
}

/// The addresses of one name.
struct OriginName(watch::Sender<NameState>);

struct NameState {
    addresses: Option<Vec<IpAddr>>,
    /// Time of the last look-up that found addresses.
    found: Instant,
    /// Time at which a connection last wanted them.
    used: Instant,
    /// The reason why the last look-up has failed.
    failure: Option<String>,
    /// Time of the next look-up.
    next: Instant,
    is_looked_up: bool,
}

impl OriginNames {
    /// Creates an empty table. Look-ups also take permits of each of `shared`.
    pub(crate) fn new(shared: Vec<Arc<Semaphore>>) -> Self {
        Self::with(shared, |host| {
            let found = (host, 0).to_socket_addrs().map_err(|error| error.to_string())?;
            Ok(found.map(|address| address.ip()).collect())
        })
    }

    fn with(
        shared: Vec<Arc<Semaphore>>,
        look_up: impl Fn(&str) -> Result<Vec<IpAddr>, String> + Send + Sync + 'static,
    ) -> Self {
        let own = Arc::new(Semaphore::new(LOOK_UPS_MAX));
        let permits = std::iter::once(own).chain(shared).collect();
        Self { names: Mutex::default(), look_ups: Arc::new(LookUps { permits, look_up: Box::new(look_up) }) }
    }

    fn name(&self, host: &str) -> Arc<OriginName> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(name) = names.get(host) {
            return name.clone();
        }
        if names.len() >= NAMES_MAX {
            let used = |(host, name): (&String, &Arc<OriginName>)| (name.0.borrow().used, host.clone());
            let oldest = names.iter().map(used).min_by_key(|(used, _)| *used);
            oldest.and_then(|(_, host)| names.remove(&host));
        }
        let now = Instant::now();
        let state = NameState {
            addresses: None,
            found: now,
            used: now,
            failure: None,
            next: now,
            is_looked_up: false,
        };
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
            let now = Instant::now();
            let begins = !state.is_looked_up && now >= state.next;
            (state.is_looked_up, state.used) = (state.is_looked_up || begins, now);
            begins
        });
        if begins {
            let name = self.clone();
            // The look-up goes on for later connections if this one is given up.
            tokio::spawn(async move {
                let found = tokio::time::timeout(LOOK_UP_TIME, look_ups.find(&host)).await;
                let late = || format!("the name service does not answer within {} s", LOOK_UP_TIME.as_secs());
                name.record(&host, found.unwrap_or_else(|_| Err(late())));
            });
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

    fn record(&self, host: &str, found: Result<Vec<IpAddr>, String>) {
        self.0.send_modify(|state| {
            let now = Instant::now();
            (state.is_looked_up, state.next) = (false, now);
            match found {
                Ok(addresses) => {
                    (state.addresses, state.failure, state.found) = (Some(addresses), None, now);
                    state.next += ADDRESS_TIME;
                }
                Err(failure) => {
                    if now.duration_since(state.found) >= FALLBACK_TIME {
                        state.addresses = None;
                    }
                    if state.addresses.is_some() {
                        state.next += RETRY_TIME;
                        if state.failure.is_none() {
                            tracing::info!(host, reason = failure, "no new addresses: using the last ones");
                        }
                    }
                    state.failure = Some(failure);
                }
            }
        });
    }
}

impl LookUps {
    /// Looks a name up on a thread.
    async fn find(self: Arc<Self>, host: &str) -> Result<Vec<IpAddr>, String> {
        let mut permits = Vec::with_capacity(self.permits.len());
        for limit in &self.permits {
            permits.push(limit.clone().acquire_owned().await.map_err(|error| error.to_string())?);
        }
        let (host, (answer, answered)) = (host.to_owned(), oneshot::channel());
        let look_up = move || {
            answer.send((self.look_up)(&host)).ok();
            drop(permits);
        };
        let thread = std::thread::Builder::new().name("origin-name".to_owned()).spawn(look_up);
        thread.map_err(|error| error.to_string())?;
        answered.await.unwrap_or_else(|_| Err("the look-up broke off".to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    /// Moves the clock. It is not stopped otherwise, because it would run on while a thread looks a name up.
    async fn wait(time: Duration) {
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[tokio::test]
    async fn connections_share_one_look_up() {
        let count = Arc::new(AtomicUsize::new(0));
        let (counted, answers) = (count.clone(), Arc::new(AtomicBool::new(false)));
        let answering = answers.clone();
        let names = Arc::new(OriginNames::with(Vec::new(), move |_| {
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

    #[tokio::test]
    async fn the_last_addresses_are_used_while_look_ups_fail() {
        let works = Arc::new(AtomicBool::new(true));
        let working = works.clone();
        let names = OriginNames::with(Vec::new(), move |_| match working.load(Ordering::Relaxed) {
            true => Ok(vec![ADDRESS]),
            false => Err("no name service".to_owned()),
        });
        assert!(names.resolve("o", 7).await.is_ok());
        works.store(false, Ordering::Relaxed);
        assert_eq!(names.resolve("p", 7).await, Err("no name service".to_owned()));
        for _ in 0..3 {
            wait(ADDRESS_TIME).await;
            assert_eq!(names.resolve("o", 7).await, Ok(vec![SocketAddr::new(ADDRESS, 7)]));
        }
    }

    #[tokio::test]
    async fn old_addresses_are_not_used_without_an_end() {
        let works = Arc::new(AtomicBool::new(true));
        let working = works.clone();
        let names = OriginNames::with(Vec::new(), move |_| match working.load(Ordering::Relaxed) {
            true => Ok(vec![ADDRESS]),
            false => Err("no such name".to_owned()),
        });
        assert!(names.resolve("o", 7).await.is_ok());
        works.store(false, Ordering::Relaxed);
        wait(FALLBACK_TIME - ADDRESS_TIME).await;
        assert!(names.resolve("o", 7).await.is_ok());
        wait(ADDRESS_TIME).await;
        // The addresses are used until the look-up has ended.
        let failure = loop {
            if let Err(failure) = names.resolve("o", 7).await {
                break failure;
            }
        };
        assert_eq!(failure, "no such name");
    }

    #[tokio::test]
    async fn the_name_that_is_unused_for_longest_is_forgotten() {
        let names = OriginNames::with(Vec::new(), |_| Ok(vec![ADDRESS]));
        for number in 0..NAMES_MAX {
            drop(names.name(&number.to_string()));
        }
        names.resolve("0", 7).await.unwrap();
        drop(names.name("new"));
        let kept = names.names.lock().unwrap();
        assert_eq!((kept.len(), kept.contains_key("0"), kept.contains_key("1")), (NAMES_MAX, true, false));
    }

    #[tokio::test(start_paused = true)]
    async fn a_name_service_that_never_answers_is_named_as_the_cause() {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let ended = Mutex::new(ended);
        let silent = move |_: &str| {
            ended.lock().unwrap().recv().ok();
            Err(String::new())
        };
        let shared = Arc::new(Semaphore::new(1));
        let names = OriginNames::with(vec![shared.clone()], silent);
        for host in ["a", "b", "c"] {
            let failure = names.resolve(host, 7).await.unwrap_err();
            assert!(failure.contains("does not answer"), "{failure}");
        }
        // The thread keeps its permits, and those that wait for one keep none.
        assert_eq!(shared.available_permits(), 0);
        drop(end);
        drop(shared.acquire().await.unwrap());
    }
}
