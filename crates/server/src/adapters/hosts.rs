//! Names and addresses of hosts, for [`logical::Names`] and for the admission of hosts, so that
//! both judge names in the same way.

use std::net::IpAddr;

/// The name service of the system.
pub(crate) struct SystemNames;

impl logical::HostLookup for SystemNames {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        addresses_of(name)
    }

    /// Returns a name only if it resolves back to the address, because the owner of an address may
    /// give it any name.
    fn name(&self, address: IpAddr) -> Option<String> {
        confirmed_name(address)
    }
}

/// Returns the addresses of a host. Blocks.
pub(crate) fn addresses_of(name: &str) -> Vec<IpAddr> {
    dns_lookup::lookup_host(name).map(|found| found.map(|a| a.to_canonical()).collect()).unwrap_or_default()
}

/// Returns the name of an address if it resolves back to the address. Blocks.
pub(crate) fn confirmed_name(address: IpAddr) -> Option<String> {
    let name = dns_lookup::lookup_addr(&address).ok()?;
    let back = dns_lookup::lookup_host(&name).ok()?;
    back.into_iter().any(|other| other.to_canonical() == address).then_some(name)
}
