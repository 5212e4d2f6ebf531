//! [`ExportedFile`]: delegated credentials of a user in a file, for programs of the site.
//!
//! The file is written in a new private directory, and it is renamed when it is complete. So readers
//! see whole credentials, and nobody else can prepare the file. All sessions of a user share one file;
//! it is removed with the last of them. Several users can have one account, and so one path. While
//! one of them has the file, those of the others are not stored, because programs would act for a user
//! with the credentials of another.
//!
//! Files are recorded ([`ExportRecords`]), so that those of a process that was killed are removed when
//! the next one starts.

use std::collections::HashMap;
use std::fmt;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use base::{Rng, errno_text};

use crate::export_record::{ExportRecord, ExportRecords, RecordedFile};
use crate::random::SystemRng;

/// Permissions of the file.
const FILE_MODE: u32 = 0o600;
/// Permissions of the directory in which it is written.
const DIRECTORY_MODE: u32 = 0o700;
/// Random bytes in the name of that directory.
const RANDOM_BYTES: usize = 16;
/// The name of the file in that directory.
pub(crate) const NEW_FILE: &str = "new";
/// Maximum wait for the removal of files of ended sessions.
const END_TIME_MAX: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });

/// The use of a file.
#[derive(Debug)]
struct FileUse {
    /// The name of the user in the credentials, such as a subject or a principal.
    owner: String,
    /// Number of sessions.
    sessions: usize,
    /// The name of the record of the file in force.
    record: String,
}

/// The files that sessions use.
#[derive(Debug, Default)]
struct UseTable {
    files: HashMap<PathBuf, FileUse>,
    /// The process ends, so no file is stored any more.
    has_ended: bool,
}

/// The use of each file of one protocol of a server.
struct ExportedUses {
    /// The kind of the credentials, for messages.
    what: &'static str,
    /// Locked only by threads that may wait for a disk. Records are changed without the lock.
    used: Mutex<UseTable>,
    /// Set at the start of a server.
    records: OnceLock<Arc<dyn ExportRecords>>,
}

impl fmt::Debug for ExportedUses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ExportedUses").field("used", &self.used).finish_non_exhaustive()
    }
}

/// A message to the thread that removes files.
#[derive(Debug)]
enum SessionEnd {
    /// A session that used this path has ended.
    Of(PathBuf),
    /// The receiver waits until all earlier messages are done.
    Reached(Sender<()>),
}

/// The files of one protocol of a server. A thread of its own removes them, because the last value of
/// a session is dropped by an event loop, which must not wait for a disk.
#[derive(Debug)]
pub struct ExportedFiles {
    uses: Arc<ExportedUses>,
    /// The option with the path, for messages.
    option: &'static str,
    /// The path with its placeholders.
    template: String,
    /// The thread, which is started with the first file.
    removal: Mutex<Option<Sender<SessionEnd>>>,
}

/// Credentials in a file. The file is removed after the last value of this path was dropped. The drop
/// does not block.
#[derive(Debug)]
pub struct ExportedFile {
    path: PathBuf,
    removal: Sender<SessionEnd>,
}

impl ExportedFile {
    /// Returns the path of the file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for ExportedFile {
    fn drop(&mut self) {
        // The thread lives as long as this sender.
        let _ = self.removal.send(SessionEnd::Of(std::mem::take(&mut self.path)));
    }
}

impl ExportedUses {
    fn used(&self) -> MutexGuard<'_, UseTable> {
        self.used.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Removes files whose last session has ended, until all senders are gone.
    fn serve(&self, ends: &Receiver<SessionEnd>) {
        for end in ends {
            match end {
                SessionEnd::Of(path) => self.end_session(&path),
                SessionEnd::Reached(reply) => drop(reply.send(())),
            }
        }
    }

    fn end_session(&self, path: &Path) {
        let mut used = self.used();
        if let Some(file) = used.files.get_mut(path).filter(|file| file.sessions > 1) {
            file.sessions -= 1;
            return;
        }
        let Some(file) = used.files.remove(path) else { return };
        // The lock is held, so that no new file is removed.
        let is_removed = self.remove_file(path);
        drop(used);
        if is_removed {
            self.forget(&file.record);
        }
    }

    /// Reports whether the path has no file any more, so that its record is not needed.
    fn remove_file(&self, path: &Path) -> bool {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let (shown, reason) = (path.display(), errno_text(&error));
                tracing::warn!("{} {shown} is not removed: {reason}; remove it", self.what);
                false
            }
            _ => true,
        }
    }

    /// Removes a record. Without success, the next start finds that its files are gone.
    fn forget(&self, record: &str) {
        if let Some(Err(error)) = self.records.get().map(|records| records.remove(record)) {
            tracing::debug!("the record {record} is not removed: {}", errno_text(&error));
        }
    }

    fn record(&self, name: &str, record: &ExportRecord) -> Result<(), String> {
        let Some(records) = self.records.get() else { return Ok(()) };
        records.write(name, &record.encode()).map_err(|error| {
            format!("{} is not stored, because it cannot be recorded: {}", self.what, errno_text(&error))
        })
    }
}

