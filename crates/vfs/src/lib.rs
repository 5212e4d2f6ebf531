//! The contract between a protocol front end (xroot, HTTP) and the logical file system.
//!
//! A front end translates a client's request into an [`Operation`] on a [`FileSystem`] or a
//! [`FileOperation`] on an [`OpenFile`], and starts it. There are three ways to get the answer:
//!
//! | result of the start  | answer                                                 |
//! |----------------------|--------------------------------------------------------|
//! | [`Started::Done`]    | immediately                                            |
//! | [`Started::Pending`] | soon, as a message to the event loop of the connection |
//! | [`Started::Later`]   | late; the front end sends the client a deferral first  |
//!
//! Starting an operation never blocks. Calls whose names end in `_now` do not block either; they
//! serve data that is in memory. The contract is a crate of its own, so that front ends and file
//! systems do not depend on each other.
//!
//! | file        | contents                                                     |
//! |-------------|--------------------------------------------------------------|
//! | `operation` | operations on the name space and on open files               |
//! | `answer`    | answers: a value, a redirect, a wait or an error             |
//! | `reply`     | delivery of late answers, exactly one for each operation     |
//! | `target`    | paths of requests, and lists of paths that are parsed lazily |
//! | `tape`      | requests of the WLCG Tape REST API                            |
//! | `stat`      | the status of files and directories, and of space            |

mod answer;
mod connection;
mod operation;
mod reply;
mod stat;
mod tape;
mod target;

pub use answer::{
    Answer, AttributeOutcome, DirectoryEntries, DirectoryEntry, EncodedEntries, ListingPosition, Opened,
    RedirectAnswer, Started, Value,
};
pub use base::Now;
pub use connection::ClientConnection;
pub use operation::{
    AttributeWork, CachedFileCommand, Caller, CheckpointWork, CloneRange, FileOperation, IssuedMacaroon,
    ListDetail, LocateOptions, MacaroonOrder, OpenRequest, Operation, PrepareNotice, PrepareRequest,
};
pub use reply::{DeferredReply, Mailbox, ReplyTo, ReplyToken};
pub use stat::{BriefStat, FileKind, FileStat, SpaceFigures};
pub use tape::{
    Locality, LocatedFile, TapeFile, TapeFileState, TapeProgress, TapeRequest, TapeState, TapeWork,
};
pub use target::{Target, TargetCursor, TargetList};

use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// A name space that serves many connections on several event loops concurrently.
pub trait FileSystem: Send + Sync {
    /// Starts an operation for `caller`; never blocks. Unless the result is [`Started::Done`],
    /// exactly one answer is sent through a [`DeferredReply`] made from `reply`.
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started;

    /// Returns the server to which reads of this open file are redirected; `None` if this server
    /// serves them. Called before each read of a client that accepts such redirects
    /// ([`Caller::accepts_read_redirect`]), so an implementation must be cheap. Never blocks.
    fn read_redirect(&self, caller: &Caller, file: &dyn OpenFile) -> Option<RedirectAnswer> {
        let _ = (caller, file);
        None
    }
}

/// An open file. Authorization was decided at open and is stored in the object.
///
/// A session sends [`FileOperation::Close`] when the client closes the handle and
/// [`FileOperation::Abandon`] when the client disconnects, and does not use the file afterwards.
/// Dropping the last reference without either operation counts as abandoning it.
///
/// The methods that never block are optional fast paths. With the default implementations, every
/// request is started as an operation.
pub trait OpenFile: Send + Sync {
    /// Returns the path under which the file was opened, for error texts.
    fn path(&self) -> &base::LogicalPath;

    /// Reports whether the file was opened for writing.
    fn is_writable(&self) -> bool;

    /// Reads data at `offset` that is in memory. Fewer bytes than requested (including 0) mean end
    /// of file. Never blocks.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Now<usize> {
        let _ = (offset, into);
        Now::WouldBlock
    }

    /// Appends up to `length` bytes at `offset` to `out`; otherwise like [`OpenFile::read_now`].
    /// `out` is unchanged if no bytes are read.
    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Now<usize> {
        let start = out.len();
        out.resize(start + length, 0);
        let read = self.read_now(offset, out.get_mut(start..).unwrap_or_default());
        let kept = if let Now::Done(Ok(read)) = &read { (*read).min(length) } else { 0 };
        out.truncate(start + kept);
        read
    }

    /// Reads one range that is in memory into several buffers, in order. Returns `None` if it would
    /// block or not all bytes are in memory; the caller then reads each piece separately. Never
    /// blocks.
    fn read_scattered_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        let _ = (offset, into);
        None
    }

    /// Writes all of `from` at `offset` if recent writes to the storage were fast. Must not be used
    /// on a handle with an active checkpoint, which needs the operation.
    fn write_now(&self, offset: u64, from: &[u8]) -> Now<()> {
        let _ = (offset, from);
        Now::WouldBlock
    }

    /// Returns the descriptor to use with `sendfile`, if the storage is a plain file.
    fn lend(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Reports whether all these bytes are in memory, so that sending them does not wait for a
    /// disk. Returns `false` if this is not known.
    fn is_resident(&self, offset: u64, length: usize) -> bool {
        let _ = (offset, length);
        false
    }

    /// Returns the current size in bytes if it is known without blocking.
    fn size_now(&self) -> Option<u64> {
        None
    }

    /// Ends the operations in progress with an error, because the content of the file will be discarded. Their
    /// changes may still be made. Later operations are not affected. Does nothing where operations end soon, or
    /// where a late change could stay.
    fn give_up(&self) {}

    /// Hints that this range will be read soon. Never blocks and never fails.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Starts an operation on the file; never blocks. Operations run concurrently; the session is
    /// responsible for their order.
    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started;

    /// Reports whether the client must not be redirected to another copy, because only this server
    /// can serve the file to it.
    fn needs_this_server(&self) -> bool {
        false
    }

    /// Reports that the client has closed the file or disconnected while operations are in
    /// progress. Long operations that only serve this client should end now. The close follows when
    /// they have ended. Never blocks.
    fn interrupt(&self) {}

    /// Returns the concrete object, for operations that use several handles of the same file
    /// system.
    fn as_any(&self) -> &dyn std::any::Any;
}
