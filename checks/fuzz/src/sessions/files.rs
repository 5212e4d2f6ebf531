//! Open files that hold nothing but an account of what is done with them.

use std::any::Any;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use base::LogicalPath;
use vfs::{FileOperation, OpenFile, ReplyTo, Spot, Started};

const OPEN: u8 = 0;
const CLOSING: u8 = 1;
const RELEASED: u8 = 2;

/// A way to use a file; ranges are an offset and a length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Access {
    /// Nothing that others could disturb.
    Nothing,
    Read(u64, u64),
    Write(u64, u64),
    /// The last of all.
    Close,
}

impl Access {
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

/// Something that is done with a file.
pub(super) struct Use {
    file: Arc<dyn OpenFile>,
    access: Access,
}

impl Use {
    pub(super) fn new(file: &Arc<dyn OpenFile>, access: Access) -> Self {
        Self { file: file.clone(), access }
    }

    /// May it begin, as far as what else is done with the file is concerned?
    pub(super) fn check(&self) {
        let file = CountingFile::of(&self.file);
        assert_eq!(file.state.load(Ordering::Relaxed), OPEN, "a file is used that is not open");
        let uses = file.uses();
        assert!(self.access != Access::Close || uses.is_empty(), "a file is closed while it is in use");
        let other = uses.iter().find(|other| self.access.disturbs(**other));
        assert!(other.is_none(), "{:?} and {other:?} run side by side", self.access);
    }

    pub(super) fn begin(&self) {
        let file = CountingFile::of(&self.file);
        file.uses().push(self.access);
        if self.access == Access::Close {
            file.state.store(CLOSING, Ordering::Relaxed);
        }
    }

    /// That has ended.
    pub(super) fn end(&self) {
        let mut uses = CountingFile::of(&self.file).uses();
        if let Some(at) = uses.iter().position(|access| *access == self.access) {
            uses.swap_remove(at);
        }
    }
}

/// A file that counts.
pub(super) struct CountingFile {
    path: LogicalPath,
    writable: bool,
    state: AtomicU8,
    uses: Mutex<Vec<Access>>,
}

impl CountingFile {
    pub(super) fn open(writable: bool) -> Arc<Self> {
        let (state, uses) = (AtomicU8::new(OPEN), Mutex::default());
        Arc::new(Self { path: LogicalPath::root(), writable, state, uses })
    }

    /// The account behind a file of the session.
    pub(super) fn of(file: &Arc<dyn OpenFile>) -> &Self {
        match file.as_any().downcast_ref() {
            Some(file) => file,
            None => panic!("the session has a file that was not given to it"),
        }
    }

    fn uses(&self) -> MutexGuard<'_, Vec<Access>> {
        self.uses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A close was answered; `again` when the file stays open.
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
