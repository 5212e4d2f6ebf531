//! Files with delegated credentials of users: their records, and the removal of those that an earlier
//! process has left.

use crate::error::StartError;
use auth::{ExportRecords, ExportedFiles, ServerProtocol, remove_exported_leftovers};
use base::errno_text;
use std::convert::Infallible;
use std::fs::TryLockError;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;
use storage::PrivateDirectory;

/// The directory of the records, in the admin directory.
const RECORDS: &str = ".exports";

/// Maximum time for the removal of the files at the end of the process.
const END_TIME_MAX: Duration = Duration::from_secs(5);

/// Directories whose content a reboot may remove.
const VOLATILE_DIRECTORIES: [&str; 4] = ["/tmp", "/run", "/var/run", "/dev/shm"];

/// A directory with one file for each record. It is locked while the server runs, because another
/// server would remove the files of its sessions.
struct RecordDirectory(PrivateDirectory);

impl ExportRecords for RecordDirectory {
    // Nothing is synced, because threads of logins call this, and the recorded files are not synced
    // either.
    fn write(&self, name: &str, record: &[u8]) -> io::Result<()> {
        self.0.replace_unsynced(name, record)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.0.remove_unsynced(name)
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
/// on. The earlier process may have had another configuration, so its files are removed also if no
/// protocol writes any.
///
/// # Errors
/// [`StartError::File`] with the directory of the records, if it is needed.
pub(crate) fn record(protocols: &[Arc<dyn ServerProtocol>], admin: &Path) -> Result<(), StartError> {
    let exporting: Vec<_> = protocols.iter().filter_map(|protocol| protocol.exported_files()).collect();
    if exporting.is_empty() {
        remove_leftovers(admin);
        return Ok(());
    }
    for template in exporting.iter().map(|files| files.template()) {
        if outlives_records(template, admin) {
            tracing::warn!(
                "delegated credentials in {} can outlive their records in {}, which a reboot may remove: name \
                 another directory with all.adminpath",
                template.display(),
                admin.join(RECORDS).display()
            );
        }
    }
    let records = RecordDirectory::open(admin).map_err(|source| StartError::File {
        what: "directory of the records of exported credentials",
        path: admin.join(RECORDS),
        source,
    })?;
    let records = Arc::new(records);
    exporting.iter().for_each(|files| files.record_in(records.clone()));
    Ok(())
}

/// Removes what an earlier process has left, for a server that records no files. Blocks.
fn remove_leftovers(admin: &Path) {
    let path = admin.join(RECORDS);
    if path.symlink_metadata().is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return;
    }
    match RecordDirectory::open(admin) {
        Ok(_) => {}
        // The other server has removed them.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {}
        Err(error) => {
            let (shown, reason) = (path.display(), errno_text(&error));
            tracing::warn!(
                "{shown} is not read: {reason}; delegated credentials of an earlier process may remain"
            );
        }
    }
}

/// Reports whether a reboot may remove the records in an admin directory, but not the files.
fn outlives_records(template: &Path, admin: &Path) -> bool {
    let is_volatile = |path: &Path| VOLATILE_DIRECTORIES.iter().any(|directory| path.starts_with(directory));
    is_volatile(admin) && !is_volatile(template)
}

/// Removes the exported files of all sessions, because the process ends. Waits some seconds for disks
/// that hang. The next start removes the remaining files.
pub(crate) fn end(protocols: &[Arc<dyn ServerProtocol>]) {
    let exporting = protocols.iter().filter(|protocol| protocol.exported_files().is_some()).cloned();
    let ends =
        exporting.map(|protocol| move || protocol.exported_files().into_iter().for_each(ExportedFiles::end));
    if !complete_within(END_TIME_MAX, ends) {
        tracing::warn!(
            "files with delegated credentials remain, because a disk does not answer; the next start removes them"
        );
    }
}

/// Runs each function on a thread of its own. Reports whether all were complete within the time.
fn complete_within<F: FnOnce() + Send + 'static>(
    time_max: Duration,
    functions: impl Iterator<Item = F>,
) -> bool {
    let (sender, receiver) = mpsc::channel::<Infallible>();
    let mut are_started = true;
    for function in functions {
        let sender = sender.clone();
        let run = move || {
            function();
            drop(sender);
        };
        are_started &= std::thread::Builder::new().name("exported-end".to_owned()).spawn(run).is_ok();
    }
    drop(sender);
    // The channel ends with the last of the threads.
    are_started && receiver.recv_timeout(time_max) == Err(RecvTimeoutError::Disconnected)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::DirBuilder;
    use std::os::unix::fs::DirBuilderExt;

    #[test]
    fn records_have_one_server_at_a_time() {
        let admin = std::env::temp_dir().join(format!("scalla-exports-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&admin);
        let first = RecordDirectory::open(&admin).unwrap();
        first.write("malformed", b"xyz").unwrap();
        first.write("malformed", b"x").unwrap();
        first.write("removed", b"y").unwrap();
        first.remove("removed").unwrap();
        assert_eq!((first.0.names().unwrap().len(), first.0.read("malformed").unwrap()), (1, b"x".into()));
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

    #[test]
    fn a_server_that_exports_nothing_removes_what_an_earlier_one_has_left() {
        const NAME: &str = "00112233445566778899aabbccddeeff";
        let admin = std::env::temp_dir().join(format!("scalla-earlier-exports-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&admin);
        let earlier = RecordDirectory::open(&admin).unwrap();
        let directory = admin.join(format!(".export-{NAME}"));
        DirBuilder::new().mode(0o700).create(&directory).unwrap();
        earlier.write(NAME, format!("1\0{}", directory.display()).as_bytes()).unwrap();
        for protocols in [vec![], vec![Arc::new(auth::unix::UnixServer) as Arc<dyn ServerProtocol>]] {
            record(&protocols, &admin).unwrap();
            assert!(directory.exists(), "a running server has recorded it");
        }
        drop(earlier);
        record(&[], &admin).unwrap();
        assert!(!directory.exists() && !admin.join(RECORDS).join(NAME).exists());
        std::fs::remove_dir_all(&admin).unwrap();
    }

    #[test]
    fn a_disk_that_hangs_neither_keeps_the_process_nor_other_files() {
        let (release, hanging) = mpsc::channel::<()>();
        let (removed, removal) = mpsc::channel::<()>();
        let hang: Box<dyn FnOnce() + Send> = Box::new(move || assert!(hanging.recv().is_err()));
        let remove: Box<dyn FnOnce() + Send> = Box::new(move || removed.send(()).unwrap());
        assert!(!complete_within(Duration::from_millis(1), [hang, remove].into_iter()));
        removal.recv().unwrap();
        drop(release);
        let (removed, removal) = mpsc::channel::<()>();
        assert!(complete_within(
            Duration::from_secs(600),
            std::iter::once(move || removed.send(()).unwrap())
        ));
        assert!(removal.try_recv().is_ok(), "it was complete");
        assert!(complete_within(Duration::ZERO, std::iter::empty::<fn()>()));
    }

    #[test]
    fn files_on_disks_outlive_records_below_tmp() {
        for (template, admin, expected) in [
            ("/var/spool/x509up_<user>", "/tmp", true),
            ("/tmp/x509up_u<uid>", "/tmp/instance", false),
            ("/run/scalla/<user>", "/tmp", false),
            ("/var/spool/x509up_<user>", "/var/spool/scalla", false),
            ("/tmpfiles/x509up_<user>", "/tmp", true),
        ] {
            assert_eq!(outlives_records(Path::new(template), Path::new(admin)), expected, "{template}");
        }
    }
}
