//! Admission of hosts by address and name (`xrd.allow`).
//!
//! A plain name stands for the addresses to which it resolves. Patterns are compared with the
//! address as text and with the name of the host. The name counts only if it resolves back to the
//! address, because the owner of an address may give it any name. Names are looked up on separate
//! threads and cached, so that a slow name server delays only the connections that need the answer.
//! A look-up goes on if its caller gives up: it keeps its permits, so that abandoned look-ups count
//! towards the limits, and its result is cached for the next attempt of the peer.

use crate::adapters::{addresses_of, confirmed_name};
use auth::HostName;
use config::{HostPattern, NetworkConfig};
use net::Admission;
use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of look-ups at a time. Further connections wait until the hail timeout ends them.
const LOOKUPS_MAX: usize = 16;

/// Maximum number of these for addresses of one network (/24 or /64), so that a slow name service
/// of one owner does not delay others.
const LOOKUPS_PER_NETWORK: usize = 4;

/// Maximum number of cached names. When it is exceeded, all are evicted.
const NAMES_MAX: usize = 65_536;

/// Maximum age of cached addresses if some name had none, because it may resolve soon.
const UNKNOWN_BELIEVED: Duration = Duration::from_secs(60);

/// The cached names of addresses, with the time of the look-up.
type NameCache = HashMap<IpAddr, (HostName, Instant)>;

/// The admission rules, which a reload replaces, and the cache of names.
pub(crate) struct Doorkeeper {
    rules: RwLock<Arc<AdmissionRules>>,
    names: Arc<Mutex<NameCache>>,
    lookups: Arc<Semaphore>,
    /// Permits of connections that need the name of one address: the first looks it up, the others
    /// find it in the cache.
    askers: Arc<KeyedLimit<IpAddr>>,
    networks: Arc<KeyedLimit<IpAddr>>,
    resolver: NameService,
}

/// A limit of concurrent operations for each key.
struct KeyedLimit<K> {
    turns: usize,
    keys: Mutex<HashMap<K, Arc<Semaphore>>>,
}

/// A permit for a key. The last one of a key removes its entry.
struct KeyPermit<K: Eq + Hash + Copy> {
    turns: Arc<KeyedLimit<K>>,
    key: K,
    semaphore: Option<Arc<Semaphore>>,
    permit: Option<OwnedSemaphorePermit>,
}

impl<K: Eq + Hash + Copy> KeyedLimit<K> {
    fn new(turns: usize) -> Arc<Self> {
        Arc::new(Self { turns, keys: Mutex::default() })
    }

    fn keys(&self) -> MutexGuard<'_, HashMap<K, Arc<Semaphore>>> {
        self.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take(self: &Arc<Self>, key: K) -> KeyPermit<K> {
        let semaphore =
            self.keys().entry(key).or_insert_with(|| Arc::new(Semaphore::new(self.turns))).clone();
        // Created before the wait, so that a cancelled wait removes its entry too.
        let mut turn =
            KeyPermit { turns: self.clone(), key, semaphore: Some(semaphore.clone()), permit: None };
        turn.permit = semaphore.acquire_owned().await.ok();
        turn
    }
}

impl<K: Eq + Hash + Copy> Drop for KeyPermit<K> {
    fn drop(&mut self) {
        let mut keys = self.turns.keys();
        self.permit = None;
        self.semaphore = None;
        if keys.get(&self.key).is_some_and(|semaphore| Arc::strong_count(semaphore) == 1) {
            keys.remove(&self.key);
        }
    }
}

/// Returns the network of an address: its first three or eight bytes.
fn network_of(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::from((u32::from(address) & !0xff).to_be_bytes()),
        IpAddr::V6(address) => IpAddr::from((u128::from(address) >> 64 << 64).to_be_bytes()),
    }
}

/// The functions that look up names and addresses. They block.
#[derive(Clone, Copy)]
struct NameService {
    /// Returns the name of an address, known if it resolves back to the address.
    name: fn(IpAddr) -> HostName,
    /// Returns the addresses of a name.
    addresses: fn(&str) -> Vec<IpAddr>,
}

