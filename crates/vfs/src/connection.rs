//! [`ClientConnection`]: the ends of the connection of a client.

use std::net::SocketAddr;

/// Both ends of the connection of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientConnection {
    /// The end of the client.
    pub client: SocketAddr,
    /// The end of this server.
    pub server: SocketAddr,
}
