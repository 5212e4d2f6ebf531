//! Sizes and limits of the xroot protocol, each under a name with its unit.
//!
//! Source: xroot protocol 5.2.0, section 6.

/// Bytes of a request header.
pub const REQUEST_HEADER_BYTES: usize = 24;
/// Bytes of a response header.
pub const RESPONSE_HEADER_BYTES: usize = 8;
/// Bytes of the client's handshake.
pub const HANDSHAKE_BYTES: usize = 20;
/// Bytes of the server's answer to the handshake, its response header included.
pub const HANDSHAKE_REPLY_BYTES: usize = 16;

/// Most bytes of argument (dlen) of a request whose payload is not file data.
pub const ARGUMENT_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Bytes of one element of `kXR_readv`, `kXR_writev` and of a pre-read list; also of the header before each
/// element's data in the `kXR_readv` reply.
pub const SEGMENT_BYTES: usize = 16;
/// Most elements of a `kXR_readv`.
pub const READV_SEGMENTS_MAX: usize = 1024;
/// Most bytes that one element of a `kXR_readv` may ask for.
pub const READV_SEGMENT_BYTES_MAX: usize = 2_097_136;
/// Most bytes that all elements of a `kXR_readv` may ask for.
pub const READV_TOTAL_BYTES_MAX: usize = 0x7fff_ffff;
/// Most body bytes of one frame of a `kXR_readv` reply.
pub const READV_FRAME_BYTES_MAX: usize = 2_097_152;
/// Most body bytes of one frame of a `kXR_read` reply that is not sent by zero copy.
pub const READ_FRAME_BYTES_MAX: usize = 2_097_152;
/// Most elements of a `kXR_writev`.
pub const WRITEV_SEGMENTS_MAX: usize = 1024;
/// Most payload bytes of a `kXR_write`.
pub const WRITE_BYTES_MAX: usize = 0x7fff_ffff;
/// Bytes of the fixed part (`read_args`) of a `kXR_read` payload.
pub const READ_ARGUMENT_BYTES: usize = 8;

/// Bytes of one item of a `kXR_clone`.
pub const CLONE_ITEM_BYTES: usize = 32;
/// Most items of a `kXR_clone`.
pub const CLONE_ITEMS_MAX: usize = 1024;

/// Bytes of a page of `kXR_pgread` and `kXR_pgwrite`; pages are aligned to the file offset.
pub const PAGE_BYTES: usize = 4096;
/// Bytes of the checksum before each page.
pub const PAGE_CHECKSUM_BYTES: usize = 4;
/// Most pages in one `kXR_status` frame of a `kXR_pgread` reply.
pub const PGREAD_FRAME_PAGES_MAX: usize = 511;
/// Most data bytes, checksums included, of one `kXR_status` frame of a `kXR_pgread` reply.
pub const PGREAD_FRAME_BYTES_MAX: usize = PGREAD_FRAME_PAGES_MAX * (PAGE_BYTES + PAGE_CHECKSUM_BYTES);
/// Most bad pages that a `kXR_pgwrite` reply reports.
pub const PGWRITE_BAD_PAGES_MAX: usize = 127;
/// Most bad pages outstanding for one open file.
pub const FILE_BAD_PAGES_MAX: usize = 256;

/// Bytes of the status body, without the information of the request.
pub const STATUS_BODY_BYTES: usize = 16;
/// Bytes of the information (`offset`) of a page request in a `kXR_status` frame.
pub const STATUS_PAGE_INFO_BYTES: usize = 8;

/// Largest path id; path ids start at 1, so it is also the most bound connections of a session.
pub const PATH_ID_MAX: u8 = 15;
/// Most requests queued on one bound connection.
pub const PATH_REQUESTS_MAX: usize = 5;
/// Most bytes of a `kXR_sigver` signature.
pub const SIGNATURE_BYTES_MAX: usize = 64;

/// Most attributes of a `kXR_fattr`.
pub const FATTR_ATTRIBUTES_MAX: usize = 16;
/// Most bytes of an attribute's name.
pub const FATTR_NAME_BYTES_MAX: usize = 248;
/// Most bytes of an attribute's value.
pub const FATTR_VALUE_BYTES_MAX: usize = 65536;

/// Most bytes of the answers to one `kXR_query` for configuration values.
pub const CONFIG_ANSWER_BYTES_MAX: usize = 4096;
/// Bytes at which a plain directory listing is cut into another frame.
pub const DIRLIST_FRAME_BYTES: usize = 4096;
/// Bytes at which a directory listing with stat texts is cut into another frame.
pub const DIRLIST_STAT_FRAME_BYTES: usize = 8192;
/// Most bytes of a path.
pub const PATH_BYTES_MAX: usize = 4096;

/// Bytes of the user name in `kXR_login`, NUL padded.
pub const USERNAME_BYTES: usize = 8;
/// Bytes of a session id.
pub const SESSION_ID_BYTES: usize = 16;
/// Port when an address names none.
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
