//! Host name look-ups on behalf of clients.
//!
//! A look-up occupies a thread until the name service has answered or timed out, which may take a
//! minute. A client that cancels its copy does not end the look-up. So the number of look-ups is
//! limited for each client host and for all clients, and the thread itself holds the permit until
//! it ends: cancelling gains nothing. Further look-ups wait for a permit without a thread, in the
//! order of their arrival, because one host may order hundreds of copies at once. Copies of one
//! client host from one source share a look-up, so a source whose name service does not answer
//! takes one permit. A failure counts for all copies that wait for that look-up. Later copies start
//! a new one.

use base::{ClientHost, Owner};
use client::{Resolver, Resolving};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use storage::Pool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// Maximum number of look-ups in progress for one client host.
pub(crate) const LOOK_UPS_PER_HOST_MAX: usize = 16;
/// Maximum number of look-ups in progress for all clients. Each has a thread, which is started on
/// demand.
pub(crate) const LOOK_UPS_MAX: usize = 128;
/// The time for which a look-up waits for a permit.
const PATIENCE: Duration = Duration::from_secs(10);

/// A resolver that returns the addresses of a host with this port. It may block.
type Resolve = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// The addresses of a host, or the reason of the failure.
type LookupResult = Result<Vec<SocketAddr>, String>;

/// A name and the client host for which it is looked up. Client hosts do not share look-ups,
/// because one may have used up its permits.
#[derive(Clone, PartialEq, Eq, Hash)]
struct LookupKey {
    client: ClientHost,
    host: String,
    port: u16,
}

/// The look-ups of a server.
#[derive(Clone)]
pub(crate) struct HostLookups(Arc<LookupTable>);

struct LookupTable {
    resolve: Box<Resolve>,
    patience: Duration,
    /// The permits of all clients.
    all: Arc<Semaphore>,
    /// The permits of each client host that has look-ups in progress or waiting.
    by_host: Mutex<HashMap<ClientHost, HostEntry>>,
    /// Look-ups in progress, with the receivers of their results.
    shared: Mutex<HashMap<LookupKey, Vec<oneshot::Sender<LookupResult>>>>,
    threads: Arc<Pool>,
}

impl Default for HostLookups {
    /// Uses the name service of the system.
    fn default() -> Self {
        Self::new(PATIENCE, |host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }
}

impl HostLookups {
    pub(crate) fn new(
        patience: Duration,
        resolve: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(LookupTable {
            resolve: Box::new(resolve),
            patience,
            all: Arc::new(Semaphore::new(LOOK_UPS_MAX)),
            by_host: Mutex::default(),
            shared: Mutex::default(),
            threads: Pool::new("source-names", LOOK_UPS_MAX),
        }))
    }

    /// Returns the addresses of a host with this port.
    ///
    /// The error contains the reason of the failure. A look-up also fails if no permit for this
    /// client, or for any client, became free in time.
    pub(crate) async fn resolve(&self, client: Option<IpAddr>, host: &str, port: u16) -> LookupResult {
        let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let query = LookupKey { client: ClientHost::from(client), host: host.to_owned(), port };
        loop {
            let (answered, look_up) = self.join(&query);
            let begins = look_up.is_some();
            if let Some(look_up) = look_up {
                self.begin(look_up).await;
            }
            match answered.await {
                Ok(found) => return found,
                Err(_) if begins => return Err("the look-up broke off".to_owned()),
                // The copy that waited for a permit was cancelled.
                Err(_) => {}
            }
        }
    }

    /// Subscribes to the result of a look-up. Also returns the look-up if it is new.
    fn join(&self, query: &LookupKey) -> (oneshot::Receiver<LookupResult>, Option<PendingLookup>) {
        let (answer, answered) = oneshot::channel();
        let mut shared = self.shared();
        if let Some(waiting) = shared.get_mut(query) {
            // Cancelled receivers are removed before the list grows.
            if waiting.len() == waiting.capacity() {
                waiting.retain(|answer| !answer.is_closed());
            }
            waiting.push(answer);
            return (answered, None);
        }
        shared.insert(query.clone(), vec![answer]);
        (answered, Some(PendingLookup { look_ups: self.clone(), query: query.clone(), has_ended: false }))
    }

