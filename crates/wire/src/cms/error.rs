//! Errors of encoding a cms message.
//!
//! Decoding is lenient, but encoding is strict: a frame that the peer would not support or would
//! interpret differently is not sent. An encoder that returns an error has appended no bytes, so
//! the connection stays usable.

use std::fmt;

/// The reason why a message cannot be encoded for this peer. It is always a local condition; the
/// caller must answer in another way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EncodeError {
    /// A field or the whole payload is longer than the protocol allows.
    TooLong {
        /// Name of the field or message.
        field: &'static str,
        /// Maximum length in bytes.
        limit: usize,
        /// Actual length in bytes.
        bytes: usize,
    },
    /// A required field is missing.
    Missing {
        /// Name of the field.
        field: &'static str,
    },
    /// A field does not follow its grammar, for example a text that contains a NUL.
    Malformed {
        /// Name of the field.
        field: &'static str,
    },
    /// The message belongs to an extension that the peer did not announce at its login.
    NotForPeer {
        /// Name of the message.
        message: &'static str,
    },
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::TooLong { field, limit, bytes } => {
                write!(f, "{field} has {bytes} bytes, which exceeds the limit of {limit}")
            }
            Self::Missing { field } => write!(f, "{field} is missing"),
            Self::Malformed { field } => write!(f, "{field} is malformed"),
            Self::NotForPeer { message } => write!(f, "the peer does not support {message}"),
        }
    }
}

impl std::error::Error for EncodeError {}
