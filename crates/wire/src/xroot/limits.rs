//! Sizes and limits of the xroot protocol, each with its unit in its name.
//!
//! They are collected here so that compile-time assertions can relate them to each other.
//!
//! Source: xroot protocol 5.2.0, section 6.

/// Size of a request header in bytes.
pub const REQUEST_HEADER_BYTES: usize = 24;
/// Size of a response header in bytes.
pub const RESPONSE_HEADER_BYTES: usize = 8;
/// Size of the client's handshake in bytes.
pub const HANDSHAKE_BYTES: usize = 20;
/// Size of the server's answer to the handshake in bytes, including its response header.
pub const HANDSHAKE_REPLY_BYTES: usize = 16;

/// Maximum length in bytes of the argument (dlen) of a request whose payload is not file data.
pub const ARGUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Size in bytes of an element of `kXR_readv`, `kXR_writev` and of a pre-read list. The header of
/// each element in the `kXR_readv` reply has the same size.
pub const SEGMENT_BYTES: usize = 16;
/// Maximum number of elements of a `kXR_readv`.
pub const READV_SEGMENTS_MAX: usize = 1024;
/// Maximum number of bytes that one element of a `kXR_readv` may request.
pub const READV_SEGMENT_BYTES_MAX: usize = 2_097_136;
/// Maximum number of bytes that all elements of a `kXR_readv` may request.
pub const READV_TOTAL_BYTES_MAX: usize = 0x7fff_ffff;
/// Maximum body size in bytes of one frame of a `kXR_readv` reply.
pub const READV_FRAME_BYTES_MAX: usize = 2_097_152;
/// Maximum body size in bytes of one frame of a `kXR_read` reply that is not sent by zero copy.
pub const READ_FRAME_BYTES_MAX: usize = 2_097_152;
/// Maximum number of elements of a `kXR_writev`.
pub const WRITEV_SEGMENTS_MAX: usize = 1024;
/// Maximum payload of a `kXR_write` in bytes.
pub const WRITE_BYTES_MAX: usize = 0x7fff_ffff;
/// Size in bytes of the fixed part (`read_args`) of a `kXR_read` payload.
pub const READ_ARGUMENT_BYTES: usize = 8;

/// Size of an item of a `kXR_clone` in bytes.
pub const CLONE_ITEM_BYTES: usize = 32;
/// Maximum number of items of a `kXR_clone`.
pub const CLONE_ITEMS_MAX: usize = 1024;

/// Size in bytes of a page of `kXR_pgread` and `kXR_pgwrite`; pages are aligned to the file offset.
pub const PAGE_BYTES: usize = 4096;
/// Size in bytes of the checksum in front of each page.
pub const PAGE_CHECKSUM_BYTES: usize = 4;
/// Maximum number of pages in one `kXR_status` frame of a `kXR_pgread` reply.
pub const PGREAD_FRAME_PAGES_MAX: usize = 511;
/// Maximum number of data bytes, including checksums, of one `kXR_status` frame of a `kXR_pgread`
/// reply.
pub const PGREAD_FRAME_BYTES_MAX: usize = PGREAD_FRAME_PAGES_MAX * (PAGE_BYTES + PAGE_CHECKSUM_BYTES);
/// Maximum number of bad pages that a `kXR_pgwrite` reply reports.
pub const PGWRITE_BAD_PAGES_MAX: usize = 127;
/// Maximum number of uncorrected bad pages of one open file.
pub const FILE_BAD_PAGES_MAX: usize = 256;

/// Size of the status body in bytes, without the information of the request.
pub const STATUS_BODY_BYTES: usize = 16;
/// Size in bytes of the information (`offset`) of a page request in a `kXR_status` frame.
pub const STATUS_PAGE_INFO_BYTES: usize = 8;

/// Largest path id. Path ids start at 1, so it is also the maximum number of bound connections of a
/// session.
pub const PATH_ID_MAX: u8 = 15;
/// Maximum number of requests queued on one bound connection.
pub const PATH_REQUESTS_MAX: usize = 5;
/// Maximum length of a `kXR_sigver` signature in bytes.
pub const SIGNATURE_BYTES_MAX: usize = 64;

/// Maximum number of attributes of a `kXR_fattr`.
pub const FATTR_ATTRIBUTES_MAX: usize = 16;
/// Maximum length of the name of an attribute in bytes.
pub const FATTR_NAME_BYTES_MAX: usize = 248;
/// Maximum length of the value of an attribute in bytes.
pub const FATTR_VALUE_BYTES_MAX: usize = 65536;

/// Maximum length in bytes of the answers to one `kXR_query` for configuration values.
pub const CONFIG_ANSWER_BYTES_MAX: usize = 4096;
/// Size in bytes at which a plain directory listing is split into another frame.
pub const DIRLIST_FRAME_BYTES: usize = 4096;
/// Size in bytes at which a directory listing with stat texts is split into another frame.
pub const DIRLIST_STAT_FRAME_BYTES: usize = 8192;
/// Maximum length of a path in bytes.
pub const PATH_BYTES_MAX: usize = 4096;

/// Size in bytes of the user name in `kXR_login`, padded with NUL.
pub const USERNAME_BYTES: usize = 8;
/// Size of a session id in bytes.
pub const SESSION_ID_BYTES: usize = 16;
/// Port of an address without a port.
pub const DEFAULT_PORT: u16 = 1094;

const _: () = assert!(READV_SEGMENTS_MAX * SEGMENT_BYTES <= ARGUMENT_BYTES_MAX);
const _: () = assert!(WRITEV_SEGMENTS_MAX * SEGMENT_BYTES <= ARGUMENT_BYTES_MAX);
const _: () = assert!(CLONE_ITEMS_MAX * CLONE_ITEM_BYTES <= ARGUMENT_BYTES_MAX);
const _: () = assert!(READV_SEGMENT_BYTES_MAX + SEGMENT_BYTES <= READV_FRAME_BYTES_MAX);
const _: () = assert!(PGREAD_FRAME_BYTES_MAX <= READ_FRAME_BYTES_MAX);
const _: () = assert!(PGWRITE_BAD_PAGES_MAX <= FILE_BAD_PAGES_MAX);
const _: () = assert!(PATH_BYTES_MAX <= ARGUMENT_BYTES_MAX);
const _: () = assert!(
    FATTR_ATTRIBUTES_MAX * (2 + FATTR_NAME_BYTES_MAX + 1 + 4 + FATTR_VALUE_BYTES_MAX) + PATH_BYTES_MAX
        <= ARGUMENT_BYTES_MAX
);
const _: () = assert!(HANDSHAKE_REPLY_BYTES == RESPONSE_HEADER_BYTES + 8);
