//! [`OriginTable`]: the origins in use.

use crate::address::RemoteAddress;
use crate::limits::{ORIGINS_MAX, UNUSED_ORIGINS_MAX};
use crate::names::FORWARDED_LOOK_UPS_MAX;
use crate::origin::{OriginDialer, OriginServer};
use crate::settings::ProxyConfig;
use base::{Error, ErrorKind};
use client::{Scheme, Url};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::runtime::Handle;
use tokio::sync::Semaphore;

/// The origins in use.
pub(crate) struct OriginTable {
    config: Arc<ProxyConfig>,
    runtime: Handle,
    fixed: Option<Arc<OriginServer>>,
    /// Origins that clients have named.
    forwarded: Mutex<HashMap<OriginKey, Arc<OriginServer>>>,
    /// Permits for look-ups of their names.
    look_ups: Arc<Semaphore>,
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
        let dialer = || OriginDialer::fixed(&config, runtime.clone());
        let fixed = config.origin.as_ref().map(|url| OriginServer::new(url, dialer()));
        let look_ups = Arc::new(Semaphore::new(FORWARDED_LOOK_UPS_MAX));
        Self { config, runtime, fixed, forwarded: Mutex::default(), look_ups }
    }

    /// Returns the origin of an address. Origins that nobody uses make room for new ones.
    pub(crate) fn of(&self, address: &RemoteAddress) -> Result<Arc<OriginServer>, Error> {
        if !address.is_forwarded
            && let Some(fixed) = &self.fixed
        {
            return Ok(fixed.clone());
        }
        let Url { scheme, host, port, .. } = &address.url;
        let key = OriginKey { scheme: *scheme, host: host.to_ascii_lowercase(), port: *port };
        let mut table = self.forwarded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = table.get(&key) {
            return Ok(known.clone());
        }
        if table.len() >= UNUSED_ORIGINS_MAX {
            table.retain(|_, origin| Arc::strong_count(origin) > 1);
        }
        if table.len() >= ORIGINS_MAX {
            return Err(Error::new(ErrorKind::Overloaded, "the proxy is busy with too many origins"));
        }
        let dialer = OriginDialer::forwarded(&self.config, self.runtime.clone(), &self.look_ups);
        let origin = OriginServer::new(&address.url, dialer);
        table.insert(key, origin.clone());
        Ok(origin)
    }
}
