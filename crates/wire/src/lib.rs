//! Bytes to messages and back, without I/O: the xroot protocol and the cms protocol.
//!
//! * [`cursor`]: a reader that cannot run off the end and its writing counterpart;
//! * [`crc`]: the hash of paths and the checksum of messages that check themselves;
//! * [`error`]: what can be wrong with bytes a peer sent;
//! * [`xroot`]: the messages of the xroot protocol, both directions;
//! * [`cms`]: the messages of the cms protocol, by which the nodes of a cluster find each other and files.
//!
//! Nothing here reads a clock, opens a socket or keeps state between messages, apart from the frame splitters
//! ([`xroot::frames`], [`cms::frames`]) that hold the bytes of an unfinished frame.

pub mod cms;
pub mod crc;
pub mod cursor;
pub mod error;
mod newtypes;
pub mod xroot;

pub use cursor::{Reader, Writer};
pub use error::WireError;
