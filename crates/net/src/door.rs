//! A door: one protocol on the shared port.

use crate::{LoopHandle, Presence, Socket};
use std::net::SocketAddr;

/// What a door says of the first bytes of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// It speaks this door's protocol.
    Mine,
    /// It does not.
    NotMine,
    /// Too few bytes to tell.
    NeedMore,
}

/// A connection that a door has claimed.
pub struct Arrival {
    /// The connection.
    pub socket: Socket,
    /// Who is at the other end.
    pub peer: SocketAddr,
    /// What has been read already, the claimed bytes first.
    pub received: Vec<u8>,
    /// The loop it lives on.
    pub home: LoopHandle,
}

/// One protocol on the shared port. Called on the loops, concurrently.
pub trait Door: Send + Sync {
    /// The protocol's name, for logs.
    fn name(&self) -> &'static str;

    /// Are these first bytes of a connection yours?
    fn claims(&self, first: &[u8]) -> Claim;

    /// Serves the connection to its end, in a task of its own on this loop. `presence` is to live as long as it does.
    fn serve(&self, arrival: Arrival, presence: Presence);
}
