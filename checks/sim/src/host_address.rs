//! Names, addresses and ports of the hosts, which follow from their numbers.

use std::net::{IpAddr, Ipv4Addr};

/// The port of every node.
pub(crate) const PORT: u16 = 1213;

/// The port for clients of every node.
pub(crate) const DATA_PORT: u16 = 1094;

/// Returns the name of a host.
pub(crate) fn host_name(index: usize) -> String {
    format!("n{index}")
}

/// Returns the number of the host of this name.
pub(crate) fn host_of_name(name: &str) -> Option<usize> {
    name.strip_prefix('n')?.parse().ok()
}

/// Returns the address of a host.
pub(crate) fn host_ip(index: usize) -> IpAddr {
    let [_, a, b, c] = (index as u32).to_be_bytes();
    Ipv4Addr::new(10, a, b, c).into()
}
