//! Frames from a manager to its redirectors: responses, and a few messages.
//!
//! The streamid of a response is that of the request. The payload is a u32 `value`, followed by
//! bytes:
//!
//! | code | response | value                    | bytes                          |
//! |------|----------|--------------------------|--------------------------------|
//! | 0    | data     | 0, or a size for `stats` | text and NUL, or none          |
//! | 1    | error    | [`ErrorCode`]            | message and NUL                |
//! | 2    | redirect | port, or -1              | host and NUL, or a URL and NUL |
//! | 3    | wait     | seconds, at least 1      | none                           |
//! | 4    | waitresp | [`MessageId`]            | none                           |
//!
//! With the modifier bit 0x80 the frame is the deferred answer to an earlier `waitresp`, and its
//! streamid is that of the [`MessageId`]. A wait of 0 s is not sent, because redirectors treat it
//! as success. The texts of `data` are those of [`locate_text`] and [`space_text`], and the XML of
//! `stats`.
//!
//! Source: cms protocol version 3, sections 1.5, 1.6, 5.8, 5.9. Recorded: 03 to 06, 15, 22.

pub mod locate_text;
pub mod message_id;
pub mod redirect;
pub mod space_text;

pub use message_id::MessageId;
pub use redirect::{EncodedRedirect, ParsedRedirect};

use super::codes::{Code, ErrorCode, ResponseCode};
use super::error::EncodeError;
use super::flags::ResponseModifier;
use super::header::{Header, StreamId};
use super::limits::{DATA_PAYLOAD_BYTES_MAX, RESPONSE_PAYLOAD_BYTES_MAX};
use super::message::Message;
use super::pup::{Envelope, Packer, frame, until_nul};
use crate::cursor::FieldReader;
use crate::error::WireError;

/// Size in bytes of the value at the start of a response.
const VALUE_BYTES: usize = 4;
/// Maximum length in bytes of an error text; longer texts are cut.
pub const ERROR_TEXT_BYTES_MAX: usize = RESPONSE_PAYLOAD_BYTES_MAX - VALUE_BYTES - 1;
/// Maximum of a wait in seconds, because redirectors store it as a signed number.
const WAIT_SECONDS_MAX: u32 = 0x7fff_ffff;

/// A frame from a manager to a redirector after the login is answered.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToRedirector<'a> {
    /// A response.
    Response(Response<'a>),
    /// Any other frame: `status`, `disc`, `try`.
    Message(Message<'a>),
}

impl<'a> ToRedirector<'a> {
    /// Decodes a frame from its header and the bytes behind it.
    ///
    /// # Errors
    /// Those of [`Response::decode`] and [`Message::decode`].
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, WireError> {
        if header.code.0 <= ResponseCode::LAST {
            Response::decode(header, payload).map(Self::Response)
        } else {
            Message::decode(header, payload).map(Self::Message)
        }
    }
}

/// A response to a redirector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Response<'a> {
    /// Marks the deferred answer to an earlier `waitresp`.
    pub modifier: ResponseModifier,
    /// The answer.
    pub answer: ResponseAnswer<'a>,
}

/// The answer of a manager to a redirector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ResponseAnswer<'a> {
    /// Success, with a text if the request asks for one. An empty list of locations should be sent
    /// as an error instead, because clients treat it as an invalid answer.
    Data {
        /// 0, or the size of a text of which only the size was requested.
        value: u32,
        /// The text without its NUL.
        text: Option<&'a [u8]>,
    },
    /// Failure.
    Error {
        /// Error code.
        code: ErrorCode,
        /// The reason as text, which is passed on to the client. Cut at [`ERROR_TEXT_BYTES_MAX`].
        text: &'a [u8],
    },
    /// Redirects the client.
    Redirect(EncodedRedirect<'a>),
    /// Delays the client, which then repeats its request.
    Wait {
        /// Waiting time in seconds, at least 1.
        seconds: u32,
    },
    /// Announces a deferred answer.
    Waitresp {
        /// Number of the deferred answer: [`MessageId`].
        id: u32,
    },
    /// A response that this version does not know, which a redirector treats as an error.
    Unknown(ResponseCode),
}

