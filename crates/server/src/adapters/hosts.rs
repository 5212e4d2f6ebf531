//! Names and addresses of hosts, for [`logical::Names`].

use super::admission::{addresses_of, confirmed_name};
use std::net::IpAddr;

/// The system's name service.
pub(crate) struct SystemNames;

impl logical::Names for SystemNames {
    fn addresses(&self, name: &str) -> Vec<IpAddr> {
        addresses_of(name)
    }

    /// Only a name that leads back to the address: whoever owns an address may call it anything.
    fn name(&self, address: IpAddr) -> Option<String> {
        confirmed_name(address)
    }
}
