//! The interface between a session and its driver: tasks out, results in.
//!
//! A driver feeds the bytes of a connection, executes each [`TakeResult`] or queued [`DriverTask`],
//! and reports the result. Bulk data does not pass through the session, so that it is not copied: a
//! read leaves the session as a file and a range, a write as the number of bytes on a connection
//! and their destination.

use crate::authentication::AuthenticationTask;
use crate::ids::{CallId, FileIndex, PathId, SequenceId};
use crate::signing::PayloadSignature;
use crate::timing::RequestTimer;
use base::Extent;
use std::sync::Arc;
use vfs::{FileOperation, OpenFile, Operation};
use wire::xroot::header::{SessionId, StreamId};

/// Result of [`crate::Session::take`].
pub enum TakeResult {
    /// The next request is incomplete.
    More {
        /// Number of bytes that the input must hold before the next call. At most the largest
        /// argument and two headers.
        bytes: usize,
    },
    /// One request was taken from the front of the input.
    Took {
        /// Length of the request in bytes.
        bytes: usize,
        /// The task of the driver for this request.
        todo: DriverTask,
    },
}

/// A task for the driver.
pub enum DriverTask {
    /// No task. The replies, if any, are in the output.
    Nothing,
    /// Send the output, then close the session.
    Close,
    /// Start an operation on the name space. Its answer goes to [`crate::Session::answered`].
    Call(CallId, Operation),
    /// Start an operation on a file. Its answer goes to [`crate::Session::answered`].
    FileCall(CallId, Arc<dyn OpenFile>, FileOperation),
    /// Read and reply. A read that does not complete immediately is registered by
    /// [`crate::Session::read_began`].
    Read(ReadTask),
    /// Read several ranges and reply.
    ReadVector(ReadVectorTask),
    /// Read and reply, and prefetch these ranges (file, offset, length). Hints have no reply.
    ReadWithHints(ReadTask, Vec<(Arc<dyn OpenFile>, u64, u64)>),
    /// The next bytes of a connection are file data.
    Receive(PayloadAnnouncement),
    /// A write that was [held](PayloadAnnouncement::held) may proceed.
    Proceed(CallId),
    /// This connection joins a session. The driver has the table of sessions.
    Bind {
        /// Stream id of the request, for the reply.
        streamid: StreamId,
        /// The session to join.
        session: SessionId,
    },
    /// Execute a step of an authentication. Its result goes to [`crate::Session::authenticated`],
    /// unless the step must be executed again
    /// ([`into_later`](crate::AuthenticationResult::into_later)). Until then the session takes no
    /// request.
    Authenticate(Box<AuthenticationTask>),
    /// Send the output, then switch the control connection to TLS. Its next bytes are a handshake.
    StartTls,
    /// Log the reason for which an authentication was refused. Unless the delay is 0, call
    /// [`crate::Session::send_delayed_refusal`] after it. Until then the session takes no request.
    LoginRefused {
        /// The reason, which may contain text of the client.
        reason: String,
        /// The delay.
        delay_seconds: u32,
    },
    /// End another session. The answer to the call reports that it ended or does not exist.
    EndSession {
        /// Answered by [`crate::Session::answered`].
        call: CallId,
        /// The session to end.
        session: SessionId,
    },
    /// Execute a command about monitoring. [`crate::Session::answered`] takes a text of four bytes for
    /// [`MonitorCommand::Info`], otherwise nothing.
    Monitor {
        /// Answered by [`crate::Session::answered`].
        call: CallId,
        /// The command.
        command: MonitorCommand,
    },
    /// Answer a request for statistics by [`crate::Session::answered`] with the text.
    Statistics {
        /// Answered by [`crate::Session::answered`].
        call: CallId,
        /// The requested sections, as letters.
        selection: String,
    },
}