impl<'a> Response<'a> {
    /// Creates an immediate response.
    #[must_use]
    pub const fn now(answer: ResponseAnswer<'a>) -> Self {
        Self { modifier: ResponseModifier::NONE, answer }
    }

    /// Creates the deferred answer to a `waitresp`; its streamid is [`MessageId::streamid`].
    #[must_use]
    pub const fn later(answer: ResponseAnswer<'a>) -> Self {
        Self { modifier: ResponseModifier::ASYNC, answer }
    }

    /// Reports whether this is the deferred answer to a `waitresp`.
    #[must_use]
    pub const fn is_later(&self) -> bool {
        self.modifier.contains(ResponseModifier::ASYNC)
    }

    /// Decodes a response from its header and the bytes behind it.
    ///
    /// # Errors
    /// [`WireError::Short`] without a value.
    pub fn decode(header: &Header, payload: &'a [u8]) -> Result<Self, WireError> {
        let code = ResponseCode(header.code.0);
        let value = || split_value(payload);
        let answer = match code {
            ResponseCode::DATA => {
                let (value, text) = value()?;
                ResponseAnswer::Data { value, text }
            }
            ResponseCode::ERROR => {
                let (code, text) = value()?;
                ResponseAnswer::Error { code: ErrorCode(code), text: text.unwrap_or_default() }
            }
            ResponseCode::REDIRECT => {
                let (port, target) = value()?;
                ResponseAnswer::Redirect(EncodedRedirect::decode(port, target.unwrap_or_default()))
            }
            ResponseCode::WAIT => ResponseAnswer::Wait { seconds: value()?.0 },
            ResponseCode::WAITRESP => ResponseAnswer::Waitresp { id: value()?.0 },
            code => ResponseAnswer::Unknown(code),
        };
        Ok(Self { modifier: ResponseModifier(header.modifier), answer })
    }

    /// Appends the response.
    ///
    /// # Errors
    /// [`EncodeError`] for a wait of 0 s, for a redirect without a valid target, and for a number
    /// of a deferred answer that differs between byte orders. Redirectors would interpret these
    /// differently. Also for texts that are too long. No bytes are appended.
    pub fn encode(&self, streamid: StreamId, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        let code = self.answer.code();
        if self.is_later() {
            if matches!(self.answer, ResponseAnswer::Waitresp { .. }) {
                return Err(EncodeError::Malformed { field: "waitresp" });
            }
            MessageId::of_streamid(streamid).ok_or(EncodeError::Malformed { field: "streamid" })?;
        }
        let envelope = Envelope {
            streamid,
            code: Code(code.0),
            modifier: self.modifier.0,
            limit: match code {
                ResponseCode::DATA => DATA_PAYLOAD_BYTES_MAX,
                _ => RESPONSE_PAYLOAD_BYTES_MAX,
            },
        };
        frame(out, envelope, |packer| self.answer.pack(packer))
    }
}

impl ResponseAnswer<'_> {
    /// Returns the code of the response.
    #[must_use]
    pub const fn code(&self) -> ResponseCode {
        match self {
            Self::Data { .. } => ResponseCode::DATA,
            Self::Error { .. } => ResponseCode::ERROR,
            Self::Redirect(_) => ResponseCode::REDIRECT,
            Self::Wait { .. } => ResponseCode::WAIT,
            Self::Waitresp { .. } => ResponseCode::WAITRESP,
            Self::Unknown(code) => *code,
        }
    }

    fn pack(&self, packer: &mut Packer<'_>) -> Result<(), EncodeError> {
        match *self {
            Self::Data { value, text } => {
                packer.bytes(&value.to_be_bytes());
                match text {
                    Some(text) => pack_text(packer, "data", text),
                    None => Ok(()),
                }
            }
            Self::Error { code, text } => pack_error(packer, code, text),
            Self::Redirect(redirect) => redirect.pack(packer),
            Self::Wait { seconds } => {
                if !(1..=WAIT_SECONDS_MAX).contains(&seconds) {
                    return Err(EncodeError::Malformed { field: "seconds" });
                }
                packer.bytes(&seconds.to_be_bytes());
                Ok(())
            }
            Self::Waitresp { id } => {
                MessageId::of_value(id).ok_or(EncodeError::Malformed { field: "message id" })?;
                packer.bytes(&id.to_be_bytes());
                Ok(())
            }
            Self::Unknown(_) => Err(EncodeError::NotForPeer { message: "unknown" }),
        }
    }
}

