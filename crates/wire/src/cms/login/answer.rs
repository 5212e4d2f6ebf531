//! Answers to a login: the reply, or a frame that replaces it.
//!
//! A node or redirector reads this frame before any other. Its streamid is 0, and errors use the
//! codes of responses, so it cannot be decoded as a [`Message`](crate::cms::Message).
//!
//! Source: cms protocol version 3, sections 2.1, 2.10, 2.11. Recorded: 01, 11, 17a, 17b.

use super::NodeLoginReply;
use crate::cms::codes::{Code, ErrorCode, ResponseCode};
use crate::cms::error::EncodeError;
use crate::cms::header::{Header, StreamId};
use crate::cms::limits::LOGIN_PAYLOAD_BYTES_MAX;
use crate::cms::message::Try;
use crate::cms::pup::{Arguments, Envelope, Unpacker, frame};
use crate::cms::response::{pack_error, split_value};
use crate::error::WireError;

/// The answer to a login.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoginAnswer<'a> {
    /// The login is accepted, unless the connection is closed or a `try` follows immediately.
    Accepted(NodeLoginReply<'a>),
    /// The login is refused; the sender closes the connection.
    Refused {
        /// The error code; `NOT_PERMITTED` for a blacklisted node.
        code: ErrorCode,
        /// The reason as text.
        text: &'a [u8],
    },
    /// Redirects to other managers; the sender closes the connection.
    Try(Try<'a>),
    /// Requests authentication: a security token with its NUL, not packed. The answer is
    /// [`Message::Xauth`](crate::cms::Message::Xauth).
    Xauth(&'a [u8]),
    /// Any other frame, which is skipped.
    Other(Code),
}

impl<'a> LoginAnswer<'a> {
    /// Decodes a frame received before the login was answered.
    ///
    /// # Errors
    /// An argument that [`Unpacker`] cannot decode; [`WireError::Short`] for an error without a
    /// code.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, WireError> {
        let arguments = &mut Unpacker::new(payload);
        Ok(match header.code {
            Code::LOGIN => Self::Accepted(NodeLoginReply::unpack(header.modifier, arguments)?),
            Code(code) if code == ResponseCode::ERROR.0 => {
                let (code, text) = split_value(payload)?;
                Self::Refused { code: ErrorCode(code), text: text.unwrap_or_default() }
            }
            Code::TRY => Self::Try(Try::unpack(header.modifier, arguments)?),
            Code::XAUTH => Self::Xauth(payload),
            code => Self::Other(code),
        })
    }

    /// Appends the frame.
    ///
    /// # Errors
    /// [`EncodeError`] for invalid fields, for a payload over 4096 bytes and for
    /// [`LoginAnswer::Other`]. No bytes are appended.
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
