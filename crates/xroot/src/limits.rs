//! The constants that bound what a connection may use and how long it may hold a loop.

/// Requests of one connection that are run before others get their turn: what others wait for behind a connection that never
/// runs dry, some 50 us of small reads.
pub const ROUND_REQUESTS: usize = 32;

/// Bytes sent to one connection before others get their turn.
pub const ROUND_BYTES: usize = 1024 * 1024;

/// Output of a connection up to which further replies are made. Beyond it large replies pause, and requests wait unread.
pub const OUTPUT_LOW_BYTES: usize = 256 * 1024;

/// Output of a connection in memory beyond which it takes no further request (ranges of files are sent from where they are
/// and do not count): a reader that stops reading holds this much and one
/// reply.
pub const OUTPUT_HIGH_BYTES: usize = 1024 * 1024;

/// A read up to this size is answered on the spot, in the output buffer behind its header.
pub const SPOT_BYTES_MAX: usize = 32 * 1024;

/// A plain read from this size on is sent without copying, where that is possible: below, the extra system call costs
/// more than the copy.
pub const SENDFILE_BYTES_MIN: usize = 16 * 1024;

/// Data in one frame of a reply that has several.
pub const FRAME_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Large reads and vector reads under way in one connection; further requests wait.
pub const TRANSFERS_MAX: usize = 256;

/// Elements of vector reads under way in one connection from which on further requests wait: each takes memory until its data
/// has been sent.
pub const ELEMENTS_WAITING_MAX: usize = 4096;

/// After a write with this much payload the next one is received with its header in one call, the payload to where it is written
/// from: below, to copy it costs less than that call.
pub const PAYLOAD_AHEAD_MIN: usize = 16 * 1024;

/// Pieces of payload of one request that are being written while the next is received.
pub const PIECES_IN_FLIGHT_MAX: usize = 4;

/// Data announced for a bound connection that has not come; further requests wait.
pub const EXPECTED_MAX: usize = 64;

/// Bytes of argument that all connections of the process may have waiting for their rest, beyond the first
/// [`net::SMALL_BYTES`] of each.
pub const ARGUMENT_MEMORY_MAX: usize = 256 * 1024 * 1024;

const _: () = assert!(OUTPUT_LOW_BYTES <= OUTPUT_HIGH_BYTES);
const _: () = assert!(SENDFILE_BYTES_MIN <= SPOT_BYTES_MAX);
const _: () = assert!(SPOT_BYTES_MAX + 16 <= net::MEDIUM_BYTES);
const _: () = assert!(wire::xroot::limits::ARGUMENT_BYTES_MAX < ARGUMENT_MEMORY_MAX);
