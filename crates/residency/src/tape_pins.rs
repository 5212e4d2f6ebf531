//! The pins of files that tape requests keep on disk.

use crate::tape_requests::FileKeep;
use base::{LogicalPath, Owner};
use rustix::io::Errno;
use std::io;
use std::sync::Arc;
use storage::{Backend, FilePin, PIN_ATTRIBUTE, Pool};

/// Changes the pins of files, in the pools of their disks. Never blocks.
pub(crate) fn change(backend: &Arc<dyn Backend>, files: Vec<FileKeep>) {
    let mut groups: Vec<(Arc<Pool>, Vec<FileKeep>)> = Vec::new();
    for file in files {
        let pool = backend.pool(&file.path);
        match groups.iter_mut().find(|(known, _)| Arc::ptr_eq(known, pool)) {
            Some((_, group)) => group.push(file),
            None => groups.push((pool.clone(), vec![file])),
        }
    }
    for (pool, group) in groups {
        let inside = backend.clone();
        let job = move || {
            for file in group {
                if let Err(error) = change_pin(inside.as_ref(), &file) {
                    tracing::warn!(path = %file.path.shown(), %error, "cannot change the pin of a file");
                }
            }
        };
        if pool.run(Owner::SERVER, Box::new(job)).is_err() {
            tracing::warn!("cannot change the pins of files: too many operations wait for their disk");
        }
    }
}

fn change_pin(backend: &dyn Backend, file: &FileKeep) -> io::Result<()> {
    let current = match backend.attribute(&file.path, PIN_ATTRIBUTE) {
        Ok(value) => value.as_deref().and_then(FilePin::decode),
        // The file was removed meanwhile.
        Err(error) if storage::is_missing(&error) => return Ok(()),
        Err(error) => return Err(error),
    };
    match changed(current, file) {
        PinChange::None => Ok(()),
        PinChange::Set(pin) => set(backend, &file.path, pin),
        PinChange::Remove => match backend.remove_attribute(&file.path, PIN_ATTRIBUTE) {
            Err(error) if error.raw_os_error() == Some(Errno::NODATA.raw_os_error()) => Ok(()),
            other => other,
        },
    }
}

fn set(backend: &dyn Backend, path: &LogicalPath, pin: FilePin) -> io::Result<()> {
    backend.set_attribute(path, PIN_ATTRIBUTE, &pin.encode(), false)
}

#[derive(PartialEq, Eq, Debug)]
enum PinChange {
    None,
    Set(FilePin),
    Remove,
}

/// Returns the change of a pin. One of an administrator that keeps the file for longer stays.
fn changed(current: Option<FilePin>, file: &FileKeep) -> PinChange {
    let end = |time: u64| i64::try_from(time).unwrap_or(i64::MAX);
    let (before, until) = (end(file.before), end(file.until));
    match current {
        Some(FilePin::Forever | FilePin::Idle(_)) => PinChange::None,
        Some(FilePin::Until(time)) if time > before.max(until) => PinChange::None,
        Some(FilePin::Until(time)) if time == until => PinChange::None,
        None if until == 0 => PinChange::None,
        Some(FilePin::Until(_)) if until == 0 => PinChange::Remove,
        Some(FilePin::Until(_)) | None => PinChange::Set(FilePin::Until(until)),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    #[test]
    fn pins_of_administrators_stay() {
        let file = |before, until| FileKeep { path: LogicalPath::parse(b"/f").unwrap(), before, until };
        for pin in [FilePin::Forever, FilePin::Idle(5), FilePin::Until(101)] {
            assert_eq!(changed(Some(pin), &file(0, 100)), PinChange::None);
            assert_eq!(changed(Some(pin), &file(100, 0)), PinChange::None);
        }
        assert_eq!(changed(None, &file(0, 100)), PinChange::Set(FilePin::Until(100)));
        assert_eq!(changed(Some(FilePin::Until(50)), &file(0, 100)), PinChange::Set(FilePin::Until(100)));
        assert_eq!(changed(Some(FilePin::Until(100)), &file(100, 0)), PinChange::Remove);
        assert_eq!(changed(Some(FilePin::Until(100)), &file(100, 60)), PinChange::Set(FilePin::Until(60)));
        assert_eq!(changed(Some(FilePin::Until(100)), &file(60, 100)), PinChange::None, "another request");
        assert_eq!(changed(None, &file(100, 0)), PinChange::None);
    }
}
