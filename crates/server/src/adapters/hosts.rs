//! Names and addresses of hosts, for [`logical::Names`] and for the admission of hosts, so that
//! both judge names in the same way.

use auth::HostName;
use dns_lookup::{AddrInfo, AddrInfoHints, LookupError, LookupErrorKind};
use std::io;
use std::net::{IpAddr, SocketAddr};

/// The name service of the system.
pub(crate) struct SystemNames;

impl logical::HostLookup for SystemNames {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        addresses_of(name)
    }

    /// Returns a name only if it resolves back to the address, because the owner of an address may
    /// give it any name.
    fn name(&self, address: IpAddr) -> Option<String> {
        confirmed_name(address).known().map(|name| name.to_string())
    }
}

/// Returns the addresses of a host. Blocks.
pub(crate) fn addresses_of(name: &str) -> Vec<IpAddr> {
    dns_lookup::lookup_host(name).map(|found| found.map(|a| a.to_canonical()).collect()).unwrap_or_default()
}

/// Returns the name of an address; it is known only if it resolves back to the address. Blocks.
pub(crate) fn confirmed_name(address: IpAddr) -> HostName {
    let no_name = |error: LookupError| match error.kind() {
        LookupErrorKind::NoName | LookupErrorKind::NoData => HostName::Unknown,
        _ => HostName::Failed,
    };
    let flags = libc::NI_NUMERICSERV | libc::NI_NAMEREQD;
    let name = match dns_lookup::getnameinfo(&SocketAddr::new(address, 0), flags) {
        Ok((name, _)) => name,
        Err(error) => return no_name(error),
    };
    // The text of an address would resolve to that address.
    if name.parse::<IpAddr>().is_ok() {
        return HostName::Unknown;
    }
    let hints = AddrInfoHints { socktype: libc::SOCK_STREAM, ..AddrInfoHints::default() };
    match dns_lookup::getaddrinfo(Some(&name), None, Some(hints)) {
        Ok(mut found) => {
            let same = |info: io::Result<AddrInfo>| {
                info.is_ok_and(|info| info.sockaddr.ip().to_canonical() == address.to_canonical())
            };
            if found.any(same) { HostName::Known(name.into()) } else { HostName::Unknown }
        }
        Err(error) => no_name(error),
    }
}
