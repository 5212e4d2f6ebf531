//! What becomes of names, told to whoever keeps track of where files are.

use crate::shared::Shared;
use base::{ErrorKind, LogicalPath};
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

impl Shared {
    pub(crate) fn tell_made(&self, path: &LogicalPath, pending: bool) {
        if let Some(events) = self.events.get() {
            events.made(path, pending);
        }
    }

    pub(crate) fn tell_gone(&self, path: &LogicalPath) {
        if let Some(events) = self.events.get() {
            events.gone(path);
        }
    }

    pub(crate) fn tell_moved(&self, from: &LogicalPath, to: &LogicalPath) {
        if let Some(events) = self.events.get() {
            events.moved(from, to);
        }
    }

    /// Tells of the path if it was missing where it was sought.
    pub(crate) fn tell_missing(&self, path: &LogicalPath, error: &std::io::Error) {
        if ErrorKind::from_io(error) == ErrorKind::NotFound
            && let Some(events) = self.events.get()
        {
            events.missing(path);
        }
    }

    /// The directories above `path` that are not there: what makes it makes them on the way, and tells of them then.
    /// Nothing when nobody wants to know. May block.
    pub(crate) fn missing_above(&self, path: &LogicalPath) -> Vec<LogicalPath> {
        if self.events.get().is_none() {
            return Vec::new();
        }
        missing_above(self.backend.as_ref(), path)
    }

    /// Directories that were made on the way.
    pub(crate) fn tell_made_above(&self, made: &[LogicalPath]) {
        for path in made.iter().rev() {
            self.tell_made(path, false);
        }
    }
}

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
