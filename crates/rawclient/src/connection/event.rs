//! The events of a connection.

use wire::xroot::codes::AttnCode;
use wire::xroot::reply::{ErrorReply, Redirect, StatusFrame, Wait};

/// An event on a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectionEvent<'a> {
    /// The login is complete; requests are accepted.
    Ready,
    /// The next bytes in both directions are a TLS handshake. The caller performs it, and calls
    /// [`Connection::encrypted`](super::Connection::encrypted). Only logins that support TLS get
    /// this event.
    StartTls,
    /// The server demands authentication. The caller continues with
    /// [`Connection::authenticate`](super::Connection::authenticate) or gives up. Only logins with
    /// [`Login::authenticates`](crate::Login::authenticates) get this event.
    Authenticate(AuthenticationStep<'a>),
    /// Data of the reply to a request, in order. It continues the previous data of the same
    /// `kXR_read`, `kXR_readv` or `kXR_dirlist`, or the last [`ConnectionEvent::Pages`].
    Data {
        /// Tag of the request.
        tag: u64,
        /// Part of the data.
        bytes: &'a [u8],
    },
    /// `frame.dlen` bytes of data of a page request follow. Frames of one reply may arrive in any
    /// order.
    Pages {
        /// Tag of the request.
        tag: u64,
        /// Position of the data.
        frame: StatusFrame,
    },
    /// The reply is deferred and will arrive without another request.
    Later {
        /// Tag of the request.
        tag: u64,
        /// Maximum time until then, and the reason.
        wait: Wait<'a>,
    },
    /// The request is answered; no more events follow for its tag.
    Done {
        /// Tag of the request.
        tag: u64,
        /// Result of the request.
        outcome: RequestOutcome<'a>,
    },
    /// A message of the server that belongs to no request.
    Notice {
        /// Kind of the message.
        action: AttnCode,
        /// The rest of the message.
        rest: &'a [u8],
    },
}

/// The state of authentication that a client has to continue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuthenticationStep<'a> {
    /// The list of protocols of the server, from which the client chooses.
    Offers(&'a [u8]),
    /// The server continues the exchange.
    Challenge(&'a [u8]),
    /// The server refused the credentials.
    Refused(ErrorReply<'a>),
}

/// The result of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RequestOutcome<'a> {
    /// Success, with the body, or with the part of it that was not delivered as
    /// [`ConnectionEvent::Data`].
    Ok(&'a [u8]),
    /// The request failed.
    Error(ErrorReply<'a>),
    /// The request has to be sent to another server.
    Redirect(Redirect<'a>),
    /// The request has to be repeated later.
    Wait(Wait<'a>),
}

/// The state of a connection after one reply.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Greeting {
    /// Another reply is expected.
    Continues,
    /// The client has to send credentials; the reply is kept for the event.
    NeedsCredentials,
    /// The caller has to perform a TLS handshake.
    StartTls,
    /// Requests are accepted.
    Complete,
}
