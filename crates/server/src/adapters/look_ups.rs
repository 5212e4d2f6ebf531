//! Looks up names of hosts because a client asked for it.
//!
//! A look-up occupies a thread until the name service has answered or given up, which may take a minute. A client that
//! cancels its copy does not end the look-up. So the number of look-ups is limited for each client host and for all, and
//! the thread itself holds the place until it is free again: cancelling gains nothing. Look-ups beyond wait for a place
//! without a thread, in the order of their arrival, because one host may order hundreds of copies at once. Copies of one
//! client host from one source share a look-up, so a source whose name service does not answer takes one place. A
//! failure counts for all who wait for that look-up; nobody who comes after its end gets it.

use base::{ClientHost, Owner};
use client::{Resolver, Resolving};
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::Pool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Look-ups for one client host that have not ended.
pub(crate) const LOOK_UPS_PER_HOST_MAX: usize = 16;
/// Look-ups for all clients that have not ended. Each has a thread, which begins when it is needed.
pub(crate) const LOOK_UPS_MAX: usize = 128;
/// How long a look-up waits for a place.
const PATIENCE: Duration = Duration::from_secs(10);

/// Returns the addresses of a host with this port. May block.
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a host, or why there are none.
type Found = Result<Vec<SocketAddr>, String>;

/// A name that is looked up for a client host. Client hosts share no look-ups, because one may have used up its places.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Query {
    client: ClientHost,
    host: String,
    port: u16,
}

/// The look-ups of a server.
#[derive(Clone)]
pub(crate) struct LookUps(Arc<Inner>);

struct Inner {
    resolve: Box<Resolve>,
    patience: Duration,
    /// The places of all clients.
    all: Arc<Semaphore>,
    /// The places of each client host that has look-ups in progress or waiting.
    by_host: Mutex<HashMap<ClientHost, Arc<Semaphore>>>,
    /// Look-ups that have not ended, with those who wait for their results.
    shared: Mutex<HashMap<Query, Vec<oneshot::Sender<Found>>>>,
    threads: Arc<Pool>,
}

