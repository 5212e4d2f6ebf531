//! Errors of decoding bytes sent by a peer.
//!
//! A decoder refuses only bytes that it cannot represent. Invalid values that can be represented (a
//! negative length, an unknown subcode) are decoded, because the server sends a specific error text
//! for each.

use std::fmt;

/// The reason why bytes are not a valid message. It is always an error of the peer, so a retry with
/// the same bytes cannot succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// A field ends after `have` of its `need` bytes.
    Short {
        /// Name of the field in the protocol description.
        field: &'static str,
        /// Length of the field in bytes.
        need: usize,
        /// Number of bytes left.
        have: usize,
    },
    /// Bytes are left behind a complete message.
    Trailing {
        /// Name of the message.
        message: &'static str,
        /// Number of bytes left.
        bytes: usize,
    },
    /// A length that is invalid for the field.
    BadLength {
        /// Name of the field or message.
        field: &'static str,
        /// The length as sent; may be negative.
        bytes: i64,
    },
    /// A field is longer than its limit.
    TooLong {
        /// Name of the field or message.
        field: &'static str,
        /// Maximum length in bytes.
        limit: usize,
        /// Actual length in bytes.
        bytes: usize,
    },
    /// An element of a vector is malformed.
    BadItem {
        /// Name of the vector.
        field: &'static str,
        /// Index of the element, counted from 0.
        index: usize,
    },
    /// A text lacks the required NUL at its end.
    Unterminated {
        /// Name of the text.
        field: &'static str,
    },
    /// A text does not follow its grammar, or a number in it is out of range.
    BadText {
        /// Name of the text or the number.
        field: &'static str,
    },
    /// A field has a value with which the rest of the message cannot be decoded.
    BadValue {
        /// Name of the field.
        field: &'static str,
        /// The value as sent.
        value: i64,
    },
    /// A checksum in the message does not match the bytes it covers.
    BadChecksum {
        /// Name of the checksum field.
        field: &'static str,
        /// The checksum as sent.
        sent: u32,
        /// The checksum of the received bytes.
        computed: u32,
    },
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Short { field, need, have } => write!(f, "{field} needs {need} bytes, {have} are left"),
            Self::Trailing { message, bytes } => write!(f, "{bytes} bytes are left over behind {message}"),
            Self::BadLength { field, bytes } => write!(f, "{field} cannot have a length of {bytes} bytes"),
            Self::TooLong { field, limit, bytes } => {
                write!(f, "{field} has {bytes} bytes, more than the {limit} it may have")
            }
            Self::BadItem { field, index } => write!(f, "{field}: element {index} is malformed"),
            Self::Unterminated { field } => write!(f, "{field} does not end with NUL"),
            Self::BadText { field } => write!(f, "{field} is malformed"),
            Self::BadValue { field, value } => write!(f, "{field} cannot be {value}"),
            Self::BadChecksum { field, sent, computed } => {
                write!(f, "{field} is {sent:08x} but the bytes give {computed:08x}")
            }
        }
    }
}

impl std::error::Error for WireError {}