/// A command of a client about the monitoring of its session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum MonitorCommand {
    /// The application with this name sends the following requests.
    Application(Vec<u8>),
    /// Monitor the session, or end that. The name of the application may be empty.
    Switch {
        /// Begins or continues.
        is_on: bool,
        /// The name of the application.
        application: Vec<u8>,
    },
    /// Pass this text to collectors. The answer is its id.
    Info(Vec<u8>),
}

/// A read for the driver.
#[derive(PartialEq, Eq, Debug)]
pub struct ReadTask {
    /// Stream id of the request, for the reply.
    pub streamid: StreamId,
    /// The connection that takes the data.
    pub link: PathId,
    /// The file to read: [`crate::Session::file`].
    pub file: FileIndex,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of bytes to read.
    pub length: usize,
    /// Reply with page checksums, as `kXR_status` frames.
    pub paged: bool,
    /// Set if the read had to wait for earlier operations. Then [`crate::Session::read_ended`] must
    /// follow, even if the read completes immediately.
    pub sequence: Option<SequenceId>,
    /// Measures the time of the request.
    pub timer: RequestTimer,
}

/// A vector read for the driver.
pub struct ReadVectorTask {
    /// Stream id of the request, for the reply.
    pub streamid: StreamId,
    /// The ranges to read, in the order of the reply.
    pub elements: Vec<ReadElement>,
    /// See [`ReadTask::sequence`].
    pub sequence: Option<SequenceId>,
    /// Measures the time of the request.
    pub timer: RequestTimer,
}

/// One range of a vector read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadElement {
    /// The file to read.
    pub file: FileIndex,
    /// The range to read.
    pub extent: Extent,
}

/// An announcement of data that follows on a connection.
pub struct PayloadAnnouncement {
    /// The call, which ends with [`crate::Session::received`].
    pub call: CallId,
    /// The connection that carries the data.
    pub link: PathId,
    /// Number of bytes on the wire, checksums included.
    pub length: usize,
    /// Destination of the data.
    pub into: Destination,
    /// Writes under the active checkpoint of the file.
    pub checkpoint: bool,
    /// Set if earlier operations must end first. Until [`DriverTask::Proceed`] nothing is written,
    /// and the driver takes at most one buffer of data from the connection.
    pub held: bool,
    /// The signature of the request if it covers the data. The driver adds all data as it arrives, and
    /// returns it in [`ReceiveResult::signature`].
    pub signature: Option<Box<PayloadSignature>>,
}

/// Destination of received data.
pub enum Destination {
    /// Write to a file as the data arrives.
    File {
        /// The file.
        file: Arc<dyn OpenFile>,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// Write to a file after verification. A checksum precedes each page, and pages are aligned to
    /// the offset in the file.
    Pages {
        /// The file.
        file: Arc<dyn OpenFile>,
        /// Offset in the file, in bytes.
        offset: u64,
    },
    /// Write to several extents in sequence.
    Vector(Vec<WriteExtent>),
    /// Discard. The request was refused, but its data must be consumed to find the next request.
    Discard,
}

/// One extent of a vector write.
pub struct WriteExtent {
    /// The file.
    pub file: Arc<dyn OpenFile>,
    /// The range to write.
    pub extent: Extent,
}

/// Result of receiving announced data.
#[derive(Default)]
pub struct ReceiveResult {
    /// The first error. The data was consumed from the connection nevertheless.
    pub error: Option<base::Error>,
    /// Pages whose checksum did not match, in ascending order, at most
    /// [`BAD_PAGES_MAX`](crate::BAD_PAGES_MAX). They were written nevertheless.
    pub bad_pages: Vec<BadPage>,
    /// Number of further bad pages that are not listed.
    pub bad_pages_more: usize,
    /// The signature of the announcement; `None` if it had none, or if the data did not arrive
    /// completely.
    pub signature: Option<Box<PayloadSignature>>,
}

/// A page whose checksum did not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadPage {
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Number of data bytes, without the checksum.
    pub length: u32,
}
