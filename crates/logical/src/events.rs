//! What becomes of names, told to whoever keeps track of where files are.

use base::{ErrorKind, LogicalPath};
use std::sync::{Arc, OnceLock};
use storage::Backend;

/// Who is told what becomes of names. Called by pools and by loops after the thing was done: it must not block, and by
/// the time it is called somebody else may have changed the same name again.
pub trait Events: Send + Sync {
    /// A file or directory of this name was made. `pending`: a file that is not yet whole.
    fn made(&self, path: &LogicalPath, pending: bool);
    /// A name was removed or renamed away.
    fn gone(&self, path: &LogicalPath);
    /// A name was sought in vain: it may have been removed beside the server. Clients cause this as often as they like.
    fn missing(&self, path: &LogicalPath) {
        self.gone(path);
    }
    /// A directory was renamed with all that is below it. [`Events::gone`] and [`Events::made`] were told of itself.
    fn moved(&self, from: &LogicalPath, to: &LogicalPath);
}

/// Passes events on to their receiver, if there is one.
#[derive(Default)]
pub(crate) struct Announcer {
    receiver: OnceLock<Arc<dyn Events>>,
}

impl Announcer {
    /// Sets the receiver. Only the first one counts.
    pub(crate) fn set(&self, receiver: Arc<dyn Events>) {
        let _ = self.receiver.set(receiver);
    }

    pub(crate) fn made(&self, path: &LogicalPath, pending: bool) {
        if let Some(events) = self.receiver.get() {
            events.made(path, pending);
        }
    }

    pub(crate) fn gone(&self, path: &LogicalPath) {
        if let Some(events) = self.receiver.get() {
            events.gone(path);
        }
    }

    pub(crate) fn moved(&self, from: &LogicalPath, to: &LogicalPath) {
        if let Some(events) = self.receiver.get() {
            events.moved(from, to);
        }
    }

    /// Reports a path that an operation did not find, if `error` is of that kind.
    pub(crate) fn missing(&self, path: &LogicalPath, error: &std::io::Error) {
        if ErrorKind::from_io(error) == ErrorKind::NotFound
            && let Some(events) = self.receiver.get()
        {
            events.missing(path);
        }
    }

    /// Returns the directories above `path` that do not exist, which an operation will create on the way and report
    /// afterwards with [`Self::made_above`]. Empty if there is no receiver. May block.
    pub(crate) fn missing_above(&self, backend: &dyn Backend, path: &LogicalPath) -> Vec<LogicalPath> {
        if self.receiver.get().is_none() {
            return Vec::new();
        }
        missing_above(backend, path)
    }

    /// Reports directories that were created on the way.
    pub(crate) fn made_above(&self, made: &[LogicalPath]) {
        for path in made.iter().rev() {
            self.made(path, false);
        }
    }
}

/// Returns the directories above `path` that do not exist, the deepest first. May block.
pub(crate) fn missing_above(backend: &dyn Backend, path: &LogicalPath) -> Vec<LogicalPath> {
    let mut missing = Vec::new();
    let mut at = path.parent();
    while let Some(above) = at.filter(|above| !above.is_root()) {
        match backend.stat(&above) {
            Err(error) if ErrorKind::from_io(&error) == ErrorKind::NotFound => {}
            _ => break,
        }
        at = above.parent();
        missing.push(above);
    }
    missing
}
