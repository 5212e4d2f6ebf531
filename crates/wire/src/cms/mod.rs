//! The cms protocol, version 3: how managers, supervisors, servers and redirectors of a cluster talk.
//!
//! * [`header`], [`frames`], [`pup`]: the 8-byte header, a stream cut into frames, arguments packed into a payload;
//! * [`codes`], [`flags`], [`limits`]: the numbers of the protocol, each under its name;
//! * [`login`]: the login, its reply and what may come in its place; system ids, paths, roles;
//! * [`message`]: what nodes tell each other and redirectors ask, one file per message or small family;
//! * [`response`]: what a manager answers a redirector;
//! * [`extensions`]: what our own nodes say to each other beyond the protocol;
//! * [`error`]: why a message is not sent.
//!
//! Which type decodes a frame depends on the link and how far it is, because codes 0 to 5 mean different things:
//!
//! | link                    | who reads        | before the login is answered      | afterwards           |
//! |-------------------------|------------------|-----------------------------------|----------------------|
//! | node to its parent      | either           | node: [`LoginAnswer`]; parent: [`Message`] | [`Message`] |
//! | redirector to a manager | the manager      | [`Message`]                       | [`Message`]          |
//! | redirector to a manager | the redirector   | [`LoginAnswer`]                   | [`ToRedirector`]     |
//!
//! Decoding takes whatever peers send and only refuses what it cannot represent. Encoding is strict: a frame that a
//! real daemon does not survive, or takes for something else, is an [`EncodeError`] and nothing is sent.

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
pub use frames::{Frame, Phase, Splitter};
pub use header::{Header, StreamId};
pub use login::{Login, LoginAnswer, LoginReply};
pub use message::Message;
pub use response::{Answer, Response, ToRedirector};

/// The protocol version that nodes and managers say; redirectors say 0.
pub const PROTOCOL_VERSION: u16 = 3;
