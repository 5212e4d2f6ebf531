//! Sizes and limits of the cms protocol, each with its unit in its name.
//!
//! They are collected here because decoders, encoders and the cluster logic must use the same
//! values.
//!
//! Source: cms protocol version 3, sections 1.1, 1.2, 2.12, 3.1, 3.5, 3.6, 4.8, 8.6.

/// Size of the frame header in bytes.
pub const HEADER_BYTES: usize = 8;

/// Maximum payload in bytes of a frame on an established connection. A longer one closes the
/// connection.
pub const PAYLOAD_BYTES_MAX: usize = 16_384;
/// Maximum payload in bytes of a login, of its reply and of frames that replace the reply.
pub const LOGIN_PAYLOAD_BYTES_MAX: usize = 4096;
/// Maximum payload in bytes that a redirector accepts in a response other than `data`.
pub const RESPONSE_PAYLOAD_BYTES_MAX: usize = 2048;
/// Maximum payload in bytes of a `data` response: the maximum of the length field.
pub const DATA_PAYLOAD_BYTES_MAX: usize = 65_535;

/// Maximum length in bytes of a packed text with its NUL. Senders of XRootD cannot pack longer
/// texts; a receiver accepts any text that fits the frame.
pub const TEXT_BYTES_MAX: usize = 2047;
/// Maximum length in bytes of a path in a message.
pub const PATH_BYTES_MAX: usize = TEXT_BYTES_MAX - 1;
/// Maximum length in bytes of the text of a `try` on an established connection: the payload without
/// length and NUL.
pub const TRY_TEXT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 3;
/// Maximum length in bytes of the text of a `try` that replaces a login reply.
pub const LOGIN_TRY_TEXT_BYTES_MAX: usize = LOGIN_PAYLOAD_BYTES_MAX - 3;

/// Maximum number of children of a node, because each is one bit of a 64-bit vector.
pub const CHILDREN_MAX: usize = 64;
/// Maximum number of managers to which a node connects.
pub const NODE_MANAGERS_MAX: usize = 16;
/// Maximum number of managers to which a redirector connects.
pub const REDIRECTOR_MANAGERS_MAX: usize = 15;
/// Maximum number of redirectors of a manager.
pub const REDIRECTORS_MAX: usize = 64;
/// Maximum number of outstanding requests of a redirector on one connection.
pub const OUTSTANDING_REQUESTS_MAX: usize = 1024;

const _: () = assert!(TEXT_BYTES_MAX < RESPONSE_PAYLOAD_BYTES_MAX);
const _: () = assert!(LOGIN_PAYLOAD_BYTES_MAX < PAYLOAD_BYTES_MAX);