impl Default for LookUps {
    /// Asks the system's name service.
    fn default() -> Self {
        Self::new(PATIENCE, |host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }
}

impl LookUps {
    pub(crate) fn new(
        patience: Duration,
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner {
            resolve: Box::new(resolve),
            patience,
            all: Arc::new(Semaphore::new(LOOK_UPS_MAX)),
            by_host: Mutex::default(),
            shared: Mutex::default(),
            threads: Pool::new("source-names", LOOK_UPS_MAX),
        }))
    }

    /// Returns the addresses of a host with this port. The error says why there are none, or that no look-up for
    /// this client, or for any client, has ended in time to begin this one.
    pub(crate) async fn resolve(&self, client: Option<IpAddr>, host: &str, port: u16) -> Found {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let query = Query { client: ClientHost::from(client), host: host.to_owned(), port };
        loop {
            let (answered, look_up) = self.join(&query);
            let begins = look_up.is_some();
            if let Some(look_up) = look_up {
                self.begin(look_up).await;
            }
            match answered.await {
                Ok(found) => return found,
                Err(_) if begins => return Err("the look-up broke off".to_owned()),
                // Whoever waited for its place was cancelled.
                Err(_) => {}
            }
        }
    }

    /// Waits for the result of a look-up; returns the look-up too if nobody else has begun it.
    fn join(&self, query: &Query) -> (oneshot::Receiver<Found>, Option<LookUp>) {
        let (answer, answered) = oneshot::channel();
        let mut shared = self.shared();
        if let Some(waiting) = shared.get_mut(query) {
            // Before the list grows, those who were cancelled leave it.
            if waiting.len() == waiting.capacity() {
                waiting.retain(|answer| !answer.is_closed());
            }
            waiting.push(answer);
            return (answered, None);
        }
        shared.insert(query.clone(), vec![answer]);
        (answered, Some(LookUp { look_ups: self.clone(), query: query.clone(), has_ended: false }))
    }

    /// Has a thread look up a name when there is a place.
    async fn begin(&self, look_up: LookUp) {
        match self.wait_for_place(look_up.query.client).await {
            Err(why) => look_up.end(Err(why)),
            Ok(place) => {
                // The thread keeps the place, whether or not anybody still waits for the answer.
                let run = move || {
                    let found = place.resolve(&look_up.query.host, look_up.query.port);
                    look_up.end(found.map_err(|error| error.to_string()));
                };
                // Every look-up is its own owner, because the shares are those of client hosts. Dropped, a job answers.
                drop(self.0.threads.run(Owner::unique(), Box::new(run)));
            }
        }
    }

    /// Waits for a place of the client's host first: so few of its look-ups wait for one of the places of all clients.
    async fn wait_for_place(&self, client: ClientHost) -> Result<Place, String> {
        let host = HostPlaces::of(self, client);
        let of_host = self.take(&host.places, LOOK_UPS_PER_HOST_MAX, "for this client").await?;
        let of_all = self.take(&self.0.all, LOOK_UPS_MAX, "for clients of this server").await?;
        Ok(Place { _of_all: of_all, _of_host: of_host, host })
    }

    async fn take(
        &self,
        places: &Arc<Semaphore>,
        max: usize,
        whose: &str,
    ) -> Result<OwnedSemaphorePermit, String> {
        let taken = tokio::time::timeout(self.0.patience, places.clone().acquire_owned()).await;
        taken.ok().and_then(Result::ok).ok_or_else(|| {
            let waited = self.0.patience.as_secs();
            format!(
                "its name was not looked up, because none of {max} look-ups {whose} ended within {waited} s; try again later"
            )
        })
    }

    fn shared(&self) -> MutexGuard<'_, HashMap<Query, Vec<oneshot::Sender<Found>>>> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn by_host(&self) -> MutexGuard<'_, HashMap<ClientHost, Arc<Semaphore>>> {
        self.0.by_host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the resolver for what this client asks for.
    pub(crate) fn for_client(&self, client: Option<IpAddr>) -> Arc<dyn Resolver> {
        Arc::new(ClientLookUps { look_ups: self.clone(), client })
    }
}

/// A look-up that has not ended. Dropped before that, it leaves those who wait without a result.
struct LookUp {
    look_ups: LookUps,
    query: Query,
    /// The query is taken out of the table. The next look-up of the same name may be there already.
    has_ended: bool,
}

impl LookUp {
    fn end(mut self, found: Found) {
        self.has_ended = true;
        let waiting = self.look_ups.shared().remove(&self.query);
        // Who asked may have gone.
        waiting.into_iter().flatten().for_each(|answer| drop(answer.send(found.clone())));
    }
}

impl Drop for LookUp {
    fn drop(&mut self) {
        if !self.has_ended {
            let waiting = self.look_ups.shared().remove(&self.query);
            drop(waiting);
        }
    }
}

/// The place of one look-up, until this is dropped. The permits go before the places of the host.
struct Place {
    _of_all: OwnedSemaphorePermit,
    _of_host: OwnedSemaphorePermit,
    host: HostPlaces,
}

impl Place {
    /// Looks up a name, and gives the place back. May block.
    fn resolve(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.host.look_ups.0.resolve)(host, port)
    }
}

/// The places of one client host, remembered as long as anybody uses them.
struct HostPlaces {
    look_ups: LookUps,
    host: ClientHost,
    places: Arc<Semaphore>,
}

impl HostPlaces {
    fn of(look_ups: &LookUps, host: ClientHost) -> Self {
        let places = look_ups.by_host().entry(host).or_insert_with(new_host).clone();
        Self { look_ups: look_ups.clone(), host, places }
    }
}

fn new_host() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(LOOK_UPS_PER_HOST_MAX))
}

impl Drop for HostPlaces {
    fn drop(&mut self) {
        /// The table and this value.
        const LAST_USERS: usize = 2;
        let mut by_host = self.look_ups.by_host();
        if Arc::strong_count(&self.places) <= LAST_USERS {
            by_host.remove(&self.host);
        }
    }
}

