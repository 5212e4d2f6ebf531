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
        if let Some(known) = table.get(&key) {
            return Ok(known.origin.clone());
        }
        if table.len() >= UNUSED_ORIGINS_MAX {
            table.retain(|_, origin| origin.is_used());
        }
        let of_host = |table: &HashMap<_, ForwardedOrigin>| {
            table.values().filter(|origin| origin.named_by == client).count()
        };
        if of_host(&table) >= HOST_ORIGINS_MAX {
            table.retain(|_, origin| origin.named_by != client || origin.is_used());
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
        table.insert(key, ForwardedOrigin { origin: origin.clone(), named_by: client, of_host });
        Ok(origin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::tests::proxy;

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
