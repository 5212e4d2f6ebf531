//! The files of a cache beside those of origins: its lock, pins, and files left by an earlier process.

use super::CacheStartError;
use crate::store::{CachePin, OWN_DIRECTORY, StoreContext};
use crate::{CacheDisk, CacheDiskFile};
use base::LogicalPath;
use std::io;
use std::sync::Arc;

/// Returns the pins of an earlier process. A damaged file is set aside, because it would stop all readers otherwise. An
/// error of the disk stops the start, because the pins may be there.
pub(super) fn load_pins(context: &StoreContext) -> Result<Vec<CachePin>, CacheStartError> {
    match context.load_pins() {
        Err(error) if error.kind() == io::ErrorKind::InvalidData => {
            let aside = context.set_pins_aside().map_err(CacheStartError::Pins)?;
            tracing::error!(
                "the pins of the cache are lost, because their file was damaged; it is now {}; \
                 repeat the orders of scalla cache pin",
                aside.shown()
            );
            Ok(Vec::new())
        }
        other => other.map_err(CacheStartError::Pins),
    }
}

pub(super) fn own_path(name: &str) -> Result<LogicalPath, CacheStartError> {
    LogicalPath::parse(format!("{OWN_DIRECTORY}/{name}").as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidFilename).into())
}

/// Locks the disk for this process.
pub(crate) fn lock(disk: &dyn CacheDisk) -> Result<Arc<dyn CacheDiskFile>, CacheStartError> {
    let path = own_path("lock")?;
    let file = match disk.create(&path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.open(&path)?,
        other => other?,
    };
    if file.try_lock()? { Ok(file) } else { Err(CacheStartError::InUse) }
}

/// Removes the files of an earlier process in a directory of the cache, all names of which are its own.
pub(super) fn remove_own_files(disk: &dyn CacheDisk, directory: &str) -> io::Result<()> {
    with_own_files(disk, directory, |path| disk.remove(path))
}

/// Calls `each` with the paths in a directory of the cache.
pub(super) fn with_own_files(
    disk: &dyn CacheDisk,
    directory: &str,
    each: impl Fn(&LogicalPath) -> io::Result<()>,
) -> io::Result<()> {
    let invalid = |_| io::Error::from(io::ErrorKind::InvalidFilename);
    let directory = LogicalPath::parse(format!("{OWN_DIRECTORY}/{directory}").as_bytes()).map_err(invalid)?;
    let entries = match disk.list(&directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let names: Vec<_> = entries.collect::<io::Result<_>>()?;
    for (name, _) in names {
        let path = directory.join(&name).map_err(invalid)?;
        each(&path)?;
    }
    Ok(())
}