/// A record of a file that is being stored. It is removed on drop, unless the file is in use.
struct NewRecord<'a> {
    uses: &'a ExportedUses,
    name: String,
    kept: bool,
}

impl Drop for NewRecord<'_> {
    fn drop(&mut self) {
        if !self.kept {
            self.uses.forget(&self.name);
        }
    }
}

impl Drop for ExportedFiles {
    fn drop(&mut self) {
        // The process may end next, and a file would remain.
        let removal = self.removal.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(removal) = removal {
            await_removals(&removal, END_TIME_MAX);
        }
    }
}

/// Waits until the files of all sessions that have ended before are removed.
fn await_removals(removal: &Sender<SessionEnd>, time_max: Duration) {
    let (reply, reached) = mpsc::channel();
    if removal.send(SessionEnd::Reached(reply)).is_ok() {
        let _ = reached.recv_timeout(time_max);
    }
}

impl ExportedFiles {
    /// Creates the files of a protocol. `what` is the kind of its credentials, and `option` the one with
    /// the path, both for messages; `template` is the path with its placeholders.
    pub(crate) fn new(what: &'static str, option: &'static str, template: String) -> Arc<Self> {
        let uses = Arc::new(ExportedUses { what, used: Mutex::default(), records: OnceLock::new() });
        Arc::new(Self { uses, option, template, removal: Mutex::default() })
    }

    /// Returns the path of the files with its placeholders.
    #[must_use]
    pub fn template(&self) -> &Path {
        Path::new(&self.template)
    }

    /// Records all files from now on. Only the first records count.
    pub fn record_in(&self, records: Arc<dyn ExportRecords>) {
        let _ = self.uses.records.set(records);
    }

    /// Removes the files of all sessions, because the process ends. No file is stored from now on.
    /// Blocks.
    pub fn end(&self) {
        let mut used = self.uses.used();
        used.has_ended = true;
        let files = std::mem::take(&mut used.files);
        // No session replaces these files any more, so the lock is not needed.
        drop(used);
        for (path, file) in files {
            if self.uses.remove_file(&path) {
                self.uses.forget(&file.record);
            }
        }
    }

    /// Returns the sender to the thread that removes files, which is started if it does not run yet.
    fn removal(&self) -> io::Result<Sender<SessionEnd>> {
        let mut removal = self.removal.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = &*removal {
            return Ok(sender.clone());
        }
        let ((sender, ends), uses) = (mpsc::channel(), self.uses.clone());
        let thread = std::thread::Builder::new().name("exported-files".to_owned());
        thread.spawn(move || uses.serve(&ends))?;
        *removal = Some(sender.clone());
        Ok(sender)
    }

    /// Stores credentials of `owner` at a path, where they replace earlier ones. `write` writes the file
    /// that it is given. Returns `None`, and logs why, if a session of another owner uses the path.
    /// Blocks.
    pub(crate) fn store(
        &self,
        path: &Path,
        owner: &str,
        write: impl FnOnce(&Path) -> Result<(), String>,
    ) -> Result<Option<ExportedFile>, String> {
        let failed = |error: &io::Error| {
            let (shown, reason) = (path.display(), errno_text(error));
            format!(
                "{} cannot be stored as {shown}: {reason}; name a directory of the server's user with {}",
                self.uses.what, self.option
            )
        };
        let removal = self.removal().map_err(|error| failed(&error))?;
        // The path of a session that has ended is free for others.
        await_removals(&removal, END_TIME_MAX);
        let parent =
            path.parent().ok_or_else(|| format!("the file of {} has no directory", self.uses.what))?;
        let name = random_name();
        let mut recorded = ExportRecord { directory: parent.join(directory_name(&name)), file: None };
        let mut record = NewRecord { uses: &self.uses, name, kept: false };
        self.uses.record(&record.name, &recorded)?;
        let directory = ExportDirectory::create(&recorded.directory).map_err(|error| failed(&error))?;
        let new = directory.0.join(NEW_FILE);
        write(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(FILE_MODE)).map_err(|error| failed(&error))?;
        recorded.file = Some(RecordedFile::new(&new, path).map_err(|error| failed(&error))?);
        self.uses.record(&record.name, &recorded)?;
        let mut used = self.uses.used();
        if used.has_ended {
            return Err(format!("{} is not stored, because the server ends", self.uses.what));
        }
        if let Some(file) = used.files.get(path).filter(|file| file.owner != owner) {
            tracing::warn!(
                "{} of {owner} is not stored, because {} is in use by {}; give them different accounts, or \
                 another path with {}",
                self.uses.what,
                path.display(),
                file.owner,
                self.option
            );
            return Ok(None);
        }
        fs::rename(&new, path).map_err(|error| failed(&error))?;
        record.kept = true;
        let new_use = || FileUse { owner: owner.to_owned(), sessions: 0, record: String::new() };
        let file = used.files.entry(path.to_owned()).or_insert_with(new_use);
        file.sessions += 1;
        let replaced = std::mem::replace(&mut file.record, record.name.clone());
        drop(used);
        if !replaced.is_empty() {
            self.uses.forget(&replaced);
        }
        Ok(Some(ExportedFile { path: path.to_owned(), removal }))
    }
}

