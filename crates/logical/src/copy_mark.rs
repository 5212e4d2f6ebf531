//! The attribute by which migration and purging know whether mass storage has a copy of a file.
//!
//! A file gets it when a client creates it or opens it for writing. Later it holds the modification
//! time of the file that was copied. So a file that was changed has no copy, because its time differs.

use crate::describe;
use crate::errno;
use crate::name_operations::NameOperations;
use crate::writers::{FileKey, WriterTicket};
use base::{Error, ErrorKind, LogicalPath};
use std::io;
use storage::{COPY_TIME_ATTRIBUTE, CopyTime, Metadata, StoredFile};

/// Marks a file that was opened for writing as one that may need a copy. With `replaced`, a copy that
/// mass storage has is one of the former content.
pub(crate) fn mark_opened(file: &dyn StoredFile, path: &LogicalPath, replaced: bool) -> io::Result<()> {
    match file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime::NEVER.encode(), !replaced) {
        Err(error) if error.raw_os_error() != Some(errno::EXISTS) => {
            tracing::error!(
                path = %path.shown(), %error,
                "cannot set the attribute {COPY_TIME_ATTRIBUTE}, without which a file is not migrated"
            );
            Err(error)
        }
        _ => Ok(()),
    }
}

/// Prepares the rename of a file or directory. Copies in mass storage have the names of their files.
/// So a file that gets another name has no copy, and a directory with files keeps its name.
///
/// The ticket lasts as long as the rename. A migration that has just copied the file notices it, and
/// its copy does not count.
pub(crate) fn prepare_rename(
    changes: &NameOperations,
    (from, to): (&LogicalPath, &LogicalPath),
    source: &Metadata,
) -> Result<Option<WriterTicket>, Error> {
    if from == to || !changes.exports.find(to, "Renaming to")?.keeps_copy_time() {
        return Ok(None);
    }
    let fail = |error| Error::unable("rename", from, error);
    if !describe::is_directory(source) {
        let writer = changes.open_table.writers.add(FileKey::from(source));
        let value = CopyTime::NEVER.encode();
        changes.backend.set_attribute(from, COPY_TIME_ATTRIBUTE, &value, false).map_err(fail)?;
        return Ok(Some(writer));
    }
    if changes.backend.list(from).map_err(fail)?.next(1).map_err(fail)?.is_empty() {
        return Ok(None);
    }
    let text = format!(
        "Unable to rename {}; copies in mass storage would keep the old name; rename its files one by one",
        from.text()
    );
    Err(Error::new(ErrorKind::Unsupported, text))
}
