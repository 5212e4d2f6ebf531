//! The HTTP client for revocation lists.
//!
//! Lists are signed, so that most authorities offer them over plain HTTP. An attacker on the way can
//! keep a new list away, but cannot forge one.

use crate::third_party::{ClientOutbound, Outbound};
use auth::grid::LIST_BYTES_MAX;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::Uri;
use ureq::tls::{Certificate, RootCerts, TlsConfig};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// Maximum time to connect to a server.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(10);
/// Maximum number of redirects.
const REDIRECTS_MAX: u32 = 3;
/// Maximum number of addresses of a server that are tried.
const ADDRESSES_MAX: usize = 8;

/// A client for one download.
pub(super) struct ListDownload(Agent);

/// Resolves names to the addresses to which this server may connect.
struct PermittedAddresses {
    system: DefaultResolver,
    outbound: ClientOutbound,
}

/// No address of a server may be used.
#[derive(Debug)]
struct ForbiddenServer(String);

impl fmt::Display for ForbiddenServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ForbiddenServer {}

impl fmt::Debug for PermittedAddresses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PermittedAddresses").finish_non_exhaustive()
    }
}

impl Resolver for PermittedAddresses {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let host = uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']');
        let (mut permitted, mut refused) = (Vec::new(), None);
        for address in &self.system.resolve(uri, config, timeout)? {
            match self.outbound.choose(host, address.ip()) {
                Ok(addresses) => {
                    permitted.extend(addresses.into_iter().map(|ip| SocketAddr::new(ip, address.port())));
                }
                Err(reason) => refused = Some(reason),
            }
        }
        if permitted.is_empty() {
            let reason = refused.unwrap_or_else(|| "it has no address".to_owned());
            return Err(ureq::Error::Other(Box::new(ForbiddenServer(reason))));
        }
        let mut found = self.empty();
        for address in permitted.into_iter().take(ADDRESSES_MAX) {
            found.push(address);
        }
        Ok(found)
    }
}

impl ListDownload {
    /// Creates a client. HTTPS servers must have a certificate of one of the authorities, which are
    /// DER. `outbound` has the servers that may be used, and `limit` is the maximum time, with redirects.
    pub(super) fn new(authorities: Vec<Vec<u8>>, outbound: Outbound, limit: Duration) -> Self {
        let roots = authorities.iter().map(|der| Certificate::from_der(der).to_owned()).collect();
        let cryptography = Arc::new(auth::tls::provider());
        let tls = TlsConfig::builder()
            .unversioned_rustls_crypto_provider(cryptography)
            .root_certs(RootCerts::Specific(Arc::new(roots)))
            .build();
        let config = Agent::config_builder()
            .max_redirects(REDIRECTS_MAX)
            .timeout_global(Some(limit))
            .timeout_connect(Some(CONNECT_TIME_MAX))
            // The addresses behind a proxy could not be checked.
            .proxy(None)
            .tls_config(tls)
            .user_agent(concat!("scalla/", env!("CARGO_PKG_VERSION")))
            .build();
        let outbound = outbound.for_client(None);
        let resolver = PermittedAddresses { system: DefaultResolver::default(), outbound };
        Self(Agent::with_parts(config, DefaultConnector::default(), resolver))
    }

    /// Downloads a list. Blocks.
    ///
    /// # Errors
    /// The reason.
    pub(super) fn fetch(&self, address: &str) -> Result<Vec<u8>, String> {
        let failed = |error: ureq::Error| match &error {
            ureq::Error::Io(error) => base::errno_text(error),
            ureq::Error::Other(error) => error.to_string(),
            error => error.to_string(),
        };
        let mut answer = self.0.get(address).call().map_err(failed)?;
        let limit = u64::try_from(LIST_BYTES_MAX).unwrap_or(u64::MAX);
        answer.body_mut().with_config().limit(limit).read_to_vec().map_err(failed)
    }
}
