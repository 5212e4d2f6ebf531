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

/// After a write with this much payload the next one is received with its header in one call, the payload to where it is written
/// from: below, to copy it costs less than that call.
pub const PAYLOAD_AHEAD_MIN: usize = 16 * 1024;

/// Pieces of payload of one request that are being written while the next is received.
pub const PIECES_IN_FLIGHT_MAX: usize = 4;

/// Data announced for a bound connection that has not come; further requests wait.
pub const EXPECTED_MAX: usize = 64;

/// Bytes of memory that a session may have in flight without a claim on the memory of the process: the buffers of a client
/// that sends small requests.
pub const SESSION_BYTES_FREE: usize = 128 * 1024;

/// Bytes of memory in flight in a session up to which an argument grows.
pub const SESSION_ARGUMENT_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Bytes of memory in flight in a session up to which it takes another request: arguments, decoded requests, reserved replies
/// and output. One request is always taken when nothing else is in flight.
pub const SESSION_REQUEST_BYTES_MAX: usize = 11 * 512 * 1024;

/// Bytes of memory in flight in a session up to which another piece of file data is begun.
pub const SESSION_BYTES_MAX: usize = 8 * 1024 * 1024;

/// Bytes reserved for the page of a listing that is being read: its entries, and their text.
pub const LIST_PAGE_BYTES: usize = 512 * 1024;

/// Time that an argument has to arrive once it has begun, in seconds, beside the time for its size.
pub const ARGUMENT_SECONDS_MAX: u32 = 60;

/// Bytes that a client must move each second at least: of an argument that it has begun to send,
/// and, where others wait for memory or the connection is to close, of its output and of data that
/// it has announced.
pub const BYTES_PER_SECOND_MIN: usize = 16 * 1024;

/// Time after which a connection that takes no output, or does not send what it has begun, is
/// closed if others wait for memory, in seconds. A connection that is to close waits as long for
/// its client to take the last output, whatever others need.
pub const STALLED_SECONDS_MAX: u32 = 30;

/// Bytes of memory of the process for requests in flight where the server is not configured otherwise.
pub const MEMORY_BYTES: usize = 1024 * 1024 * 1024;

/// Bytes of memory of the process below which no configuration goes: a few sessions at their limit.
pub const MEMORY_BYTES_MIN: usize = 8 * SESSION_BYTES_MAX;

const _: () = assert!(OUTPUT_LOW_BYTES <= OUTPUT_HIGH_BYTES);
const _: () = assert!(SENDFILE_BYTES_MIN <= SPOT_BYTES_MAX);
const _: () = assert!(SPOT_BYTES_MAX + 16 <= net::MEDIUM_BYTES);
const _: () = assert!(SESSION_BYTES_FREE <= SESSION_ARGUMENT_BYTES_MAX);
const _: () = assert!(net::SMALL_BYTES + net::MEDIUM_BYTES + SPOT_BYTES_MAX <= SESSION_BYTES_FREE);
const _: () = assert!(2 * wire::xroot::limits::ARGUMENT_BYTES_MAX <= SESSION_ARGUMENT_BYTES_MAX);
const _: () = assert!(SESSION_ARGUMENT_BYTES_MAX < SESSION_REQUEST_BYTES_MAX);
// Beside all requests that wait for data there is room for the largest frame.
const _: () = assert!(
    SESSION_REQUEST_BYTES_MAX + wire::xroot::limits::READV_FRAME_BYTES_MAX + 1024 <= SESSION_BYTES_MAX
);
const _: () = assert!(LIST_PAGE_BYTES + OUTPUT_LOW_BYTES <= SESSION_BYTES_MAX - SESSION_REQUEST_BYTES_MAX);
const _: () = assert!(MEMORY_BYTES_MIN <= MEMORY_BYTES);
