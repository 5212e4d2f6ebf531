//! Why a message is not sent.
//!
//! Decoding takes what peers send; encoding is strict, because some frames end a real daemon and others mean
//! something else to it than to us. An encoder that refuses has appended nothing.

use std::fmt;

/// Why a message cannot be encoded for this peer. Always our fault: a caller that meets this answers in another way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// A field, or the whole payload, is longer than the peer takes.
    TooLong {
        /// Name of the field or message.
        field: &'static str,
        /// The most bytes it may have.
        limit: usize,
        /// The bytes it has.
        bytes: usize,
    },
    /// A field without which a real daemon fails.
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A field that does not follow its grammar, such as a text with a NUL in it.
    Malformed {
        /// Name of the field.
        field: &'static str,
    },
    /// A message that only peers understand, or survive, that said so at their login.
    NotForPeer {
        /// Name of the message.
        message: &'static str,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooLong { field, limit, bytes } => {
                write!(f, "{field} has {bytes} bytes, more than the {limit} that the peer takes")
            }
            Self::Missing { field } => write!(f, "{field} is missing"),
            Self::Malformed { field } => write!(f, "{field} is malformed"),
            Self::NotForPeer { message } => write!(f, "{message} is not for this peer"),
        }
    }
}

impl std::error::Error for EncodeError {}
