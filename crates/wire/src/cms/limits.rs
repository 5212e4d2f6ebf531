//! Sizes and limits of the cms protocol, each under a name with its unit.
//!
//! Source: cms protocol version 3, sections 1.1, 1.2, 2.12, 3.1, 3.5, 3.6, 4.8, 8.6.

/// Bytes of the header every frame starts with.
pub const HEADER_BYTES: usize = 8;

/// Most payload bytes of a frame on an established link; a real daemon closes the link at a longer one.
pub const PAYLOAD_BYTES_MAX: usize = 16_384;
/// Most payload bytes of a login, of its reply, and of anything in the place of that reply.
pub const LOGIN_PAYLOAD_BYTES_MAX: usize = 4096;
/// Most payload bytes that a redirector takes of any response but `data`.
pub const RESPONSE_PAYLOAD_BYTES_MAX: usize = 2048;
/// Most payload bytes of a `data` response: what the length field can say.
pub const DATA_PAYLOAD_BYTES_MAX: usize = 65_535;

/// Most bytes of a packed text with its NUL. Real senders cannot pack longer ones; receivers take what fits the frame.
pub const TEXT_BYTES_MAX: usize = 2047;
/// Most bytes of a path in a message.
pub const PATH_BYTES_MAX: usize = TEXT_BYTES_MAX - 1;
/// Most bytes of the text of a `try` on an established link: the payload less length and NUL.
pub const TRY_TEXT_BYTES_MAX: usize = PAYLOAD_BYTES_MAX - 3;
/// Most bytes of the text of a `try` in the place of a login reply.
pub const LOGIN_TRY_TEXT_BYTES_MAX: usize = LOGIN_PAYLOAD_BYTES_MAX - 3;

/// Most children of a node: one bit of a 64-bit vector each.
pub const CHILDREN_MAX: usize = 64;
/// Most managers to which a node connects.
pub const NODE_MANAGERS_MAX: usize = 16;
/// Most managers to which a redirector connects.
pub const REDIRECTOR_MANAGERS_MAX: usize = 15;
/// Most redirectors of a manager.
pub const REDIRECTORS_MAX: usize = 64;
/// Most requests that a redirector has outstanding on a link.
pub const OUTSTANDING_REQUESTS_MAX: usize = 1024;

const _: () = assert!(TEXT_BYTES_MAX < RESPONSE_PAYLOAD_BYTES_MAX);
const _: () = assert!(LOGIN_PAYLOAD_BYTES_MAX < PAYLOAD_BYTES_MAX);
