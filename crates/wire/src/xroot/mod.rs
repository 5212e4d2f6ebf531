//! The xroot protocol, version 5.2.0: requests, replies, codes and limits.
//!
//! * [`header`]: the 24-byte request header, the 8-byte response header, the handshake, opaque
//!   identifiers;
//! * [`codes`], [`flags`], [`limits`]: the numbers of the protocol with their names;
//! * [`request`]: one file per request, decoded for a server and encoded for a client;
//! * [`reply`]: replies, encoded for a server and decoded for a client;
//! * [`cgi`], [`login_cgi`]: the `key=value` texts behind a path and in a login;
//! * [`frames`]: the splitting of a stream into frames.
//!
//! Both directions are in one crate, so that server and client cannot disagree about a layout.

pub mod cgi;
pub mod codes;
pub mod flags;
pub mod frames;
pub mod header;
pub mod limits;
pub mod login_cgi;
pub mod reply;
pub mod request;

pub use codes::{ErrorCode, RequestCode, Status};
pub use header::{FileHandle, RequestHeader, ResponseHeader, SessionId, StreamId};
pub use reply::Reply;
pub use request::Request;

/// The supported protocol version, as sent in the handshake and in `kXR_protocol`: 5.2.0.
pub const PROTOCOL_VERSION: i32 = 0x0000_0520;

/// Protocol versions at which the behaviour of a peer changes; compare with `clientpv` of
/// [`request::Protocol`].
pub mod version {
    /// The flags of the `kXR_protocol` reply are the modern bit set for clients of at least this
    /// version.
    pub const MODERN_FLAGS: i32 = 0x297;
    /// Request signing; the S body of the `kXR_protocol` reply is for clients of at least this
    /// version.
    pub const SIGNING: i32 = 0x310;
    /// The `expect` byte of `kXR_protocol` is defined.
    pub const EXPECT: i32 = 0x400;
    /// TLS, extended attributes, checkpoints.
    pub const TLS: i32 = 0x500;
    /// `kXR_pgread` and `kXR_pgwrite`.
    pub const PAGE_IO: i32 = 0x511;
    /// `kXR_clone`, open with a template handle.
    pub const CLONE: i32 = 0x520;
}
