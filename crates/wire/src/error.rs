//! What can be wrong with bytes that a peer sent.
//!
//! A decoder rejects only what it cannot represent. Values that have a shape but make no sense (a negative length, an
//! unknown sub-code) are decoded, because the one who answers has its own error text for each.

use std::fmt;

/// Why bytes are not a message. Always the peer's fault; sending the same bytes again cannot help.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WireError {
    /// A field ends after `have` of its `need` bytes.
    Short {
        /// Name of the field as in the protocol description.
        field: &'static str,
        /// Bytes the field takes.
        need: usize,
        /// Bytes that were left.
        have: usize,
    },
    /// `bytes` bytes are left over behind a complete message.
    Trailing {
        /// Name of the message.
        message: &'static str,
        /// How many bytes are left over.
        bytes: usize,
    },
    /// A length that the field cannot have.
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
        /// The most bytes it may have.
        limit: usize,
        /// The bytes it has.
        bytes: usize,
    },
    /// Element `index` (from 0) of a vector is malformed.
    BadItem {
        /// Name of the vector.
        field: &'static str,
        /// Which element, counted from 0.
        index: usize,
    },
    /// A text does not end with the NUL it must end with.
    Unterminated {
        /// Name of the text.
        field: &'static str,
    },
    /// A text does not follow its grammar, or a number in it is out of range.
    BadText {
        /// Name of the text or the number.
        field: &'static str,
    },
    /// A field has a value with which the rest of the message cannot be understood.
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
        /// The checksum of the bytes that came.
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
