//! [`OriginTable`]: the origins in use.

use crate::address::RemoteAddress;
use crate::limits::{HOST_ORIGINS_MAX, ORIGINS_MAX, UNUSED_ORIGINS_MAX};
use crate::listing::LISTING_BYTES_MAX;
use crate::origin::{ForwardedLimits, HostLimits, OriginDialer, OriginServer};
use crate::settings::ProxyConfig;
use base::{ClientHost, Error, ErrorKind};
use client::{ListingMemory, Scheme, Url};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The origins in use.
pub(crate) struct OriginTable {
    config: Arc<ProxyConfig>,
    runtime: Handle,
    fixed: Option<Arc<OriginServer>>,
    /// Origins that clients have named.
    forwarded: Mutex<HashMap<OriginKey, ForwardedOrigin>>,
    limits: ForwardedLimits,
}

/// An origin that a client has named.
struct ForwardedOrigin {
    origin: Arc<OriginServer>,
    /// The host of the client that has named it first.
    named_by: ClientHost,
    /// The limits of all origins that this host has named.
    of_host: HostLimits,
    /// The time of the last request.
    used: Instant,
}

impl ForwardedOrigin {
    fn is_used(&self) -> bool {
        Arc::strong_count(&self.origin) > 1
    }
}

/// The address of an origin that a client has named.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct OriginKey {
    scheme: Scheme,
    host: String,
    port: u16,
}

impl OriginTable {
    /// Creates the table with the fixed origin.
    pub(crate) fn new(config: Arc<ProxyConfig>, runtime: Handle) -> Self {
        let listings = ListingMemory::new(LISTING_BYTES_MAX);
        let dialer = || OriginDialer::fixed(&config, runtime.clone(), &listings);
        let fixed = config.origin.as_ref().map(|url| OriginServer::new(url, dialer()));
        let limits = ForwardedLimits::new(&config, listings.clone());
        Self { config, runtime, fixed, forwarded: Mutex::default(), limits }
    }

    /// Returns the fixed origin if clients cannot name others.
    pub(crate) fn only_origin(&self) -> Option<&Arc<OriginServer>> {
        self.fixed.as_ref().filter(|_| self.config.forwards.is_empty())
    }

    /// Returns the origin of an address for a client. Origins that nobody uses make room for
    /// new ones.
    pub(crate) fn of(&self, address: &RemoteAddress, client: ClientHost) -> Result<Arc<OriginServer>, Error> {
        if !address.is_forwarded
            && let Some(fixed) = &self.fixed
        {
            return Ok(fixed.clone());
        }
        let Url { scheme, host, port, .. } = &address.url;
        let key = OriginKey { scheme: *scheme, host: host.to_ascii_lowercase(), port: *port };
        let mut table = self.forwarded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.get_mut(&key) {
            known.used = Instant::now();
            return Ok(known.origin.clone());
        }
        let surplus = (table.len() + 1).saturating_sub(UNUSED_ORIGINS_MAX);
        forget_unused(&mut table, surplus, client, |_| true);
        let of_host = |table: &HashMap<_, ForwardedOrigin>| {
            table.values().filter(|origin| origin.named_by == client).count()
        };
        if of_host(&table) >= HOST_ORIGINS_MAX {
            forget_unused(&mut table, 1, client, |origin| origin.named_by == client);
        }
        if of_host(&table) >= HOST_ORIGINS_MAX {
            let text = format!("the clients of your host use {HOST_ORIGINS_MAX} origins, which is the limit");
            return Err(Error::new(ErrorKind::Overloaded, text));
        }
        if table.len() >= ORIGINS_MAX {
            return Err(Error::new(ErrorKind::Overloaded, "the proxy is busy with too many origins"));
        }
        let known = table.values().find(|origin| origin.named_by == client);
        let of_host = known.map_or_else(|| self.limits.of_host(), |known| known.of_host.clone());
        let dialer = OriginDialer::forwarded(&self.config, self.runtime.clone(), &self.limits, &of_host);
        let origin = OriginServer::new(&address.url, dialer);
        table.insert(
            key,
            ForwardedOrigin { origin: origin.clone(), named_by: client, of_host, used: Instant::now() },
        );
        Ok(origin)
    }
}

/// Forgets some of the origins that nobody uses, to make room for one that `client` names: first those that it
/// has named itself, then those whose breakers are closed, the longest unused of them first. So a client
/// with many names has the proxy forget its own.
fn forget_unused(
    table: &mut HashMap<OriginKey, ForwardedOrigin>,
    count: usize,
    client: ClientHost,
    may_forget: impl Fn(&ForwardedOrigin) -> bool,
) {
    if count == 0 {
        return;
    }
    let unused = table.iter().filter(|(_, origin)| !origin.is_used() && may_forget(origin));
    let order =
        |origin: &ForwardedOrigin| (origin.named_by != client, origin.origin.home.has_failed(), origin.used);
    let mut unused: Vec<_> = unused.map(|(key, origin)| (order(origin), key.clone())).collect();
    unused.sort_by_key(|(order, _)| *order);
    for (_, key) in unused.iter().take(count) {
        table.remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::tests::proxy;

    #[tokio::test]
    async fn a_client_with_many_names_has_its_own_origins_forgotten() {
        let table = OriginTable::new(Arc::new(proxy(None, true)), Handle::current());
        let of = |name: &str, client: &str| {
            let url = Url::parse(&format!("root://{name}//a")).unwrap();
            let address = RemoteAddress { url, is_forwarded: true };
            table.of(&address, ClientHost::from(Some(client.parse().unwrap()))).unwrap()
        };
        let known = Arc::downgrade(&of("known", "192.0.2.1"));
        for number in 0..4 * UNUSED_ORIGINS_MAX {
            drop(of(&format!("h{number}"), "192.0.2.2"));
        }
        assert!(known.upgrade().is_some());
        assert_eq!(table.forwarded.lock().unwrap().len(), UNUSED_ORIGINS_MAX);
    }

    #[tokio::test]
    async fn the_clients_of_one_host_use_a_limited_number_of_origins() {
        let table = OriginTable::new(Arc::new(proxy(None, true)), Handle::current());
        let of = |number: usize, client: &str| {
            let url = Url::parse(&format!("root://h{number}//a")).unwrap();
            let address = RemoteAddress { url, is_forwarded: true };
            table.of(&address, ClientHost::from(Some(client.parse().unwrap())))
        };
        let mut used: Vec<_> = (0..HOST_ORIGINS_MAX).map(|number| of(number, "192.0.2.1").unwrap()).collect();
        let refused = of(HOST_ORIGINS_MAX, "192.0.2.1").err().unwrap();
        assert_eq!(refused.kind, ErrorKind::Overloaded);
        // Known origins and other hosts are not limited.
        of(0, "192.0.2.1").unwrap();
        of(HOST_ORIGINS_MAX, "192.0.2.2").unwrap();
        // An origin that nobody uses makes room.
        used.pop();
        of(HOST_ORIGINS_MAX + 1, "192.0.2.1").unwrap();
    }
}
