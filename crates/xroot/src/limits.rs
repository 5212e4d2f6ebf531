//! Limits of the resources of a connection and of the time for which it may occupy a loop.
//!
//! They are public so that tests and `docs/` refer to the same values.

/// Maximum number of requests of one connection in a turn. It bounds the delay of other connections
/// by one that always has input: about 50 us of small reads.
pub const ROUND_REQUESTS: usize = 32;

/// Maximum number of bytes sent to one connection in a turn.
pub const ROUND_BYTES: usize = 1024 * 1024;

/// Pending output of a connection above which large replies pause and requests stay unread
/// (back-pressure).
pub const OUTPUT_LOW_BYTES: usize = 256 * 1024;

/// Pending output of a connection in memory above which it takes no further request. Ranges of
/// files do not count because they are sent from the page cache. A client that stops reading holds
/// this much and one reply.
pub const OUTPUT_HIGH_BYTES: usize = 1024 * 1024;

/// Largest read in bytes that is answered in place, in the output buffer after its header.
pub const SPOT_BYTES_MAX: usize = 32 * 1024;

/// Smallest plain read in bytes that is sent without copying, where possible. Below this size the
/// extra system call costs more than the copy.
pub const SENDFILE_BYTES_MIN: usize = 16 * 1024;

/// Data in bytes of one frame of a reply with several frames.
pub const FRAME_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Maximum number of large reads and vector reads in progress per connection. Further requests
/// wait.
pub const TRANSFERS_MAX: usize = 256;

/// Smallest payload in bytes after which the next request is received by one call for header and
/// payload, the latter into its final buffer. Below this size copying costs less than that call.
pub const PAYLOAD_AHEAD_MIN: usize = 16 * 1024;

/// Pieces of payload of one request that are being written while the next one is received.
pub const PIECES_IN_FLIGHT_MAX: usize = 4;

/// Maximum number of announced payloads per bound connection that have not arrived. Further
/// requests wait.
pub const EXPECTED_MAX: usize = 64;

/// Memory in bytes that a session may have in flight without a claim on the memory of the process.
/// It covers the buffers of a client that sends small requests.
pub const SESSION_BYTES_FREE: usize = 128 * 1024;

/// Memory in flight of a session, in bytes, up to which an argument may grow.
pub const SESSION_ARGUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Memory in flight of a session, in bytes, up to which it takes another request: arguments,
/// decoded requests, reserved replies and output. If nothing else is in flight, one request is
/// always taken.
pub const SESSION_REQUEST_BYTES_MAX: usize = 11 * 512 * 1024;

/// Memory in flight of a session, in bytes, up to which another piece of file data is started.
pub const SESSION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Memory in bytes reserved for the page of a listing: its entries and their text.
pub const LIST_PAGE_BYTES: usize = 512 * 1024;

/// Deadline for the arrival of an argument after its first byte, in seconds, in addition to the
/// time for its size.
pub const ARGUMENT_SECONDS_MAX: u32 = 60;

/// Minimum transfer rate of a client in bytes per second. It applies to an argument in transfer.
/// Where others wait for memory or the connection is about to close, it also applies to output and
/// to announced data.
pub const BYTES_PER_SECOND_MIN: usize = 16 * 1024;

/// Time in seconds without progress after which a connection is closed if others wait for memory. A
/// connection that is about to close waits as long for its client to take the last output, whether
/// memory is short or not.
pub const STALLED_SECONDS_MAX: u32 = 30;

/// Default memory in bytes of the process for requests in flight.
pub const MEMORY_BYTES: usize = 1024 * 1024 * 1024;

/// Minimum memory in bytes of the process: a few sessions at their limit.
pub const MEMORY_BYTES_MIN: usize = 8 * SESSION_BYTES_MAX;

const _: () = assert!(OUTPUT_LOW_BYTES <= OUTPUT_HIGH_BYTES);
const _: () = assert!(SENDFILE_BYTES_MIN <= SPOT_BYTES_MAX);
const _: () = assert!(SPOT_BYTES_MAX + 16 <= net::MEDIUM_BYTES);
const _: () = assert!(SESSION_BYTES_FREE <= SESSION_ARGUMENT_BYTES_MAX);
const _: () = assert!(net::SMALL_BYTES + net::MEDIUM_BYTES + SPOT_BYTES_MAX <= SESSION_BYTES_FREE);
const _: () = assert!(2 * wire::xroot::limits::ARGUMENT_BYTES_MAX <= SESSION_ARGUMENT_BYTES_MAX);
const _: () = assert!(SESSION_ARGUMENT_BYTES_MAX < SESSION_REQUEST_BYTES_MAX);
// The largest frame fits in addition to all requests that wait for data.
const _: () = assert!(
    SESSION_REQUEST_BYTES_MAX + wire::xroot::limits::READV_FRAME_BYTES_MAX + 1024 <= SESSION_BYTES_MAX
);
const _: () = assert!(LIST_PAGE_BYTES + OUTPUT_LOW_BYTES <= SESSION_BYTES_MAX - SESSION_REQUEST_BYTES_MAX);
const _: () = assert!(MEMORY_BYTES_MIN <= MEMORY_BYTES);
