//! The contract between a door (xroot, HTTP) and the logical file system.
//!
//! A door turns what a client asks into an [`Operation`] on a [`FileSystem`], or a [`FileOperation`] on an [`OpenFile`],
//! and starts it. The answer is there at once ([`Started::Done`]), comes later as a message to the connection's loop
//! ([`Started::Pending`]), or comes so much later that the client is to be told so ([`Started::Later`]). Starting never
//! blocks; neither do the calls whose names end in `_now`, which serve what is in memory on the spot.
//!
//! | file | what it holds |
//! |---|---|
//! | `operation` | what may be asked of the name space, and of an open file |
//! | `answer` | what comes back: a value, a redirect, a wait, an error |
//! | `reply` | where a late answer goes, and that one always comes |
//! | `target` | paths of requests, and lists of them that are parsed as they are used |
//! | `stat` | what is known of a file or directory, and of space |

mod answer;
mod operation;
mod reply;
mod stat;
mod target;

pub use answer::{
    Answer, AttributeResult, Entries, Entry, Listing, Opened, Redirect, Started, Value, Written,
};
pub use operation::{
    AttributeWork, Caller, CheckpointWork, CloneRange, FileOperation, ListDetail, LocateOptions, OpenRequest,
    Operation, Piece, PrepareRequest,
};
pub use reply::{Mailbox, Reply, ReplyTo, Token};
pub use stat::{BriefStat, FileKind, SpaceFigures, Stat};
pub use target::{Target, TargetCursor, TargetList};

use base::Error;
use std::io::IoSliceMut;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// The outcome of a call that must not block.
#[derive(Debug)]
pub enum Spot<T> {
    /// Done on the spot.
    Done(T),
    /// It would have to wait for a disk: start it as an operation instead.
    WouldBlock,
    /// It failed.
    Failed(Error),
}

/// A name space that serves many connections on many loops at once.
pub trait FileSystem: Send + Sync {
    /// Starts an operation for `caller`; never blocks. Where the answer is not [`Started::Done`], exactly one answer goes
    /// to a [`Reply`] made from `reply`.
    fn start(&self, caller: &Arc<Caller>, operation: Operation, reply: &ReplyTo) -> Started;

    /// Where a read of this open file is to go instead; `None`: it is served here. Asked before each read of a client that
    /// [moves](Caller::moves), so it is to cost nothing; never blocks.
    fn elsewhere(&self, caller: &Caller, file: &dyn OpenFile) -> Option<Redirect> {
        let _ = (caller, file);
        None
    }
}

/// An open file. Permission was decided at open and lies in the object.
///
/// A handle of a session that closes sends [`FileOperation::Close`], and one whose client vanished
/// [`FileOperation::Abandon`]; after either, the session uses it no more. Dropping the last reference without one of them
/// counts as abandoned.
///
/// The methods that never block are the fast paths of storages that have them; without them every operation is started.
pub trait OpenFile: Send + Sync {
    /// The name it was opened under, for error texts.
    fn path(&self) -> &base::LogicalPath;

    /// Was it opened for writing?
    fn is_writable(&self) -> bool;

    /// Reads what is in memory at `offset`; fewer bytes than asked (also 0) means end of file. Never blocks.
    fn read_now(&self, offset: u64, into: &mut [u8]) -> Spot<usize> {
        let _ = (offset, into);
        Spot::WouldBlock
    }

    /// Appends up to `length` bytes to `out` and is otherwise as [`OpenFile::read_now`]. `out` is as
    /// it was if nothing is read.
    fn append_now(&self, offset: u64, length: usize, out: &mut Vec<u8>) -> Spot<usize> {
        let start = out.len();
        out.resize(start + length, 0);
        let read = self.read_now(offset, out.get_mut(start..).unwrap_or_default());
        let kept = if let Spot::Done(read) = &read { (*read).min(length) } else { 0 };
        out.truncate(start + kept);
        read
    }

    /// Reads one range that is in memory into several places, one after the other. `None` when that cannot be done at once, or
    /// not all of it is there: read piece by piece then. Never blocks.
    fn read_scattered_now(&self, offset: u64, into: &mut [IoSliceMut<'_>]) -> Option<()> {
        let _ = (offset, into);
        None
    }

    /// Writes all of `from` at `offset` if the storage has been answering fast. Not for a handle with an active
    /// checkpoint, where the operation must be used.
    fn write_now(&self, offset: u64, from: &[u8]) -> Spot<()> {
        let _ = (offset, from);
        Spot::WouldBlock
    }

    /// The descriptor whose bytes may go to a socket by `sendfile`, where the storage is a plain file.
    fn lend(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// Are all these bytes in memory, so that sending them will not wait for a disk? `false` where it cannot be told.
    fn is_resident(&self, offset: u64, length: usize) -> bool {
        let _ = (offset, length);
        false
    }

    /// Current size in bytes, as far as it can be told without blocking.
    fn size_now(&self) -> Option<u64> {
        None
    }

    /// A hint that this range will be read soon. Never blocks, never fails.
    fn prefetch(&self, offset: u64, length: u64) {
        let _ = (offset, length);
    }

    /// Starts an operation on it; never blocks. Operations run concurrently: order is the session's.
    fn start(&self, operation: FileOperation, reply: &ReplyTo) -> Started;

    /// Only this server serves it to this client: it must not be sent to another copy.
    fn stays_here(&self) -> bool {
        false
    }

    /// The client asked for its close, or is gone, while operations on it are under way: those that only serve that client
    /// and may take long should end now. Never blocks; the close follows when they have ended.
    fn interrupt(&self) {}

    /// For operations that take several handles of the same file system.
    fn as_any(&self) -> &dyn std::any::Any;
}