/// Returns the value at the start of a response, and its text without NUL if bytes follow.
pub(super) fn split_value(payload: &[u8]) -> Result<(u32, Option<&[u8]>), WireError> {
    let mut reader = FieldReader::new(payload);
    let value = reader.u32("value")?;
    let bytes = reader.take_rest();
    Ok((value, (!bytes.is_empty()).then(|| until_nul(bytes))))
}

/// Appends an error: its code, its text cut to the limit, and NUL.
pub(super) fn pack_error(packer: &mut Packer<'_>, code: ErrorCode, text: &[u8]) -> Result<(), EncodeError> {
    packer.bytes(&code.0.to_be_bytes());
    pack_text(packer, "error text", text.get(..ERROR_TEXT_BYTES_MAX).unwrap_or(text))
}

fn pack_text(packer: &mut Packer<'_>, field: &'static str, text: &[u8]) -> Result<(), EncodeError> {
    if text.contains(&0) {
        return Err(EncodeError::Malformed { field });
    }
    packer.bytes(text);
    packer.bytes(&[0]);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(response: Response<'_>, streamid: [u8; 4]) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        response.encode(StreamId(streamid), &mut out).map(|()| out)
    }

    #[test]
    fn a_wait_of_0_seconds_is_not_sent() {
        let wait = |seconds| encoded(Response::now(ResponseAnswer::Wait { seconds }), [1; 4]);
        assert_eq!(wait(0), Err(EncodeError::Malformed { field: "seconds" }));
        assert_eq!(wait(u32::MAX), Err(EncodeError::Malformed { field: "seconds" }));
        assert_eq!(wait(5).unwrap(), [1, 1, 1, 1, 3, 0, 0, 4, 0, 0, 0, 5]);
    }

    #[test]
    fn a_deferred_answer_has_a_number_that_is_equal_in_both_byte_orders() {
        let waitresp = |id| encoded(Response::now(ResponseAnswer::Waitresp { id }), [1; 4]);
        assert!(waitresp(0x0001_0100).is_ok());
        for id in [0, 1, 0x0001_0000, 0x0101_0000] {
            assert_eq!(waitresp(id), Err(EncodeError::Malformed { field: "message id" }), "{id:x}");
        }
        let later = |streamid| encoded(Response::later(ResponseAnswer::Wait { seconds: 1 }), streamid);
        assert!(later([0, 1, 1, 0]).is_ok());
        assert_eq!(later([0, 0, 1, 0]), Err(EncodeError::Malformed { field: "streamid" }));
        let twice = encoded(Response::later(ResponseAnswer::Waitresp { id: 0x0001_0100 }), [0, 1, 1, 0]);
        assert_eq!(twice, Err(EncodeError::Malformed { field: "waitresp" }));
    }

    #[test]
    fn a_long_error_text_is_cut() {
        let text = [b'e'; 5000];
        let bytes =
            encoded(Response::now(ResponseAnswer::Error { code: ErrorCode::NO_ENTRY, text: &text }), [1; 4]);
        assert_eq!(bytes.unwrap().len(), 8 + 2048);
        let nul = encoded(
            Response::now(ResponseAnswer::Error { code: ErrorCode::NO_ENTRY, text: b"a\0b" }),
            [1; 4],
        );
        assert_eq!(nul, Err(EncodeError::Malformed { field: "error text" }));
    }

    #[test]
    fn data_is_limited_to_one_frame() {
        let text = vec![b'd'; DATA_PAYLOAD_BYTES_MAX];
        let data = |bytes| {
            let text = text.get(..bytes);
            encoded(Response::now(ResponseAnswer::Data { value: 0, text }), [1; 4])
        };
        assert_eq!(data(65_530).unwrap().len(), 8 + 65_535);
        assert!(matches!(data(65_531), Err(EncodeError::TooLong { limit: 65_535, .. })));
    }
}