/// The part of the configuration that decides.
struct AdmissionRules {
    allow: Vec<HostPattern>,
    by_name: bool,
    believed: Duration,
    /// The cached addresses of the plain names in the rules, and the time at which they are stale.
    named: AllowedAddresses,
}

type AllowedAddresses = Arc<tokio::sync::Mutex<Option<(Arc<HashSet<IpAddr>>, Instant)>>>;

impl AdmissionRules {
    fn new(network: &NetworkConfig) -> Arc<Self> {
        Arc::new(Self {
            allow: network.allow.iter().map(|pattern| pattern.value.clone()).collect(),
            by_name: network.resolve_names.value,
            believed: network.name_cache.value,
            named: AllowedAddresses::default(),
        })
    }

    /// Returns the addresses that are allowed by name. The first caller looks them up while the
    /// others wait.
    async fn named(&self, resolver: NameService) -> Option<Arc<HashSet<IpAddr>>> {
        let hosts: Vec<String> = self.allow.iter().filter_map(|p| p.host().map(str::to_owned)).collect();
        if hosts.is_empty() {
            return None;
        }
        let mut known = self.named.clone().lock_owned().await;
        if let Some((addresses, until)) = known.as_ref()
            && Instant::now() < *until
        {
            return Some(addresses.clone());
        }
        let believed = self.believed;
        run_blocking(move || {
            let found: Vec<_> = hosts.iter().map(|host| (resolver.addresses)(host)).collect();
            let is_complete = !found.iter().any(Vec::is_empty);
            let believed = if is_complete { believed } else { believed.min(UNKNOWN_BELIEVED) };
            let addresses: Arc<HashSet<IpAddr>> = Arc::new(found.into_iter().flatten().collect());
            *known = Some((addresses.clone(), Instant::now() + believed));
            addresses
        })
        .await
    }

    fn fits(&self, host: &str) -> bool {
        self.allow.iter().any(|pattern| pattern.matches(host))
    }

    /// Reports whether names of hosts can decide.
    fn needs_names(&self) -> bool {
        self.by_name
            && self.allow.iter().any(|pattern| !pattern.is_of_addresses() && pattern.host().is_none())
    }
}

impl Doorkeeper {
    /// Returns the decision about new connections.
    pub(crate) fn admission(keeper: Arc<Self>) -> Admission {
        Arc::new(move |address| {
            let keeper = keeper.clone();
            Box::pin(async move { keeper.admits(address).await })
        })
    }

    pub(crate) fn new(network: &NetworkConfig) -> Self {
        Self::with_resolver(network, NameService { name: confirmed_name, addresses: addresses_of })
    }

    fn with_resolver(network: &NetworkConfig, resolver: NameService) -> Self {
        Self {
            rules: RwLock::new(AdmissionRules::new(network)),
            names: Arc::default(),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            askers: KeyedLimit::new(1),
            networks: KeyedLimit::new(LOOKUPS_PER_NETWORK),
            resolver,
        }
    }

