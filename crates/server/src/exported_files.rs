//! Files with delegated credentials of users: their records, and the removal of those that an earlier
//! process has left.

use crate::error::StartError;
use auth::{ExportRecords, ServerProtocol, remove_exported_leftovers};
use base::errno_text;
use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::sync::Arc;
use storage::PrivateDirectory;

/// The directory of the records, in the admin directory.
const RECORDS: &str = ".exports";

/// A directory with one file for each record. It is locked while the server runs, because another
/// server would remove the files of its sessions.
struct RecordDirectory(PrivateDirectory);

impl ExportRecords for RecordDirectory {
    fn write(&self, name: &str, record: &[u8]) -> io::Result<()> {
        self.0.replace(name, record).map(drop)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove(name)
    }
}

impl RecordDirectory {
    /// Opens the directory and removes the files that its records describe. Blocks.
    fn open(admin: &Path) -> io::Result<Self> {
        let directory = PrivateDirectory::create(&admin.join(RECORDS))?;
        match directory.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = "another server uses it; give each server an admin directory of its own";
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            Err(TryLockError::Error(error)) => {
                // The lock of the admin directory excludes other servers.
                let shown = directory.path().display();
                tracing::debug!("cannot lock {shown}: {}", errno_text(&error));
            }
        }
        for name in directory.names()? {
            let Some(name) = name.to_str() else { continue };
            match directory.read(name) {
                Ok(record) if remove_exported_leftovers(name, &record) => directory.remove(name)?,
                Ok(_) => {}
                Err(error) => {
                    let shown = directory.path().join(name);
                    tracing::warn!("{} is not read: {}", shown.display(), errno_text(&error));
                }
            }
        }
        Ok(Self(directory))
    }
}

/// Removes what an earlier process has left, and records the files that the protocols write from now
/// on. Without such protocols nothing is done.
///
/// # Errors
/// [`StartError::File`] with the directory of the records.
pub(crate) fn record(protocols: &[Arc<dyn ServerProtocol>], admin: &Path) -> Result<(), StartError> {
    let mut exporting = protocols.iter().filter_map(|protocol| protocol.exported_files()).peekable();
    if exporting.peek().is_none() {
        return Ok(());
    }
    let records = RecordDirectory::open(admin).map_err(|source| StartError::File {
        what: "directory of the records of exported credentials",
        path: admin.join(RECORDS),
        source,
    })?;
    let records = Arc::new(records);
    exporting.for_each(|files| files.record_in(records.clone()));
    Ok(())
}

/// Removes the exported files of all sessions, because the process ends.
pub(crate) fn end(protocols: &[Arc<dyn ServerProtocol>]) {
    protocols.iter().filter_map(|protocol| protocol.exported_files()).for_each(auth::ExportedFiles::end);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_have_one_server_at_a_time() {
        let admin = std::env::temp_dir().join(format!("scalla-exports-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&admin);
        let first = RecordDirectory::open(&admin).unwrap();
        first.write("malformed", b"x").unwrap();
        let refused = RecordDirectory::open(&admin).map(drop).unwrap_err();
        assert!(refused.to_string().contains("another server uses it"), "{refused}");
        drop(first);
        let second = RecordDirectory::open(&admin).unwrap();
        assert!(second.0.names().unwrap().is_empty(), "a malformed record is dropped");
        std::fs::remove_dir_all(&admin).unwrap();
    }

    #[test]
    fn a_server_that_exports_nothing_has_no_records() {
        let admin = std::env::temp_dir().join(format!("scalla-no-exports-{}", std::process::id()));
        record(&[Arc::new(auth::unix::UnixServer)], &admin).unwrap();
        assert!(!admin.exists());
    }
}
