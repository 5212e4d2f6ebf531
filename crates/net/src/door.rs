//! The interface of a protocol on the shared port.
//!
//! The listener knows no protocol; each one implements [`Door`] in its own crate.

use crate::{LoopHandle, LoopPresence, Socket};
use std::net::SocketAddr;

/// The decision of a door about the first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProtocolMatch {
    /// The bytes belong to this protocol.
    Mine,
    /// The bytes do not belong to this protocol.
    NotMine,
    /// More bytes are needed for a decision.
    NeedMore,
}

/// A connection that a door has claimed.
pub struct Arrival {
    /// The socket of the connection.
    pub socket: Socket,
    /// Address of the peer.
    pub peer: SocketAddr,
    /// Bytes that were read already, beginning with the claimed ones.
    pub received: Vec<u8>,
    /// The loop of the connection.
    pub home: LoopHandle,
}

/// A protocol on the shared port. It is called on all loops, concurrently.
pub trait Door: Send + Sync {
    /// Returns the name of the protocol, for logs.
    fn name(&self) -> &'static str;

    /// Decides whether the first bytes of a connection belong to this protocol.
    fn claims(&self, first: &[u8]) -> ProtocolMatch;

    /// Serves the connection until its end, in a task of its own on this loop. `presence` must live
    /// as long as the connection.
    fn serve(&self, arrival: Arrival, presence: LoopPresence);
}