    /// Replaces the rules, for connections from now on.
    pub(crate) fn set(&self, network: &NetworkConfig) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = AdmissionRules::new(network);
    }

    /// Reports whether this address may connect.
    pub(crate) async fn admits(&self, address: IpAddr) -> bool {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        if rules.allow.is_empty() || rules.fits(&address.to_string()) {
            return true;
        }
        if rules.named(self.resolver).await.is_some_and(|named| named.contains(&address)) {
            return true;
        }
        if !rules.needs_names() {
            return false;
        }
        self.name_of(address, rules.believed).await.known().is_some_and(|name| rules.fits(name))
    }

    /// Returns the name of a host, also if admission does not look names up.
    pub(crate) async fn name(&self, address: IpAddr) -> HostName {
        let believed = self.rules.read().unwrap_or_else(PoisonError::into_inner).believed;
        self.name_of(address, believed).await
    }

    async fn name_of(&self, address: IpAddr, believed: Duration) -> HostName {
        let asked = Instant::now();
        // A failure may be over.
        let holds = |name: &HostName, since: Instant| *name != HostName::Failed && since.elapsed() < believed;
        if let Some(name) = self.known_name(address, |name, since| holds(name, since)) {
            return name;
        }
        let asker = self.askers.take(address).await;
        // Another connection may have looked it up meanwhile. Its answer counts even if the cache
        // is off.
        if let Some(name) = self.known_name(address, |name, since| since >= asked || holds(name, since)) {
            return name;
        }
        let network = self.networks.take(network_of(address)).await;
        let Ok(turn) = self.lookups.clone().acquire_owned().await else { return HostName::Failed };
        let (resolve, names) = (self.resolver.name, self.names.clone());
        let look_up = move || {
            let name = resolve(address);
            let mut names = names.lock().unwrap_or_else(PoisonError::into_inner);
            if names.len() >= NAMES_MAX {
                names.clear();
            }
            names.insert(address, (name.clone(), Instant::now()));
            drop(names);
            drop((asker, network, turn));
            name
        };
        run_blocking(look_up).await.unwrap_or(HostName::Failed)
    }

    fn known_name(&self, address: IpAddr, holds: impl Fn(&HostName, Instant) -> bool) -> Option<HostName> {
        let (name, since) = self.names().get(&address).cloned()?;
        holds(&name, since).then_some(name)
    }

    fn names(&self) -> MutexGuard<'_, NameCache> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Runs `question` on a thread of its own. Returns `None` if no thread could be started, or if
