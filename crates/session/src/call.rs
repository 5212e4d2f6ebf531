//! A request without an answer, and an operation that waits for its turn.

use crate::ids::{FileIndex, PathId, SequenceId};
use crate::step::DriverTask;
use crate::timing::RequestTimer;
use base::{Charge, Descriptor, Error};
use wire::xroot::header::StreamId;

/// A request without an answer.
pub(crate) struct UnansweredCall {
    pub(crate) streamid: StreamId,
    /// The connection that takes the reply.
    pub(crate) link: PathId,
    /// Set if the client was notified that the answer comes later (kXR_waitresp or kXR_wait).
    pub(crate) is_deferred: bool,
    /// Set if the signature of the request covers data that has not arrived completely.
    pub(crate) is_signed: bool,
    /// Position among the operations on open files, for an operation on a file.
    pub(crate) sequence: Option<SequenceId>,
    pub(crate) kind: CallKind,
    /// Memory of the request and its reply, held until the request is answered.
    pub(crate) charge: Charge,
    /// Descriptor for the file that this call opens.
    pub(crate) descriptor: Descriptor,
    /// Measures the time of the request.
    pub(crate) timer: RequestTimer,
}

/// The kind of a call, which determines the encoding of its answer.
pub(crate) enum CallKind {
    /// An operation on the name space, answered by its value alone.
    Plain,
    /// An operation on a file, answered by its value alone.
    OnFile,
    /// kXR_open.
    Open { compress: bool, stat: bool },
    /// kXR_dirlist. `held` is text that was not sent yet: the last entry, because the very last
    /// entry of a listing ends differently.
    List { detail: vfs::ListDetail, held: Vec<u8>, started: bool },
    /// kXR_statx.
    Kinds,
    /// kXR_fattr.
    Attributes { on_file: bool, subcode: wire::xroot::codes::FattrSubcode, values: bool },
    /// kXR_close.
    Close(FileIndex),
    /// kXR_write.
    Write,
    /// kXR_pgwrite.
    PageWrite { file: FileIndex, offset: u64, length: u32, retry: bool },
    /// kXR_writev. `sync` requests that `files` are synced afterwards.
    VectorWrite { files: Vec<FileIndex>, sync: bool },
    /// kXR_locate and other requests answered by text that ends in a NUL.
    TextWithNul,
    /// kXR_open of a path that is a command. There is no file, so its answer is always an error.
    PathCommand,
    /// A refused request. The error is sent after its data has been discarded.
    Refused(Error),
    /// A request that was refused immediately and whose data is discarded.
    Passed,
    /// Release of a file after the client disconnected. It has no reply.
    Release(FileIndex),
}

impl CallKind {
    /// Reports whether the call operates on an open file.
    pub(crate) fn is_on_file(&self) -> bool {
        match self {
            Self::OnFile
            | Self::Close(_)
            | Self::Write
            | Self::PageWrite { .. }
            | Self::VectorWrite { .. }
            | Self::Release(_) => true,
            Self::Attributes { on_file, .. } => *on_file,
            Self::Plain
            | Self::Open { .. }
            | Self::List { .. }
            | Self::Kinds
            | Self::TextWithNul
            | Self::PathCommand
            | Self::Refused(_)
            | Self::Passed => false,
        }
    }
}

/// The work of an operation that waits for earlier ones.
pub(crate) struct BlockedOperation {
    pub(crate) todo: DriverTask,
    /// Charge of the request if no call owns it.
    pub(crate) _charge: Charge,
}

impl Default for BlockedOperation {
    fn default() -> Self {
        Self { todo: DriverTask::Nothing, _charge: Charge::NONE }
    }
}
