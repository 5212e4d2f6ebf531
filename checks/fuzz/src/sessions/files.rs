//! Open files without data, which record their concurrent uses.
//!
//! The checks are in the files and not in the driver, so that every kind of operation is covered.

use std::any::Any;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::LogicalPath;
use vfs::{FileOperation, Now, OpenFile, ReplyTo, Started};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const RELEASED: u8 = 2;

/// A kind of access to a file; ranges are an offset and a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum FileAccess {
    /// An access that conflicts with no other one.
    Nothing,
    Read(u64, u64),
    Write(u64, u64),
    /// The last access.
    Close,
}

impl FileAccess {
    fn disturbs(self, other: Self) -> bool {
        let overlap = |a: u64, b: u64, c: u64, d: u64| a < c.saturating_add(d) && c < a.saturating_add(b);
        match (self, other) {
            (Self::Nothing, _) | (_, Self::Nothing) | (Self::Read(..), Self::Read(..)) => false,
            (Self::Close, _) | (_, Self::Close) => true,
            (Self::Read(a, b) | Self::Write(a, b), Self::Read(c, d) | Self::Write(c, d)) => {
                overlap(a, b, c, d)
            }
        }
    }
}

/// The use of a file by an operation.
pub(super) struct FileUse {
    file: Arc<dyn OpenFile>,
    access: FileAccess,
}

impl FileUse {
    pub(super) fn new(file: &Arc<dyn OpenFile>, access: FileAccess) -> Self {
        Self { file: file.clone(), access }
    }

    /// Checks that the use may begin beside the other uses of the file.
    pub(super) fn check(&self) {
        let file = CountingFile::of(&self.file);
        assert_eq!(file.state.load(Ordering::Relaxed), OPEN, "a file that is not open is used");
        let uses = file.uses();
        assert!(self.access != FileAccess::Close || uses.is_empty(), "a file is closed while it is in use");
        let other = uses.iter().find(|other| self.access.disturbs(**other));
        assert!(other.is_none(), "{:?} and {other:?} run concurrently", self.access);
    }

    pub(super) fn begin(&self) {
        let file = CountingFile::of(&self.file);
        file.uses().push(self.access);
        if self.access == FileAccess::Close {
            file.state.store(CLOSING, Ordering::Relaxed);
        }
    }

    /// Ends the use.
    pub(super) fn end(&self) {
        let mut uses = CountingFile::of(&self.file).uses();
        if let Some(at) = uses.iter().position(|access| *access == self.access) {
            uses.swap_remove(at);
        }
    }
}

/// A file that records its uses.
pub(super) struct CountingFile {
    path: LogicalPath,
    writable: bool,
    state: AtomicU8,
    uses: Mutex<Vec<FileAccess>>,
}

impl CountingFile {
    pub(super) fn open(writable: bool) -> Arc<Self> {
        let (state, uses) = (AtomicU8::new(OPEN), Mutex::default());
        Arc::new(Self { path: LogicalPath::root(), writable, state, uses })
    }

    /// Returns the record of a file of the session.
    pub(super) fn of(file: &Arc<dyn OpenFile>) -> &Self {
        match file.as_any().downcast_ref() {
            Some(file) => file,
            None => panic!("the session has a foreign file"),
        }
    }

    fn uses(&self) -> MutexGuard<'_, Vec<FileAccess>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the answer to a close; `again` if the file stays open.
    pub(super) fn close_ends(&self, again: bool) {
        self.state.store(if again { OPEN } else { RELEASED }, Ordering::Relaxed);
    }

    pub(super) fn is_released(&self) -> bool {
        self.state.load(Ordering::Relaxed) == RELEASED
    }
}

impl OpenFile for CountingFile {
    fn path(&self) -> &LogicalPath {
        &self.path
    }

    fn is_writable(&self) -> bool {
        self.writable
    }

    fn read_now(&self, _offset: u64, _into: &mut [u8]) -> Now<usize> {
        Now::Done(Ok(0))
    }

    fn size_now(&self) -> Option<u64> {
        Some(0)
    }

    fn start(&self, _operation: FileOperation, _reply: &ReplyTo) -> Started {
        Started::Pending
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}

/// Begins all uses of one operation, which do not conflict with each other.
pub(super) fn begin_uses(uses: &[FileUse]) {
    uses.iter().for_each(FileUse::check);
    uses.iter().for_each(FileUse::begin);
}

/// Ends all uses of one operation.
pub(super) fn end_uses(uses: &[FileUse]) {
    uses.iter().for_each(FileUse::end);
}