/// `question` panicked.
pub(crate) async fn run_blocking<T: Send + 'static>(
    question: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let asking = move || drop(tell.send(question()));
    std::thread::Builder::new().name("resolver".to_owned()).spawn(asking).ok()?;
    told.await.ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Setting;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn network(patterns: &[&str], by_name: bool) -> NetworkConfig {
        let allow =
            patterns.iter().filter_map(|text| HostPattern::parse(text)).map(Setting::default_of).collect();
        NetworkConfig { allow, resolve_names: Setting::default_of(by_name), ..NetworkConfig::default() }
    }

    fn admits(keeper: &Doorkeeper, address: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(keeper.admits(address.parse().unwrap()))
    }

    fn named(address: IpAddr) -> HostName {
        match address.to_string() == "10.0.0.1" {
            true => HostName::Known("wn1.example.org".into()),
            // A name that its owner chose.
            false if address.to_string() == "10.0.0.9" => HostName::Known("192.168.7.example.net".into()),
            false => HostName::Unknown,
        }
    }

    fn addresses(name: &str) -> Vec<IpAddr> {
        let known = if name == "alias.example.org" { &["10.0.0.7", "fd00::7"][..] } else { &[] };
        known.iter().map(|text| text.parse().unwrap()).collect()
    }

    const RESOLVER: NameService = NameService { name: named, addresses };

    #[test]
    fn without_rules_all_hosts_are_admitted() {
        assert!(admits(&Doorkeeper::with_resolver(&network(&[], true), RESOLVER), "10.9.9.9"));
    }

    #[test]
    fn patterns_match_addresses_and_confirmed_names() {
        let keeper = Doorkeeper::with_resolver(&network(&["192.168.*", "*.Example.org"], true), RESOLVER);
        assert!(admits(&keeper, "192.168.7.1"));
        assert!(admits(&keeper, "10.0.0.1"));
        assert!(!admits(&keeper, "10.0.0.2"));
        assert!(!admits(&keeper, "10.0.0.9"), "its name is no address");
        keeper.set(&network(&["*.example.org"], false));
        assert!(!admits(&keeper, "10.0.0.1"), "names are not looked up with nodnr");
        keeper.set(&network(&["10.0.0.2"], false));
        assert!(admits(&keeper, "10.0.0.2"));
    }

    #[test]
    fn a_plain_name_stands_for_its_addresses() {
        for by_name in [true, false] {
            let rules = network(&["nobody.example.org", "Alias.example.org"], by_name);
            let keeper = Doorkeeper::with_resolver(&rules, RESOLVER);
            assert!(admits(&keeper, "10.0.0.7") && admits(&keeper, "fd00::7"));
            assert!(!admits(&keeper, "10.0.0.1") && !admits(&keeper, "10.0.0.2"));
        }
    }

    #[test]
    fn a_name_is_looked_up_once() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        fn counting(address: IpAddr) -> HostName {
            ASKED.fetch_add(1, Ordering::Relaxed);
            named(address)
        }
        let keeper = Doorkeeper::with_resolver(
            &network(&["*.example.org"], true),
            NameService { name: counting, addresses },
        );
        assert!(admits(&keeper, "10.0.0.1") && admits(&keeper, "10.0.0.1"));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }

    #[tokio::test]
    async fn abandoned_look_ups_count_towards_the_limits_and_their_results_are_kept() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static OPEN: (Mutex<bool>, std::sync::Condvar) = (Mutex::new(false), std::sync::Condvar::new());
        fn wait() {
            ASKED.fetch_add(1, Ordering::Relaxed);
            drop(OPEN.1.wait_while(OPEN.0.lock().unwrap(), |open| !*open).unwrap());
        }
        fn slow(_: IpAddr) -> HostName {
            wait();
            HostName::Known("wn1.example.org".into())
        }
        fn slow_addresses(_: &str) -> Vec<IpAddr> {
            wait();
            vec![[10, 0, 0, 7].into()]
        }
        let resolver = NameService { name: slow, addresses: slow_addresses };
        let keeper = Doorkeeper::with_resolver(&network(&["*.example.org"], true), resolver);
        let by_host = Doorkeeper::with_resolver(&network(&["alias.example.org"], false), resolver);
        let give_up = |keeper: Doorkeeper, hosts: Vec<IpAddr>| async move {
            for host in hosts {
                // The first poll starts the look-up, if there is a permit.
                let admits = keeper.admits(host);
                tokio::select! {
                    biased;
                    _ = admits => panic!("nobody has answered"),
                    () = std::future::ready(()) => {}
                }
            }
            keeper
        };
        let by_host = give_up(by_host, vec![[10, 0, 0, 7].into(); 50]).await;
        let hosts: Vec<IpAddr> = (0..50).map(|number| [10, 0, number, 1].into()).collect();
        let keeper = give_up(keeper, hosts).await;
        *OPEN.0.lock().unwrap() = true;
        OPEN.1.notify_all();
        assert!(keeper.admits([10, 0, 0, 1].into()).await && by_host.admits([10, 0, 0, 7].into()).await);
        let asked = ASKED.load(Ordering::Relaxed);
        assert!(asked <= LOOKUPS_MAX + 1, "{asked} look-ups began at a time");
    }

    #[test]
    fn a_host_with_a_slow_name_service_delays_only_itself() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        static OPEN: (Mutex<bool>, std::sync::Condvar) = (Mutex::new(false), std::sync::Condvar::new());
        fn slow(address: IpAddr) -> HostName {
            if address.to_string() == "10.0.0.1" {
                return named(address);
            }
            ASKED.fetch_add(1, Ordering::Relaxed);
            drop(OPEN.1.wait_while(OPEN.0.lock().unwrap(), |open| !*open).unwrap());
            HostName::Unknown
        }
        let resolver = NameService { name: slow, addresses };
        let keeper = Arc::new(Doorkeeper::with_resolver(&network(&["*.example.org"], true), resolver));
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            // Many connections of one host, and of many hosts of one network.
            let hosts = (0..40)
                .map(|_| 1)
                .chain(2..40)
                .map(|host: u16| IpAddr::from([0xfd00, 0, 0, 7, 0, 0, 0, host]));
            let waiting: Vec<_> = hosts
                .map(|host| {
                    let keeper = keeper.clone();
                    tokio::spawn(async move { keeper.admits(host).await })
                })
                .collect();
            tokio::task::yield_now().await;
            assert!(keeper.admits("10.0.0.1".parse().unwrap()).await);
            *OPEN.0.lock().unwrap() = true;
            OPEN.1.notify_all();
            for one in waiting {
                assert!(!one.await.unwrap());
            }
        });
        assert_eq!(ASKED.load(Ordering::Relaxed), 39, "each address once");
        assert!(keeper.askers.keys().is_empty() && keeper.networks.keys().is_empty());
    }
}
