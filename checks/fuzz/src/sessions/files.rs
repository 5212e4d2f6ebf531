//! Open files that hold nothing but an account of what is done with them.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicU8, Ordering};

use base::LogicalPath;
use vfs::{FileOperation, OpenFile, ReplyTo, Spot, Started};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const RELEASED: u8 = 2;

/// A file that counts.
pub(super) struct CountingFile {
    path: LogicalPath,
    writable: bool,
    state: AtomicU8,
    uses: AtomicI32,
}

impl CountingFile {
    pub(super) fn open(writable: bool) -> Arc<Self> {
        let (state, uses) = (AtomicU8::new(OPEN), AtomicI32::new(0));
        Arc::new(Self { path: LogicalPath::root(), writable, state, uses })
    }

    /// The account behind a file of the session.
    pub(super) fn of(file: &Arc<dyn OpenFile>) -> &Self {
        match file.as_any().downcast_ref() {
            Some(file) => file,
            None => panic!("the session has a file that was not given to it"),
        }
    }

    /// Something begins that uses the file.
    pub(super) fn use_begins(&self) {
        assert_eq!(self.state.load(Ordering::Relaxed), OPEN, "a file is used that is not open");
        self.uses.fetch_add(1, Ordering::Relaxed);
    }

    /// That has ended.
    pub(super) fn use_ends(&self) {
        self.uses.fetch_sub(1, Ordering::Relaxed);
    }

    /// A close or abandon begins.
    pub(super) fn close_begins(&self) {
        assert_eq!(self.uses.load(Ordering::Relaxed), 0, "a file is closed while it is in use");
        let before = self.state.swap(CLOSING, Ordering::Relaxed);
        assert_eq!(before, OPEN, "a file is closed that is not open");
    }

    /// It was answered; `again` when the file stays open.
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

    fn read_now(&self, _offset: u64, _into: &mut [u8]) -> Spot<usize> {
        Spot::Done(0)
    }

    fn write_now(&self, _offset: u64, _from: &[u8]) -> Spot<()> {
        Spot::WouldBlock
    }

    fn lend(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn is_resident(&self, _offset: u64, _length: usize) -> bool {
        false
    }

    fn size_now(&self) -> Option<u64> {
        Some(0)
    }

    fn prefetch(&self, _offset: u64, _length: u64) {}

    fn start(&self, _operation: FileOperation, _reply: &ReplyTo) -> Started {
        Started::Pending
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
