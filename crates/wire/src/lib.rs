//! Bytes to messages and back, without I/O: the xroot protocol.
//!
//! * [`cursor`]: a reader that cannot run off the end and its writing counterpart;
//! * [`crc32c`]: the checksum of messages that check themselves;
//! * [`error`]: what can be wrong with bytes a peer sent;
//! * [`xroot`]: the messages of the xroot protocol, both directions.
//!
//! Nothing here reads a clock, opens a socket or keeps state between messages, apart from the frame splitter
//! ([`xroot::frames`]) that holds the bytes of an unfinished frame.

pub mod crc32c;
pub mod cursor;
pub mod error;
pub mod xroot;

pub use cursor::{Reader, Writer};
pub use error::WireError;
