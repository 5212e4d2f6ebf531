//! Limits of memory, time and connections of the front end.

use std::time::Duration;

/// Maximum number of connections that are not idle, and of requests in progress.
pub const CONNECTIONS_MAX: usize = 4096;

/// Maximum number of idle connections without TLS. Each has been idle for [`IDLE_LOOK`] or longer, and has no buffers.
pub const IDLE_CONNECTIONS_MAX: usize = 16_384;

/// Time between two looks whether a connection is idle.
pub const IDLE_LOOK: Duration = Duration::from_secs(1);

/// Maximum time for which a connection is idle.
pub const IDLE_TIME_MAX: Duration = Duration::from_secs(300);

/// One host may have one part in this many of the connections, and of the idle ones.
pub const HOST_SHARE: usize = 4;

/// Number of connections that a host may have, however few there are.
pub const HOST_CONNECTIONS_MIN: usize = 16;

/// Maximum number of TLS handshakes of one host at the same time.
pub const HANDSHAKES_PER_HOST_MAX: usize = 256;

/// Maximum number of third-party copies at the same time. Further ones wait.
pub const COPIES_MAX: usize = 256;

/// Maximum number of them that one host has ordered.
pub const COPIES_PER_HOST_MAX: usize = 128;

/// Maximum number of them that one user of a host has ordered. Clients without a name are one user.
pub const COPIES_PER_USER_MAX: usize = 64;

const _: () = assert!(COPIES_PER_USER_MAX < COPIES_PER_HOST_MAX && COPIES_PER_HOST_MAX < COPIES_MAX);
const _: () = assert!(COPIES_MAX < CONNECTIONS_MAX);

/// Maximum time for which a copy waits for its place. Then the client may repeat the request.
pub const COPY_WAIT_MAX: Duration = Duration::from_secs(60);

/// Seconds after which it may do so.
pub const COPY_RETRY_SECONDS: u32 = 30;

/// Bytes that the source of a copy must send within the maximum time without progress.
pub const COPY_PROGRESS_BYTES_MIN: u64 = 64 * 1024;

/// Maximum number of connections to the source of one copy.
pub const COPY_STREAMS_MAX: usize = 8;

/// Least number of bytes that are received on each of several connections to a source.
pub const COPY_STREAM_BYTES_MIN: u64 = 1024 * 1024;

/// HTTP uses one part in this many of the descriptors for connections and files.
pub const DESCRIPTORS_SHARE: usize = 2;

/// Interval between warnings about refused connections.
pub const REFUSAL_WARNING: Duration = Duration::from_secs(60);

/// Maximum size of the request line and all headers, in bytes.
pub const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of streams of a connection of HTTP/2 at the same time.
pub const HTTP2_STREAMS_MAX: u32 = 100;

/// Maximum number of requests of such a connection in progress, with those whose streams were reset.
pub const HTTP2_REQUESTS_MAX: usize = 200;

/// Number of streams that a client may reset beyond the number of those that it lets end.
pub const HTTP2_RESETS_MAX: usize = 256;

/// Maximum number of streams that were reset before they were looked at.
pub const HTTP2_PENDING_RESETS_MAX: usize = 20;

/// Maximum number of streams that are reset because of errors of the client.
pub const HTTP2_LOCAL_RESETS_MAX: usize = 100;

/// Bytes of a body that a client may send on a stream before the server has used them. This memory is charged to a request
/// with a body, or the length of the body if it is announced and less.
pub const HTTP2_STREAM_WINDOW: u32 = 1024 * 1024;

/// Bytes of all bodies that a client may send on a connection before the server has used them.
pub const HTTP2_CONNECTION_WINDOW: u32 = 2 * 1024 * 1024;

/// Bytes of a reply that wait for the windows of the client, beyond one piece.
pub const HTTP2_SEND_BYTES: usize = 64 * 1024;

/// Bytes of a reply that are counted together as taken by the client. They fit into a frame.
pub const HTTP2_PIECE_BYTES: usize = 16 * 1024;

/// Memory that is charged to a connection of HTTP/2: a head, and its buffers.
pub const HTTP2_BYTES: usize = HEAD_BYTES_MAX + KEPT_BYTES;

/// Maximum time without a request on a connection of HTTP/2.
pub const HTTP2_IDLE_TIME_MAX: Duration = HEAD_TIME_MAX;

/// Maximum number of headers.
pub const HEADERS_MAX: usize = 100;

/// Maximum time until all headers of a request have arrived, from its first byte or, if that comes soon, from the
/// reply before it.
pub const HEAD_TIME_MAX: Duration = Duration::from_secs(60);

/// HTTP uses one part in this many of the memory of the process for requests.
pub const MEMORY_SHARE: usize = 2;

/// Memory that is charged to a connection whose last request has been answered.
pub const KEPT_BYTES: usize = 32 * 1024;

