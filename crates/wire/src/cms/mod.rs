//! The cms protocol, version 3, between managers, supervisors, servers and redirectors.
//!
//! * [`header`], [`frames`], [`pup`]: the 8-byte header, the splitting of a stream into frames, the
//!   packing of arguments;
//! * [`codes`], [`flags`], [`limits`]: the numbers of the protocol with their names;
//! * [`login`]: the login, its reply and the frames that replace it; system ids, paths, roles;
//! * [`message`]: messages between nodes and requests of redirectors, one file per message or small
//!   family;
//! * [`response`]: responses of a manager to a redirector;
//! * [`extensions`]: extensions between Scalla nodes;
//! * [`error`]: errors of encoding.
//!
//! The type that decodes a frame depends on the connection and its progress, because codes 0 to 5
//! have several meanings:
//!
//! | connection              | reader         | until the login is answered | afterwards       |
//! |-------------------------|----------------|-----------------------------|------------------|
//! | node to its parent      | the node       | [`LoginAnswer`]             | [`Message`]      |
//! | node to its parent      | the parent     | [`Message`]                 | [`Message`]      |
//! | redirector to a manager | the manager    | [`Message`]                 | [`Message`]      |
//! | redirector to a manager | the redirector | [`LoginAnswer`]             | [`ToRedirector`] |
//!
//! Decoding is lenient and only refuses frames that it cannot represent. Encoding is strict: a
//! frame that the peer does not support or would interpret differently is an [`EncodeError`], and
//! no bytes are sent.

pub mod codes;
pub mod error;
pub mod extensions;
pub mod flags;
pub mod frames;
pub mod header;
pub mod limits;
pub mod login;
pub mod message;
pub mod pup;
pub mod response;

pub use codes::{Code, ErrorCode, ResponseCode};
pub use error::EncodeError;
pub use extensions::Extensions;
pub use frames::{CmsFrame, FramePhase, FrameSplitter};
pub use header::{Header, StreamId};
pub use login::{LoginAnswer, NodeLogin, NodeLoginReply};
pub use message::Message;
pub use response::{Response, ResponseAnswer, ToRedirector};

/// The protocol version of nodes and managers; redirectors send 0.
pub const PROTOCOL_VERSION: u16 = 3;
