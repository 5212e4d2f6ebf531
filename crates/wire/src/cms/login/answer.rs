//! What comes back for a login: the reply, or something in its place.
//!
//! A node and a redirector read it before anything else. The streamid is 0. Errors are told with the codes of
//! responses.
//! Source: cms protocol version 3, sections 2.1, 2.10, 2.11. Recorded: 01, 11, 17a, 17b.

use super::LoginReply;
use crate::cms::codes::{Code, ErrorCode, ResponseCode};
use crate::cms::error::EncodeError;
use crate::cms::header::{Header, StreamId};
use crate::cms::limits::LOGIN_PAYLOAD_BYTES_MAX;
use crate::cms::message::Try;
use crate::cms::pup::{Envelope, frame};
use crate::cms::response::{pack_error, split_value};
use crate::error::WireError;

/// What comes back for a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginAnswer<'a> {
    /// Accepted, unless the link closes or a `try` follows at once.
    Accepted(LoginReply<'a>),
    /// Refused; the link closes.
    Refused {
        /// Why; a blacklisted node is told `NOT_PERMITTED`.
        code: ErrorCode,
        /// Why, for people.
        text: &'a [u8],
    },
    /// Log in elsewhere; the link closes.
    Try(Try<'a>),
    /// Prove who you are: a security token with its NUL, not packed. Answered by
    /// [`Message::Xauth`](crate::cms::Message::Xauth).
    Xauth(&'a [u8]),
    /// Something else, to be skipped.
    Other(Code),
}

impl<'a> LoginAnswer<'a> {
    /// Decodes a frame that arrived before the login was answered.
    ///
    /// # Errors
    /// What [`Unpacker`](crate::cms::pup::Unpacker) cannot read, [`WireError::Short`] for an error without its code.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, WireError> {
        Ok(match header.code {
            Code::LOGIN => Self::Accepted(LoginReply::decode(payload)?),
            Code(code) if code == ResponseCode::ERROR.0 => {
                let (code, text) = split_value(payload)?;
                Self::Refused { code: ErrorCode(code), text: text.unwrap_or_default() }
            }
            Code::TRY => Self::Try(Try::decode(header.modifier, payload)?),
            Code::XAUTH => Self::Xauth(payload),
            code => Self::Other(code),
        })
    }

    /// Appends the frame.
    ///
    /// # Errors
    /// [`EncodeError`] for fields that the peer cannot take, a payload over 4096 bytes, and [`LoginAnswer::Other`].
    /// Nothing is appended.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let envelope = |code, modifier| Envelope {
            streamid: StreamId::NONE,
            code,
            modifier,
            limit: LOGIN_PAYLOAD_BYTES_MAX,
        };
        match self {
            Self::Accepted(reply) => frame(out, envelope(Code::LOGIN, 0), |packer| reply.pack(packer)),
            Self::Refused { code, text } => {
                let envelope = envelope(Code(ResponseCode::ERROR.0), 0);
                frame(out, envelope, |packer| pack_error(packer, *code, text))
            }
            Self::Try(hosts) => {
                frame(out, envelope(Code::TRY, hosts.modifier().0), |packer| hosts.pack(packer))
            }
            Self::Xauth(token) => frame(out, envelope(Code::XAUTH, 0), |packer| {
                packer.bytes(token);
                Ok(())
            }),
            Self::Other(_) => Err(EncodeError::NotForPeer { message: "unknown" }),
        }
    }
}
