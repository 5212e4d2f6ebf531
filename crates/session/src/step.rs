//! What the machine asks of its driver.
//!
//! A driver feeds the bytes of a link, does what a [`Step`] or a queued [`Todo`] says, and tells the machine how it went.
//! Bulk data stays outside: a read leaves as a file and a range, a write as an announcement of how many bytes of the link
//! belong where.

use crate::sequencer::SequenceId;
use std::sync::Arc;
use vfs::{FileOperation, OpenFile, Operation};
use wire::xroot::header::{SessionId, StreamId};

/// One connection of a session: 0 is the control connection, 1 to 15 are the path ids of bound ones.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct LinkId(pub u8);

impl LinkId {
    /// The connection that logged in.
    pub const CONTROL: Self = Self(0);
}

/// Names a request that is not answered yet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct CallId(pub u32);

/// What came of looking at the bytes of the control link.
pub enum Step {
    /// So many bytes in all are needed before there is anything to do.
    More {
        /// Bytes from the front of the input, never more than the largest argument and two headers.
        bytes: usize,
    },
    /// One request was taken from the front.
    Took {
        /// Bytes it had.
        bytes: usize,
        /// What to do for it.
        todo: Todo,
    },
}

/// What the driver is to do.
pub enum Todo {
    /// Nothing: replies, if any, are in the output.
    Nothing,
    /// Send what is in the output, then close the session.
    Close,
    /// Start an operation on the name space; its answer goes to [`crate::Session::answered`].
    Call(CallId, Operation),
    /// Start an operation on a file; its answer goes to [`crate::Session::answered`].
    FileCall(CallId, Arc<dyn OpenFile>, FileOperation),
    /// Read and reply. A read that is not done on the spot is registered by [`crate::Session::read_began`].
    Read(ReadTask),
    /// Read several ranges and reply.
    ReadVector(ReadVectorTask),
    /// Ranges that will be read soon: hints, never answered.
    ReadWithHints(ReadTask, Vec<(Arc<dyn OpenFile>, u64, u64)>),
    /// The next bytes of a link are data.
    Receive(Receive),
    /// The turn of a write that was [held](Receive::held) has come.
    Proceed(CallId),
    /// This connection joins a session; the driver knows where that lives.
    Bind {
        /// For the reply.
        streamid: StreamId,
        /// The session to join.
        session: SessionId,
    },
    /// Another session is to end; its end, or that there is none, is the answer to the call.
    EndSession {
        /// Answered by [`crate::Session::answered`].
        call: CallId,
        /// The session to end.
        session: SessionId,
    },
    /// Statistics are wanted: [`crate::Session::answered`] with the text.
    Statistics {
        /// Answered by [`crate::Session::answered`].
        call: CallId,
        /// Which parts, as letters.
        selection: String,
    },
}

/// A read to be done by the driver.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadTask {
    /// For the reply.
    pub streamid: StreamId,
    /// Where the data goes.
    pub link: LinkId,
    /// Which file: [`crate::Session::file`].
    pub file: FileIndex,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes wanted.
    pub length: usize,
    /// With page checksums, as `kXR_status` frames.
    pub paged: bool,
    /// Set if it waited for its turn: [`crate::Session::read_ended`] must follow, even if it is done on the spot.
    pub sequence: Option<SequenceId>,
}

/// A slot of the table of open files.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct FileIndex(pub u32);

/// A vector read to be done by the driver.
pub struct ReadVectorTask {
    /// For the reply.
    pub streamid: StreamId,
    /// What to read, in the order of the reply.
    pub elements: Vec<ReadElement>,
    /// As for [`ReadTask::sequence`].
    pub sequence: Option<SequenceId>,
}

/// One range of a vector read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReadElement {
    /// Which file.
    pub file: FileIndex,
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes wanted.
    pub length: usize,
}

/// Data that is about to come over a link.
pub struct Receive {
    /// Ends with [`crate::Session::received`].
    pub call: CallId,
    /// The link that brings it.
    pub link: LinkId,
    /// Bytes on the wire.
    pub length: usize,
    /// Where it goes.
    pub into: Destination,
    /// Under the active checkpoint of the file.
    pub checkpoint: bool,
    /// Set if earlier operations must end first. Until [`Todo::Proceed`] nothing is written, and at most one buffer of data is
    /// taken from the link.
    pub held: bool,
}

/// Where received data goes.
pub enum Destination {
    /// To a file as it comes.
    File {
        /// The file.
        file: Arc<dyn OpenFile>,
        /// Bytes from its start.
        offset: u64,
    },
    /// To a file; each page has its checksum in front, and pages are aligned to the offset in the file.
    Pages {
        /// The file.
        file: Arc<dyn OpenFile>,
        /// Bytes from its start.
        offset: u64,
    },
    /// To several places one after the other.
    Vector(Vec<Extent>),
    /// Nowhere: the request was refused, and the stream is to stay in step.
    Discard,
}

/// One place of a vector write.
pub struct Extent {
    /// The file.
    pub file: Arc<dyn OpenFile>,
    /// Bytes from its start.
    pub offset: u64,
    /// Bytes.
    pub length: usize,
}

/// How receiving went.
#[derive(Default)]
pub struct Received {
    /// The first thing that went wrong. The data was taken from the link all the same.
    pub error: Option<base::Error>,
    /// Pages whose checksum did not match (they were written nevertheless), ascending; at most
    /// [`BAD_PAGES_MAX`](crate::BAD_PAGES_MAX).
    pub bad_pages: Vec<BadPage>,
    /// How many more there were.
    pub bad_pages_more: usize,
}

/// A page whose checksum did not match.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BadPage {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Its bytes, without the checksum.
    pub length: u32,
}
