//! The attribute by which migration and purging know whether mass storage has a copy of a file.
//!
//! A file gets it when a client creates it or opens it for writing. Later it holds the modification
//! time of the file that was copied. So a file that a local program changed has no copy, because its
//! time differs. Before a client changes it, the attribute is reset ([`crate::copy_withdrawal`]).
//! A file without the attribute has no copy either, so a file system without attributes, or without
//! room for them, refuses nothing. Only an attribute that would lie refuses a change.

use crate::describe;
use crate::errno;
use crate::name_operations::NameOperations;
use crate::writers::{FileKey, WriterTicket};
use base::{Error, ErrorKind, LogicalPath, errno_text};
use std::io;
use storage::{COPY_TIME_ATTRIBUTE, CopyTime, FileVersion, HeldFile, Metadata, StoredFile};

/// Marks a file that was opened for writing as one that may need a copy. With `replaced`, a copy that
/// mass storage has is one of the former content.
pub(crate) fn mark_opened(
    file: &dyn StoredFile,
    (verb, path): (&str, &LogicalPath),
    replaced: bool,
) -> Result<(), Error> {
    let value = CopyTime::NEVER.encode();
    let had_copy = replaced && !matches!(file.attribute(COPY_TIME_ATTRIBUTE), Ok(None));
    let Err(error) = file.set_attribute(COPY_TIME_ATTRIBUTE, &value, !replaced) else {
        // The attribute must not come back after a power failure that the new content survives.
        let synced = if had_copy { file.sync_all() } else { Ok(()) };
        return synced.map_err(|error| Error::unable(verb, path, error));
    };
    if error.raw_os_error() == Some(errno::EXISTS) {
        return Ok(());
    }
    if replaced && file.remove_attribute(COPY_TIME_ATTRIBUTE).is_err() {
        let is_marked = match file.attribute(COPY_TIME_ATTRIBUTE) {
            Ok(value) => value.is_some_and(|value| names_copy(&value)),
            Err(error) => error.raw_os_error() != Some(errno::UNSUPPORTED),
        };
        if is_marked {
            return Err(cannot_reset(verb, path, error));
        }
    }
    tracing::debug!(path = %path.shown(), %error, "a file does not get the attribute {COPY_TIME_ATTRIBUTE}");
    Ok(())
}

/// Reports whether a value of the attribute says that mass storage has a copy of some content.
pub(crate) fn names_copy(value: &[u8]) -> bool {
    CopyTime::decode(value).is_some_and(|copied| copied.0 > CopyTime::NEVER.0)
}

/// Returns the error of a change that is refused because the attribute of a copy cannot be reset.
pub(crate) fn cannot_reset(verb: &str, path: &LogicalPath, error: io::Error) -> Error {
    let text = format!(
        "Unable to {verb} {}; its attribute {COPY_TIME_ATTRIBUTE} says that mass storage has a copy, and \
         cannot be reset: {}",
        path.text(),
        errno_text(&error)
    );
    Error { kind: ErrorKind::from_io(&error), text, source: Some(error) }
}

/// A rename of a file that may have a copy in mass storage. While it lasts, the file has a writer, so a
/// migration that copies the file notices it. Without [`RenameMark::renamed`] the attribute gets its
/// former value again.
pub(crate) struct RenameMark {
    writer: WriterTicket,
    reset: Option<ResetMark>,
}

/// An attribute that was reset.
struct ResetMark {
    file: Box<dyn HeldFile>,
    former: Vec<u8>,
    version: FileVersion,
}

impl RenameMark {
    /// Ends the rename of a file that has its new name.
    pub(crate) fn renamed(mut self) {
        self.reset = None;
    }
}

impl Drop for RenameMark {
    fn drop(&mut self) {
        let Some(reset) = self.reset.take() else { return };
        let file = &reset.file;
        let is_same = file.version().is_ok_and(|version| version.has_content_of(&reset.version));
        if is_same
            && file.has_name().unwrap_or(false)
            && !self.writer.was_disturbed()
            && let Err(error) = file.set_attribute(COPY_TIME_ATTRIBUTE, &reset.former)
        {
            tracing::warn!(%error, "a file that was not renamed has lost its attribute {COPY_TIME_ATTRIBUTE}");
        }
    }
}

/// Prepares the rename of a file or directory. Copies in mass storage have the names of their files.
/// So a file that gets another name has no copy, and a directory with files keeps its name.
pub(crate) fn prepare_rename(
    changes: &NameOperations,
    (from, to): (&LogicalPath, &LogicalPath),
    source: &Metadata,
) -> Result<Option<RenameMark>, Error> {
    let target = changes.exports.find(to, "Renaming to")?;
    let may_be_marked = target.has_copies() || changes.exports.find(from, "Renaming")?.has_copies();
    let Some(transfers) = changes.backend.transfers().filter(|_| may_be_marked && from != to) else {
        return Ok(None);
    };
    // Before the attribute is read: a migration that sets it now notices the writer.
    let writer = changes.open_table.writers.add(FileKey::from(source));
    let error = match transfers.hold(from) {
        Ok(file) => return reset_mark(file, from, writer).map(Some),
        Err(error) => error,
    };
    match error.raw_os_error() {
        // A link, whose target keeps its name, or an object without a content.
        Some(errno::TOO_MANY_LINKS | errno::NOT_A_BLOCK_DEVICE | errno::NO_DEVICE) => Ok(None),
        Some(errno::IS_A_DIRECTORY | errno::ACCESS) if describe::is_directory(source) => {
            if target.keeps_copy_time() { check_empty(changes, from).map(|()| None) } else { Ok(None) }
        }
        // The server can neither copy nor purge such a file. With multi-user there are many.
        Some(errno::ACCESS) => {
            tracing::debug!(path = %from.shown(), "renames a file that the server cannot read");
            Ok(None)
        }
        _ => Err(Error::unable("rename", from, error)),
    }
}

/// Checks that a directory has no names in it.
fn check_empty(changes: &NameOperations, directory: &LogicalPath) -> Result<(), Error> {
    let fail = |error| Error::unable("rename", directory, error);
    if changes.backend.list(directory).map_err(fail)?.next(1).map_err(fail)?.is_empty() {
        return Ok(());
    }
    let text = format!(
        "Unable to rename {}; copies in mass storage would keep the old name; rename its files one by one",
        directory.text()
    );
    Err(Error::new(ErrorKind::Unsupported, text))
}

/// Resets the attribute of a file that is to be renamed, if it names a copy.
fn reset_mark(
    file: Box<dyn HeldFile>,
    path: &LogicalPath,
    writer: WriterTicket,
) -> Result<RenameMark, Error> {
    let fail = |error| Error::unable("rename", path, error);
    let former = match file.attribute(COPY_TIME_ATTRIBUTE) {
        Ok(former) => former.filter(|value| names_copy(value)),
        Err(error) if error.raw_os_error() == Some(errno::UNSUPPORTED) => None,
        Err(error) => return Err(fail(error)),
    };
    let Some(former) = former else { return Ok(RenameMark { writer, reset: None }) };
    let version = file.version().map_err(fail)?;
    if let Err(error) = file.set_attribute(COPY_TIME_ATTRIBUTE, &CopyTime::NEVER.encode())
        && file.remove_attribute(COPY_TIME_ATTRIBUTE).is_err()
    {
        return Err(cannot_reset("rename", path, error));
    }
    Ok(RenameMark { writer, reset: Some(ResetMark { file, former, version }) })
}
