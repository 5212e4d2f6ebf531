//! Codecs of the xroot protocol, the cms protocol and packets of monitoring: bytes to messages and
//! back, without I/O.
//!
//! * [`codec`]: the traits of headers and bodies;
//! * [`cursor`]: a bounds-checked reader and a writer;
//! * [`crc`]: CRCs of paths and of messages with a checksum;
//! * [`error`]: errors of decoding;
//! * [`xroot`]: messages of the xroot protocol, both directions;
//! * [`cms`]: messages of the cms protocol, with which the nodes of a cluster locate each other and
//!   files;
//! * [`monitoring`]: packets of detailed monitoring.
//!
//! The crate reads no clock, opens no socket and keeps no state between messages, so that client,
//! server, simulation and fuzz targets can all use it. Only the frame splitters ([`xroot::frames`],
//! [`cms::frames`]) keep the bytes of an incomplete frame.

pub mod cms;
pub mod codec;
pub mod crc;
pub mod cursor;
pub mod error;
pub mod monitoring;
mod newtypes;
pub mod xroot;

pub use codec::{Decode, Encode, FixedLayout};
pub use cursor::{FieldReader, FieldWriter};
pub use error::WireError;
