//! Replies: encoders for a server, decoders for a client.
//!
//! A server appends frames to an output buffer: complete ones ([`ok`], [`error()`], [`wait()`],
//! [`redirect()`], …), or a frame around a body that a closure appends ([`frame_with`]).
//!
//! The body of a `kXR_ok` depends on the request, so each kind of body has its own file. A client
//! decodes the frame with [`Reply::decode`] and the body of a `kXR_ok` with the decoder for its
//! request.

pub mod attn;
pub mod bad_pages;
pub mod dirlist;
pub mod error;
pub mod fattr;
pub mod frame;
pub mod locate;
pub mod login;
pub mod open;
pub mod protocol;
pub mod query;
pub mod readv;
pub mod redirect;
pub mod small;
pub mod stat_text;
pub mod status;
pub mod wait;

pub use attn::Attn;
pub use bad_pages::BadPages;
pub use error::{ErrorReply, encode as error};
pub use frame::{authmore, frame, frame_with, ok, ok_text, oksofar};
pub use login::LoginReply;
pub use open::{OpenDetail, OpenReply};
pub use protocol::{ProtocolReply, SecurityRequirements};
pub use redirect::{Redirect, RedirectTarget, redirect};
pub use small::{BindReply, ChkpointSizes, statx_byte};
pub use stat_text::{ListedChecksum, StatExtended, StatText, VfsText};
pub use status::StatusFrame;
pub use wait::{Wait, wait, waitresp};

use super::codes::Status;
use super::header::{ResponseHeader, StreamId};
use crate::codec::Decode;
use crate::error::WireError;

/// A reply of the xroot protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reply<'a> {
    /// Success; the body depends on the request.
    Ok(&'a [u8]),
    /// Part of an answer; more frames follow.
    Oksofar(&'a [u8]),
    /// The deferred answer to another request, or a message.
    Attn(Attn<'a>),
    /// The next challenge of an authentication.
    Authmore(&'a [u8]),
    /// The failure of the request.
    Error(ErrorReply<'a>),
    /// A redirect to another server.
    Redirect(Redirect<'a>),
    /// A delay, after which the client repeats the request.
    Wait(Wait<'a>),
    /// The announcement of a deferred answer.
    Waitresp(Wait<'a>),
    /// The answer to a page request; its data follows the frame.
    Status(StatusFrame),
    /// A status that this protocol version does not define.
    Unknown {
        /// The status.
        status: Status,
        /// The body.
        body: &'a [u8],
    },
}

impl<'a> Reply<'a> {
    /// Decodes a reply from its header and the `dlen` bytes behind it, without the data behind a
    /// `kXR_status`.
    ///
    /// # Errors
    /// Those of the kinds of replies: [`ErrorReply::decode`], [`Redirect::decode`],
    /// [`Attn::decode`], [`StatusFrame::decode`].
    pub fn decode(header: &ResponseHeader, body: &'a [u8]) -> Result<Self, WireError> {
        Ok(match header.status {
            Status::OK => Self::Ok(body),
            Status::OKSOFAR => Self::Oksofar(body),
            Status::ATTN => Self::Attn(Attn::decode(body)?),
            Status::AUTHMORE => Self::Authmore(body),
            Status::ERROR => Self::Error(ErrorReply::decode(body)?),
            Status::REDIRECT => Self::Redirect(Redirect::decode(body)?),
            Status::WAIT => Self::Wait(Wait::decode(body)?),
            Status::WAITRESP => Self::Waitresp(Wait::decode(body)?),
            Status::STATUS => Self::Status(StatusFrame::decode(header, body)?),
            status => Self::Unknown { status, body },
        })
    }

    /// Appends the reply without the data behind a `kXR_status`. The streamid of `kXR_attn` is
    /// always zero, and that of `kXR_status` is taken from the frame.
    pub fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) {
        match self {
            Self::Ok(body) => ok(out, streamid, body),
            Self::Oksofar(body) => oksofar(out, streamid, body),
            Self::Attn(attn) => frame(out, StreamId::default(), Status::ATTN, attn),
            Self::Authmore(body) => authmore(out, streamid, body),
            Self::Error(error) => frame(out, streamid, Status::ERROR, error),
            Self::Redirect(to) => redirect(out, streamid, to),
            Self::Wait(wait) => frame(out, streamid, Status::WAIT, wait),
            Self::Waitresp(wait) => frame(out, streamid, Status::WAITRESP, wait),
            Self::Status(status) => out.extend_from_slice(&status.to_bytes()),
            Self::Unknown { status, body } => frame(out, streamid, *status, *body),
        }
    }

    /// Reports whether this reply is the last one to its request.
    #[must_use]
    pub fn is_final(&self) -> bool {
        match self {
            Self::Oksofar(_) | Self::Attn(_) | Self::Waitresp(_) => false,
            Self::Status(status) => status.resptype == super::codes::ResponseType::FINAL,
            _ => true,
        }
    }
}
