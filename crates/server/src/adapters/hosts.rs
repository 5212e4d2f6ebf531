//! Names and addresses of hosts, for [`logical::Names`]. The functions are those of `admission`, so
//! that both judge names in the same way.

use super::admission::{addresses_of, confirmed_name};
use std::net::IpAddr;

/// The name service of the system.
pub(crate) struct SystemNames;

impl logical::Names for SystemNames {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        addresses_of(name)
    }

    /// Returns a name only if it resolves back to the address, because the owner of an address may
    /// give it any name.
    fn name(&self, address: IpAddr) -> Option<String> {
        confirmed_name(address)
    }
}