/// The look-ups for one client.
struct ClientLookUps {
    look_ups: LookUps,
    client: Option<IpAddr>,
}

impl Resolver for ClientLookUps {
    fn resolve(&self, host: &str, port: u16) -> Resolving {
        let (look_ups, client, host) = (self.look_ups.clone(), self.client, host.to_owned());
        Box::pin(async move { look_ups.resolve(client, &host, port).await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Condvar;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use tokio::runtime::{Builder, Runtime};

    /// A name service that answers for names that begin with `slow` only after it was opened.
    #[derive(Default)]
    struct Service {
        open: Mutex<bool>,
        opened: Condvar,
        asked: AtomicUsize,
    }

    impl Service {
        fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
            if host.starts_with("slow") {
                self.asked.fetch_add(1, Ordering::SeqCst);
                drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
            }
            Ok(vec![SocketAddr::new(IpAddr::from([192, 0, 2, 1]), port)])
        }

        fn open(&self) {
            *self.open.lock().unwrap() = true;
            self.opened.notify_all();
        }
    }

    /// A name that nobody has looked up before.
    fn slow_name() -> String {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        format!("slow{}.example.org", NAMES.fetch_add(1, Ordering::SeqCst))
    }

    fn start() -> (Arc<Service>, LookUps, Runtime) {
        start_with(Duration::from_millis(1))
    }

    fn start_with(patience: Duration) -> (Arc<Service>, LookUps, Runtime) {
        let service = Arc::new(Service::default());
        let inside = service.clone();
        let look_ups = LookUps::new(patience, move |host, port| inside.resolve(host, port));
        (service, look_ups, Builder::new_current_thread().enable_time().build().unwrap())
    }

    fn client(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Begins a look-up of a slow name, or its wait for a place, and cancels it at once.
    async fn cancel_one(look_ups: &LookUps, from: &str) {
        let name = slow_name();
        tokio::select! {
            biased;
            _ = look_ups.resolve(client(from), &name, 1094) => panic!("it is slow"),
            () = std::future::ready(()) => {}
        }
    }

    /// The error of a look-up that finds no place.
    async fn refusal(look_ups: &LookUps, from: &str) -> String {
        look_ups.resolve(client(from), &slow_name(), 1094).await.unwrap_err()
    }

    #[test]
    fn cancelled_look_ups_of_one_host_leave_those_of_others() {
        let (service, look_ups, runtime) = start();
        runtime.block_on(async {
            for _ in 0..1000 {
                cancel_one(&look_ups, "198.51.100.1").await;
            }
            assert_eq!(
                refusal(&look_ups, "198.51.100.1").await,
                "its name was not looked up, because none of 16 look-ups for this client ended within 0 s; try again later"
            );
            let found = look_ups.resolve(client("198.51.100.2"), "fast.example.org", 1094).await;
            assert_eq!(found.unwrap(), ["192.0.2.1:1094".parse().unwrap()]);
            // An address takes no thread, so it has no limit.
            for literal in ["192.0.2.9", "2001:db8::9", "[2001:db8::9]"] {
                let found = look_ups.resolve(client("198.51.100.1"), literal, 1).await.unwrap();
                assert_eq!(found[0].ip(), literal.trim_matches(['[', ']']).parse::<IpAddr>().unwrap());
            }
            service.open();
        });
        // The threads give their places back.
        while look_ups.0.all.available_permits() < LOOK_UPS_MAX || !look_ups.by_host().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(service.asked.load(Ordering::SeqCst), LOOK_UPS_PER_HOST_MAX);
        let again = look_ups.resolve(client("198.51.100.1"), "slow.example.org", 1094);
        assert!(runtime.block_on(again).is_ok());
    }

    #[test]
    fn look_ups_of_all_hosts_have_a_limit() {
        let (service, look_ups, runtime) = start();
        runtime.block_on(async {
            for host in 0..LOOK_UPS_MAX / LOOK_UPS_PER_HOST_MAX {
                for _ in 0..LOOK_UPS_PER_HOST_MAX {
                    cancel_one(&look_ups, &format!("198.51.100.{host}")).await;
                }
            }
            let refused = refusal(&look_ups, "203.0.113.1").await;
            assert!(refused.contains("none of 128 look-ups for clients of this server"), "{refused}");
            service.open();
        });
    }

    #[test]
    fn a_host_with_many_addresses_is_one_host() {
        let (service, look_ups, runtime) = start();
        runtime.block_on(async {
            for number in 0..LOOK_UPS_PER_HOST_MAX {
                cancel_one(&look_ups, &format!("2001:db8::{number:x}")).await;
            }
            assert!(refusal(&look_ups, "2001:db8::ffff").await.contains("for this client"));
            let begun = look_ups.0.all.available_permits();
            cancel_one(&look_ups, "2001:db8:0:1::1").await;
            cancel_one(&look_ups, "::ffff:198.51.100.1").await;
            assert_eq!(look_ups.0.all.available_permits(), begun - 2);
            service.open();
        });
    }

    #[test]
    fn look_ups_beyond_the_limit_wait_for_their_turn() {
        let (service, look_ups, runtime) = start_with(Duration::from_secs(600));
        runtime.block_on(async {
            for _ in 0..LOOK_UPS_PER_HOST_MAX {
                cancel_one(&look_ups, "198.51.100.1").await;
            }
            let mut many = tokio::task::JoinSet::new();
            for _ in 0..100 {
                let look_ups = look_ups.clone();
                many.spawn(async move { look_ups.resolve(client("198.51.100.1"), &slow_name(), 1094).await });
            }
            tokio::task::yield_now().await;
            service.open();
            assert!(many.join_all().await.iter().all(Result::is_ok));
        });
    }

    #[test]
    fn copies_from_one_source_share_a_look_up() {
        let (service, look_ups, runtime) = start();
        let resolve = |from: &'static str| {
            let look_ups = look_ups.clone();
            async move { look_ups.resolve(client(from), "slow.example.org", 1094).await }
        };
        runtime.block_on(async {
            let mut many = tokio::task::JoinSet::new();
            for _ in 0..10 * LOOK_UPS_PER_HOST_MAX {
                many.spawn(resolve("198.51.100.1"));
            }
            tokio::task::yield_now().await;
            for _ in 0..1000 {
                tokio::select! {
                    biased;
                    _ = resolve("198.51.100.1") => panic!("it is slow"),
                    () = std::future::ready(()) => {}
                }
            }
            let waiting: usize = look_ups.shared().values().map(Vec::len).sum();
            assert!(waiting <= 20 * LOOK_UPS_PER_HOST_MAX, "{waiting}");
            // The name of another source is looked up meanwhile, and the same one for another client.
            let other = look_ups.resolve(client("198.51.100.1"), "fast.example.org", 1094);
            assert!(other.await.is_ok());
            many.spawn(resolve("198.51.100.2"));
            // The runtime comes back here before it has run all tasks.
            for _ in 0..10 * LOOK_UPS_PER_HOST_MAX {
                tokio::task::yield_now().await;
            }
            assert_eq!(look_ups.0.all.available_permits(), LOOK_UPS_MAX - 2);
            service.open();
            assert!(many.join_all().await.iter().all(Result::is_ok));
            assert!(look_ups.shared().is_empty());
        });
    }

    #[test]
    fn a_look_up_that_is_cancelled_before_it_begins_is_begun_by_another_copy() {
        let (service, look_ups, runtime) = start_with(Duration::from_secs(600));
        runtime.block_on(async {
            for _ in 0..LOOK_UPS_PER_HOST_MAX {
                cancel_one(&look_ups, "198.51.100.1").await;
            }
            let resolve = || {
                let look_ups = look_ups.clone();
                async move { look_ups.resolve(client("198.51.100.1"), "slow.example.org", 1094).await }
            };
            let first = tokio::spawn(resolve());
            tokio::task::yield_now().await;
            let second = tokio::spawn(resolve());
            tokio::task::yield_now().await;
            first.abort();
            assert!(first.await.unwrap_err().is_cancelled());
            service.open();
            assert!(second.await.unwrap().is_ok());
        });
    }
}