    /// Runs a look-up on a thread as soon as there is a permit.
    async fn begin(&self, look_up: PendingLookup) {
        match self.wait_for_place(look_up.query.client).await {
            Err(why) => look_up.end(Err(why)),
            Ok(place) => {
                // The thread keeps the permit even if all receivers are dropped.
                let run = move || {
                    let found = place.resolve(&look_up.query.host, look_up.query.port);
                    look_up.end(found.map_err(|error| error.to_string()));
                };
                // Each look-up is its own owner, because the limits are per client host. A job that
                // is dropped sends an answer.
                drop(self.0.threads.run(Owner::unique(), Box::new(run)));
            }
        }
    }

    /// Waits for a permit of the client's host first, so that few of its look-ups wait for one of
    /// the permits of all clients.
    async fn wait_for_place(&self, client: ClientHost) -> Result<LookupPermit, String> {
        let host = HostPermits::of(self, client);
        let of_host = self.take(&host.places, LOOK_UPS_PER_HOST_MAX, "for this client").await?;
        let of_all = self.take(&self.0.all, LOOK_UPS_MAX, "for clients of this server").await?;
        Ok(LookupPermit { _of_all: of_all, _of_host: of_host, host })
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

    fn shared(&self) -> MutexGuard<'_, HashMap<LookupKey, Vec<oneshot::Sender<LookupResult>>>> {
        self.0.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn by_host(&self) -> MutexGuard<'_, HashMap<ClientHost, HostEntry>> {
        self.0.by_host.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the resolver for the requests of this client.
    pub(crate) fn for_client(&self, client: Option<IpAddr>) -> Arc<dyn Resolver> {
        Arc::new(ClientLookups { look_ups: self.clone(), client })
    }
}

/// A look-up in progress. If it is dropped before its end, its receivers get no result.
struct PendingLookup {
    look_ups: HostLookups,
    query: LookupKey,
    /// Set after the query was removed from the table, where the next look-up of the same name may
    /// exist already.
    has_ended: bool,
}

impl PendingLookup {
    fn end(mut self, found: LookupResult) {
        self.has_ended = true;
        let waiting = self.look_ups.shared().remove(&self.query);
        // The receiver may have been dropped.
        waiting.into_iter().flatten().for_each(|answer| drop(answer.send(found.clone())));
    }
}

impl Drop for PendingLookup {
    fn drop(&mut self) {
        if !self.has_ended {
            let waiting = self.look_ups.shared().remove(&self.query);
            drop(waiting);
        }
    }
}

/// The permit of one look-up, until it is dropped. The semaphore permits are dropped before the
/// entry of the host.
struct LookupPermit {
    _of_all: OwnedSemaphorePermit,
    _of_host: OwnedSemaphorePermit,
    host: HostPermits,
}

impl LookupPermit {
    /// Looks up a name and releases the permit. May block.
    fn resolve(self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        (self.host.look_ups.0.resolve)(host, port)
    }
}

/// The permits of one client host, which are kept while they are in use.
struct HostPermits {
    look_ups: HostLookups,
    host: ClientHost,
    places: Arc<Semaphore>,
}

/// The permits of one client host in the table.
struct HostEntry {
    places: Arc<Semaphore>,
    /// The number of [`HostPermits`]. It is counted under the lock of the table: of two that end at once,
    /// neither would be the last user of `places` otherwise.
    users: usize,
}

impl HostPermits {
    fn of(look_ups: &HostLookups, host: ClientHost) -> Self {
        let new = || HostEntry { places: Arc::new(Semaphore::new(LOOK_UPS_PER_HOST_MAX)), users: 0 };
        let mut by_host = look_ups.by_host();
        let entry = by_host.entry(host).or_insert_with(new);
        entry.users += 1;
        Self { look_ups: look_ups.clone(), host, places: entry.places.clone() }
    }
}

impl Drop for HostPermits {
    fn drop(&mut self) {
        let mut by_host = self.look_ups.by_host();
        if let Entry::Occupied(mut entry) = by_host.entry(self.host) {
            entry.get_mut().users -= 1;
            if entry.get().users == 0 {
                entry.remove();
            }
        }
    }
}

/// The look-ups for one client.
struct ClientLookups {
    look_ups: HostLookups,
    client: Option<IpAddr>,
}

impl Resolver for ClientLookups {
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