/// A new directory that nobody else can use. It is removed on drop.
struct ExportDirectory(PathBuf);

impl ExportDirectory {
    fn create(path: &Path) -> io::Result<Self> {
        DirBuilder::new().mode(DIRECTORY_MODE).create(path)?;
        Ok(Self(path.to_owned()))
    }
}

fn random_name() -> String {
    let mut random = [0; RANDOM_BYTES];
    SystemRng.fill(&mut random);
    format!("{:032x}", u128::from_ne_bytes(random))
}

/// Returns the name of the directory in which the file of a record is written.
pub(crate) fn directory_name(record: &str) -> String {
    format!(".export-{record}")
}

impl Drop for ExportDirectory {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            tracing::warn!("{} is not removed: {}; remove it", self.0.display(), errno_text(&error));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{MetadataExt, symlink};

    fn files() -> Arc<ExportedFiles> {
        ExportedFiles::new("the forwarded ticket", "-exptkn:", "/t/<user>".to_owned())
    }

    /// Drops a value, and waits for its effect.
    fn end(files: &ExportedFiles, file: ExportedFile) {
        drop(file);
        await_removals(&files.removal().unwrap(), END_TIME_MAX);
    }

    fn directory(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("auth-export-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        path
    }

    #[test]
    fn a_ticket_is_private_and_replaces_links() {
        let top = directory("private");
        let (path, other) = (top.join("krb5cc_1"), top.join("other"));
        fs::write(&other, "other").unwrap();
        symlink(&other, &path).unwrap();
        let files = files();
        let write = |path: &Path| {
            fs::write(path, "ticket").unwrap();
            fs::set_permissions(path, Permissions::from_mode(0o666)).unwrap();
            Ok(())
        };
        let ticket = files.store(&path, "alice", write).unwrap().unwrap();
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert_eq!((metadata.is_file(), metadata.mode() & 0o7777), (true, 0o600));
        assert_eq!(
            (fs::read(&path).unwrap(), fs::read(&other).unwrap()),
            (b"ticket".into(), b"other".into())
        );
        assert_eq!(fs::read_dir(&top).unwrap().count(), 2, "nothing else remains");
        end(&files, ticket);
        assert!(!path.exists() && other.exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn the_last_session_removes_the_file() {
        let top = directory("sessions");
        let path = top.join("krb5cc_1");
        let files = files();
        let store = |text: &'static str| {
            let write = |path: &Path| fs::write(path, text).map_err(|error| error.to_string());
            files.store(&path, "alice", write).unwrap().unwrap()
        };
        let (first, second) = (store("1"), store("2"));
        end(&files, first);
        assert_eq!(fs::read(&path).unwrap(), b"2");
        end(&files, second);
        assert!(!path.exists() && files.uses.used().files.is_empty());
        // A session can last longer than the protocol.
        let third = store("3");
        let removal = third.removal.clone();
        drop(files);
        assert!(path.exists());
        drop(third);
        await_removals(&removal, END_TIME_MAX);
        assert!(!path.exists());
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn users_of_one_account_do_not_get_the_credentials_of_each_other() {
        let top = directory("owners");
        let path = top.join("krb5cc_1");
        let files = files();
        let store = |owner: &str| {
            let write = |path: &Path| fs::write(path, owner).map_err(|error| error.to_string());
            files.store(&path, owner, write).unwrap()
        };
        let (first, other, second) = (store("alice"), store("bob"), store("alice"));
        assert!(first.is_some() && other.is_none() && second.is_some());
        assert_eq!(fs::read(&path).unwrap(), b"alice");
        end(&files, first.unwrap());
        assert!(store("bob").is_none());
        assert_eq!(fs::read(&path).unwrap(), b"alice");
        // The end of a session counts for the next one at once.
        drop(second);
        let other = store("bob").unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"bob");
        end(&files, other);
        assert_eq!(fs::read_dir(&top).unwrap().count(), 0);
        fs::remove_dir_all(top).unwrap();
    }

    #[test]
    fn failures_leave_nothing() {
        let top = directory("failures");
        let files = files();
        let failed = files.store(&top.join("f"), "alice", |path| {
            fs::write(path, "half").unwrap();
            Err("no ticket".to_owned())
        });
        assert_eq!(failed.unwrap_err(), "no ticket");
        fs::create_dir(top.join("taken")).unwrap();
        let write = |path: &Path| fs::write(path, "ticket").map_err(|error| error.to_string());
        let failed = files.store(&top.join("taken"), "alice", write).unwrap_err();
        assert!(failed.contains("cannot be stored as ") && failed.contains("-exptkn:"), "{failed}");
        assert!(files.store(&top.join("none/f"), "alice", write).is_err());
        assert_eq!(fs::read_dir(&top).unwrap().count(), 1);
        assert!(files.uses.used().files.is_empty());
        fs::remove_dir_all(top).unwrap();
    }

    /// Records that must not be changed while the uses are locked, because all logins need that lock.
    struct Records(Mutex<HashMap<String, Vec<u8>>>, Arc<ExportedUses>);

    impl ExportRecords for Records {
        fn write(&self, name: &str, record: &[u8]) -> io::Result<()> {
            drop(self.1.used.try_lock().map_err(|_| io::Error::other("the uses are locked"))?);
            self.0.lock().unwrap().insert(name.to_owned(), record.to_owned());
            Ok(())
        }

        fn remove(&self, name: &str) -> io::Result<()> {
            drop(self.1.used.try_lock().map_err(|_| io::Error::other("the uses are locked"))?);
            self.0.lock().unwrap().remove(name);
            Ok(())
        }
    }

    #[test]
    fn files_are_recorded_as_long_as_they_exist() {
        let top = directory("records");
        let path = top.join("proxy");
        let files = files();
        let records = Arc::new(Records(Mutex::default(), files.uses.clone()));
        files.record_in(records.clone());
        let count = || records.0.lock().unwrap().len();
        let store = || {
            let write = |path: &Path| {
                assert_eq!(
                    count(),
                    1 + usize::from(path.parent().unwrap().parent().unwrap().join("proxy").exists())
                );
                fs::write(path, "proxy").map_err(|error| error.to_string())
            };
            files.store(&path, "alice", write).unwrap().unwrap()
        };
        let (first, second) = (store(), store());
        assert_eq!(count(), 1, "the first file was replaced");
        assert!(files.store(&path, "alice", |_| Err("no".to_owned())).is_err());
        assert!(
            files
                .store(&path, "bob", |path| fs::write(path, "b").map_err(|_| String::new()))
                .unwrap()
                .is_none()
        );
        assert_eq!(count(), 1);
        // The process is killed: the next one has the record only.
        let (name, record) =
            records.0.lock().unwrap().iter().map(|(n, r)| (n.clone(), r.clone())).next().unwrap();
        end(&files, first);
        assert!(path.exists());
        assert!(crate::export_record::remove_exported_leftovers(&name, &record));
        assert!(!path.exists());
        end(&files, second);
        assert_eq!(count(), 0);
        // An orderly end removes the files of sessions that last.
        let third = store();
        files.end();
        assert!(!path.exists() && count() == 0);
        fs::write(&path, "of another process").unwrap();
        end(&files, third);
        assert!(path.exists());
        // A login that is not complete stores nothing afterwards.
        let late = files.store(&top.join("late"), "alice", |path| {
            fs::write(path, "proxy").map_err(|error| error.to_string())
        });
        assert!(late.unwrap_err().contains("because the server ends"));
        assert_eq!((fs::read_dir(&top).unwrap().count(), count()), (1, 0));
        fs::remove_dir_all(top).unwrap();
    }

    /// An event loop drops the value while another session of the path waits for a disk.
    #[test]
    fn a_drop_waits_for_no_disk() {
        let top = directory("drop");
        let files = files();
        let path = top.join("krb5cc_1");
        let write = |path: &Path| fs::write(path, "ticket").map_err(|error| error.to_string());
        let ticket = files.store(&path, "alice", write).unwrap().unwrap();
        let busy = files.uses.used();
        drop(ticket);
        assert!(path.exists());
        drop(busy);
        await_removals(&files.removal().unwrap(), END_TIME_MAX);
        assert!(!path.exists());
        fs::remove_dir_all(top).unwrap();
    }
}
