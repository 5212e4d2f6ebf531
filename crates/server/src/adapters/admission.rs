//! May this host connect (`xrd.allow`)?
//!
//! Patterns are compared with the address as text and with the host's name. A name counts only if it leads back to the
//! address, because whoever owns an address may call it anything. Names are asked for on threads of their own and
//! remembered, so that a slow name server holds up only the connection that needs the answer.

use config::{HostPattern, Network};
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;

/// Names asked for at a time; further connections wait for their turn until the hail timeout ends them.
const LOOKUPS_MAX: usize = 16;

/// Names remembered.
const NAMES_MAX: usize = 65_536;

/// What is known of addresses, and since when; no name if it has none that leads back.
type Names = HashMap<IpAddr, (Option<Arc<str>>, Instant)>;

/// Who may connect. Changes with a reload.
pub(crate) struct Doorkeeper {
    rules: RwLock<Arc<Rules>>,
    names: Mutex<Names>,
    lookups: Semaphore,
    resolve: fn(IpAddr) -> Option<String>,
}

/// The part of the configuration that decides.
struct Rules {
    allow: Vec<HostPattern>,
    by_name: bool,
    believed: Duration,
}

impl Rules {
    fn new(network: &Network) -> Arc<Self> {
        Arc::new(Self {
            allow: network.allow.iter().map(|pattern| pattern.value.clone()).collect(),
            by_name: network.resolve_names.value,
            believed: network.name_cache.value,
        })
    }

    fn fits(&self, host: &str) -> bool {
        self.allow.iter().any(|pattern| pattern.matches(host))
    }
}

impl Doorkeeper {
    pub(crate) fn new(network: &Network) -> Self {
        Self::with_resolver(network, confirmed_name)
    }

    fn with_resolver(network: &Network, resolve: fn(IpAddr) -> Option<String>) -> Self {
        Self {
            rules: RwLock::new(Rules::new(network)),
            names: Mutex::default(),
            lookups: Semaphore::new(LOOKUPS_MAX),
            resolve,
        }
    }

    /// New rules, for connections from now on.
    pub(crate) fn set(&self, network: &Network) {
        *self.rules.write().unwrap_or_else(PoisonError::into_inner) = Rules::new(network);
    }

    /// May this address connect?
    pub(crate) async fn admits(&self, address: IpAddr) -> bool {
        let rules = self.rules.read().unwrap_or_else(PoisonError::into_inner).clone();
        if rules.allow.is_empty() || rules.fits(&address.to_string()) {
            return true;
        }
        if !rules.by_name {
            return false;
        }
        self.name_of(address, rules.believed).await.is_some_and(|name| rules.fits(&name))
    }

    async fn name_of(&self, address: IpAddr, believed: Duration) -> Option<Arc<str>> {
        let known = self.names().get(&address).cloned();
        if let Some((name, since)) = known
            && since.elapsed() < believed
        {
            return name;
        }
        let _turn = self.lookups.acquire().await.ok()?;
        let (tell, told) = tokio::sync::oneshot::channel();
        let resolve = self.resolve;
        let asking = move || drop(tell.send(resolve(address)));
        std::thread::Builder::new().name("resolver".to_owned()).spawn(asking).ok()?;
        let name: Option<Arc<str>> = told.await.ok()?.map(Into::into);
        let mut names = self.names();
        if names.len() >= NAMES_MAX {
            names.clear();
        }
        names.insert(address, (name.clone(), Instant::now()));
        name
    }

    fn names(&self) -> MutexGuard<'_, Names> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of an address, if that name leads back to it.
fn confirmed_name(address: IpAddr) -> Option<String> {
    let name = dns_lookup::lookup_addr(&address).ok()?;
    let back = dns_lookup::lookup_host(&name).ok()?;
    back.into_iter().any(|other| other.to_canonical() == address).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Setting;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn network(patterns: &[&str], by_name: bool) -> Network {
        let allow =
            patterns.iter().filter_map(|text| HostPattern::parse(text)).map(Setting::default_of).collect();
        Network { allow, resolve_names: Setting::default_of(by_name), ..Network::default() }
    }

    fn admits(keeper: &Doorkeeper, address: &str) -> bool {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(keeper.admits(address.parse().unwrap()))
    }

    fn named(address: IpAddr) -> Option<String> {
        (address.to_string() == "10.0.0.1").then(|| "wn1.example.org".to_owned())
    }

    #[test]
    fn without_rules_everybody_comes_in() {
        assert!(admits(&Doorkeeper::with_resolver(&network(&[], true), named), "10.9.9.9"));
    }

    #[test]
    fn patterns_fit_addresses_and_confirmed_names() {
        let keeper = Doorkeeper::with_resolver(&network(&["192.168.*", "*.Example.org"], true), named);
        assert!(admits(&keeper, "192.168.7.1"));
        assert!(admits(&keeper, "10.0.0.1"));
        assert!(!admits(&keeper, "10.0.0.2"));
        keeper.set(&network(&["*.example.org"], false));
        assert!(!admits(&keeper, "10.0.0.1"), "names are not looked up with nodnr");
        keeper.set(&network(&["10.0.0.2"], false));
        assert!(admits(&keeper, "10.0.0.2"));
    }

    #[test]
    fn a_name_is_asked_for_once() {
        static ASKED: AtomicUsize = AtomicUsize::new(0);
        fn counting(address: IpAddr) -> Option<String> {
            ASKED.fetch_add(1, Ordering::Relaxed);
            named(address)
        }
        let keeper = Doorkeeper::with_resolver(&network(&["*.example.org"], true), counting);
        assert!(admits(&keeper, "10.0.0.1") && admits(&keeper, "10.0.0.1"));
        assert_eq!(ASKED.load(Ordering::Relaxed), 1);
    }
}