/// Memory that is charged to one that is idle.
pub const IDLE_BYTES: usize = 2 * 1024;

/// Memory that is charged for a request, with its reply.
pub const REQUEST_BYTES: usize = 64 * 1024;

/// Memory that is charged for a GET, in addition to large chunks.
pub const DOWNLOAD_BYTES: usize = 160 * 1024;

/// Memory that is charged for a listing.
pub const LISTING_BYTES: usize = 192 * 1024;

/// Memory that is charged for a PUT.
pub const UPLOAD_BYTES: usize = 256 * 1024;

/// Time in seconds after which a client may repeat a request that got no memory.
pub const MEMORY_RETRY_SECONDS: u32 = 5;

/// Maximum time of a login: the name of the host, and the token with the keys of its issuer.
pub const LOGIN_TIME_MAX: Duration = Duration::from_secs(30);

/// Minimum number of bytes that a client sends or takes within [`STALL_TIME_MAX`] of waiting for it.
pub const PROGRESS_BYTES_MIN: u64 = 64 * 1024;

/// Maximum time without progress while a client sends a body or receives a reply.
pub const STALL_TIME_MAX: Duration = Duration::from_secs(60);

/// Bytes of a file that are read or held at once, if the memory of all connections suffices.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// Number of chunks of [`CHUNK_BYTES`] that all connections hold together.
pub const CHUNKS_MAX: usize = 512;

/// Bytes of a file that are read at once if there are [`CHUNKS_MAX`] chunks.
pub const SMALL_CHUNK_BYTES: usize = 16 * 1024;

/// Maximum size of a body that is read before its reply begins. Larger ones are streamed.
pub const INLINE_BYTES_MAX: u64 = 64 * 1024;

/// Size of the buffer of a connection for its input and for its output.
pub const BUFFER_BYTES_MAX: usize = 128 * 1024;

/// Maximum number of ranges of one request. The whole file is the reply to more.
pub const RANGES_MAX: usize = 512;

/// Maximum size of the body of a request for a macaroon, in bytes.
pub const MACAROON_REQUEST_BYTES_MAX: usize = 4096;

/// Maximum size of a request body that is read and ignored.
pub const IGNORED_BODY_BYTES_MAX: usize = 64 * 1024;

/// Maximum number of bytes that are discarded, so that a client receives the reply to a request
/// whose body is refused.
pub const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

/// Maximum time for that.
pub const LINGER_TIME_MAX: Duration = Duration::from_secs(2);

/// Time for which the result of a login is used for further requests of the connection.
pub const LOGIN_AGE_MAX: Duration = Duration::from_secs(60);

/// Maximum length of a token in bytes. It fits into a header.
pub const TOKEN_BYTES_MAX: usize = 32 * 1024;

/// Maximum number of requests for metrics that wait for their text.
pub const METRICS_REQUESTS_MAX: usize = 256;

/// Length of a part of a file from which on it is sent by `sendfile`.
pub const SENDFILE_BYTES_MIN: u64 = 256 * 1024;

/// Maximum number of viewers of the dashboard.
pub const DASHBOARD_VIEWERS_MAX: usize = 64;

/// Time between two events of the dashboard.
pub const DASHBOARD_PERIOD: Duration = Duration::from_secs(2);

/// Maximum size of the body of a request of the tape API.
pub const TAPE_BODY_BYTES_MAX: usize = 2 * 1024 * 1024;

/// Maximum number of files of such a request.
pub const TAPE_FILES_MAX: usize = 10_000;

/// Maximum time for which a request keeps its files on disk: that for which it is kept itself.
pub const TAPE_LIFETIME_MAX: Duration = Duration::from_secs(7 * 86_400);

/// Number of files of a request that are looked up by one operation.
pub const TAPE_LOCATED_TOGETHER: usize = 32;

/// Maximum number of threads of the runtime.
pub const THREADS_MAX: usize = 8;

const _: () = assert!(
    IDLE_BYTES < KEPT_BYTES
        && KEPT_BYTES < REQUEST_BYTES
        && DOWNLOAD_BYTES >= BUFFER_BYTES_MAX + 2 * SMALL_CHUNK_BYTES
);
const _: () = assert!(HTTP2_REQUESTS_MAX > HTTP2_STREAMS_MAX as usize);
const _: () = assert!(HTTP2_STREAM_WINDOW < HTTP2_CONNECTION_WINDOW);
const _: () = assert!(HTTP2_SEND_BYTES + HTTP2_PIECE_BYTES <= DOWNLOAD_BYTES);
const _: () = assert!(SMALL_CHUNK_BYTES < CHUNK_BYTES);
const _: () = assert!(TOKEN_BYTES_MAX < HEAD_BYTES_MAX);
const _: () = assert!(HEAD_BYTES_MAX <= BUFFER_BYTES_MAX);
