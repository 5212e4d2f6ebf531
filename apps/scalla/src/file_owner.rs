//! [`become_owner`]: root works on files of other users with their rights.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use auth::{directory_of, only_root_replaces};

/// Lets root work on the file of another user with the rights of that user, so that links in the
/// directories of that user lead to nothing else, and so that the lock is one of that user. A file
/// that does not exist yet is one of the owner of its directory. In a directory of root, the user can
/// neither plant links nor write, so root works itself.
pub(crate) fn become_owner(path: &Path) -> Result<(), String> {
    if !server::User::is_root() || only_root_replaces(path) {
        return Ok(());
    }
    let Ok(found) = path.symlink_metadata().or_else(|_| directory_of(path).metadata()) else { return Ok(()) };
    if found.uid() == 0 {
        return Ok(());
    }
    let switched = server::User::find(&found.uid().to_string()).and_then(|owner| owner.switch());
    switched.map_err(|error| format!("Unable to become the owner of '{}'; {error}", path.display()))
}
