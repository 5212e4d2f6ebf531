//! Events about changed names, for a receiver that tracks where files are, such as the cluster node
//! of this server.

use base::{ErrorKind, LogicalPath};
use std::sync::{Arc, OnceLock};
use storage::Backend;

/// A receiver of events about names.
///
/// It is called on pool threads and event loops after the change, so it must not block. Another
/// change of the same name may have happened before the call.
pub trait Events: Send + Sync {
    /// Reports that a file or directory was created. `pending`: the file is unfinished.
    fn created(&self, path: &LogicalPath, pending: bool);
    /// Reports that a name was removed or renamed.
    fn removed(&self, path: &LogicalPath);
    /// Reports that a name was requested but not found: it may have been removed without the
    /// server. Clients can cause this event at any rate.
    fn missing(&self, path: &LogicalPath) {
        self.removed(path);
    }
    /// Reports that a directory was renamed with its content. The directory itself is reported by
    /// [`Events::removed`] and [`Events::created`].
    fn moved(&self, from: &LogicalPath, to: &LogicalPath);
}

/// Forwards events to the receiver, if there is one.
#[derive(Default)]
pub(crate) struct EventForwarder {
    receiver: OnceLock<Arc<dyn Events>>,
}

impl EventForwarder {
    /// Sets the receiver. Only the first call has an effect.
    pub(crate) fn set(&self, receiver: Arc<dyn Events>) {
        let _ = self.receiver.set(receiver);
    }

    pub(crate) fn created(&self, path: &LogicalPath, pending: bool) {
        if let Some(events) = self.receiver.get() {
            events.created(path, pending);
        }
    }

    pub(crate) fn removed(&self, path: &LogicalPath) {
        if let Some(events) = self.receiver.get() {
            events.removed(path);
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

    /// Returns the missing directories above `path`, which an operation will create and report
    /// afterwards with [`Self::created_parents`]. Empty if there is no receiver. May block.
    pub(crate) fn missing_above(&self, backend: &dyn Backend, path: &LogicalPath) -> Vec<LogicalPath> {
        if self.receiver.get().is_none() {
            return Vec::new();
        }
        missing_above(backend, path)
    }

    /// Reports parent directories that were created.
    pub(crate) fn created_parents(&self, made: &[LogicalPath]) {
        for path in made.iter().rev() {
            self.created(path, false);
        }
    }
}

/// Returns the missing directories above `path`, the deepest first. May block.
pub(crate) fn missing_above(backend: &dyn Backend, path: &LogicalPath) -> Vec<LogicalPath> {
    let mut missing = Vec::new();
    let mut at = path.parent();
    while let Some(above) = at.filter(|above| !above.is_root()) {
        if !backend.creates_parent(&above, path) {
            break;
        }
        match backend.stat(&above) {
            Err(error) if ErrorKind::from_io(&error) == ErrorKind::NotFound => {}
            _ => break,
        }
        at = above.parent();
        missing.push(above);
    }
    missing
}
