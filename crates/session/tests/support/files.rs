//! A file without content, because the session only passes it on.

use base::LogicalPath;
use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use vfs::{Answer, FileOperation, Now, OpenFile, ReplyTo, Started};

pub struct FakeFile {
    path: LogicalPath,
    interrupted: AtomicBool,
}

impl FakeFile {
    pub fn new(path: &str) -> Arc<Self> {
        Arc::new(Self {
            path: LogicalPath::parse(path.as_bytes()).unwrap(),
            interrupted: AtomicBool::new(false),
        })
    }

    /// Reports whether the file was interrupted.
    pub fn was_interrupted(&self) -> bool {
        self.interrupted.load(Ordering::SeqCst)
    }

    /// Reports whether both are the same file.
    pub fn is(self: &Arc<Self>, other: &Arc<dyn OpenFile>) -> bool {
        std::ptr::addr_eq(Arc::as_ptr(self), Arc::as_ptr(other))
    }
}

impl OpenFile for FakeFile {
    fn path(&self) -> &LogicalPath {
        &self.path
    }

    fn is_writable(&self) -> bool {
        true
    }

    fn start(&self, _: FileOperation, _: &ReplyTo) -> Started {
        Started::Done(Answer::DONE)
    }

    fn interrupt(&self) {
        self.interrupted.store(true, Ordering::SeqCst);
    }

    fn as_any(&self) -> &dyn Any {
        self
    }
}
