//! Looks up the metadata of a path and converts errors to those that clients expect. Most
//! operations need this, so it is separate from `stat`.

use crate::describe;
use crate::errno::{self, unable};
use base::{Error, LogicalPath};
use std::io;
use storage::{Backend, Metadata, Now};

/// Returns the metadata of a path. A trailing `/` requires a directory. May block.
pub(crate) fn metadata(backend: &dyn Backend, path: &LogicalPath, verb: &str) -> Result<Metadata, Error> {
    let metadata = backend.stat(&path.without_slash()).map_err(|e| Error::unable(verb, path, e))?;
    check_slash(path, &metadata, verb)?;
    Ok(metadata)
}

/// Returns the metadata of a path if it is in memory. Never blocks.
pub(crate) fn metadata_now(
    backend: &dyn Backend,
    path: &LogicalPath,
    verb: &str,
) -> Option<Result<Metadata, Error>> {
    match backend.stat_now(&path.without_slash()) {
        Now::WouldBlock => None,
        Now::Done(Err(error)) => Some(Err(Error::unable(verb, path, error))),
        Now::Done(Ok(metadata)) => Some(check_slash(path, &metadata, verb).map(|()| metadata)),
    }
}

/// Returns the error of a creation that failed because `existing_parent` is missing; `None` if it
/// failed for another reason. May block.
pub(crate) fn missing_parent(
    backend: &dyn Backend,
    existing_parent: Option<&LogicalPath>,
    error: &io::Error,
) -> Option<Error> {
    let directory = existing_parent.filter(|_| error.raw_os_error() == Some(errno::ACCESS))?;
    let is_missing = backend.stat(directory).is_err_and(|e| e.raw_os_error() == Some(errno::NOT_FOUND));
    is_missing.then(|| unable("mkdir", directory, errno::ACCESS))
}

/// Refuses a trailing `/` on something that is not a directory.
fn check_slash(path: &LogicalPath, metadata: &Metadata, verb: &str) -> Result<(), Error> {
    let asks_directory = path.as_bytes().ends_with(b"/") && !path.is_root();
    if asks_directory && !describe::is_directory(metadata) {
        return Err(unable(verb, path, errno::NOT_A_DIRECTORY));
    }
    Ok(())
}
