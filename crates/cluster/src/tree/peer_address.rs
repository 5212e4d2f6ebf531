//! The address of the peer of a connection.

use std::net::IpAddr;

/// The origin of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PeerAddress {
    /// Its address.
    pub ip: IpAddr,
    /// The host name or address of the node for other nodes: a name if one is known without a
    /// look-up, else the address as text.
    pub host: String,
}