    /// A name service that does not answer for names that begin with `slow` until it is opened.
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

    /// Returns a name that was not looked up before.
    fn slow_name() -> String {
        static NAMES: AtomicUsize = AtomicUsize::new(0);
        format!("slow{}.example.org", NAMES.fetch_add(1, Ordering::SeqCst))
    }

    fn start() -> (Arc<Service>, HostLookups, Runtime) {
        start_with(Duration::from_millis(1))
    }

    fn start_with(patience: Duration) -> (Arc<Service>, HostLookups, Runtime) {
        let service = Arc::new(Service::default());
        let inside = service.clone();
        let look_ups = HostLookups::new(patience, move |host, port| inside.resolve(host, port));
        (service, look_ups, Builder::new_current_thread().enable_time().build().unwrap())
    }

    fn client(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    /// Starts a look-up of a slow name, or its wait for a permit, and cancels it immediately.
    async fn cancel_one(look_ups: &HostLookups, from: &str) {
        let name = slow_name();
        tokio::select! {
            biased;
            _ = look_ups.resolve(client(from), &name, 1094) => panic!("it is slow"),
            () = std::future::ready(()) => {}
        }
    }

    /// Returns the error of a look-up that gets no permit.
    async fn refusal(look_ups: &HostLookups, from: &str) -> String {
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
            // An address needs no thread, so it is not limited.
            for literal in ["192.0.2.9", "2001:db8::9", "[2001:db8::9]"] {
                let found = look_ups.resolve(client("198.51.100.1"), literal, 1).await.unwrap();
                assert_eq!(found[0].ip(), literal.trim_matches(['[', ']']).parse::<IpAddr>().unwrap());
            }
            service.open();
        });
        // The threads release their permits.
        while look_ups.0.all.available_permits() < LOOK_UPS_MAX || !look_ups.by_host().is_empty() {
            std::thread::yield_now();
        }
        assert_eq!(service.asked.load(Ordering::SeqCst), LOOK_UPS_PER_HOST_MAX);
        let again = look_ups.resolve(client("198.51.100.1"), "slow.example.org", 1094);
        assert!(runtime.block_on(again).is_ok());
    }

    #[test]
    fn look_ups_that_end_at_once_leave_nothing_behind() {
        let look_ups = HostLookups::new(PATIENCE, |_, _| Ok(Vec::new()));
        let host = ClientHost::from(client("198.51.100.1"));
        let (begun, left) = (std::sync::Barrier::new(4), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..2000 {
                        let permits = HostPermits::of(&look_ups, host);
                        begun.wait();
                        drop(permits);
                        begun.wait();
                        left.fetch_add(look_ups.by_host().len(), Ordering::SeqCst);
                        begun.wait();
                    }
                });
            }
        });
        assert_eq!(left.into_inner(), 0);
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
            // The name of another source is looked up meanwhile, and the same name for another
            // client.
            let other = look_ups.resolve(client("198.51.100.1"), "fast.example.org", 1094);
            assert!(other.await.is_ok());
            many.spawn(resolve("198.51.100.2"));
            // The runtime returns here before it has run all tasks.
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
