//! [`ExportedFile`]: delegated credentials of a user in a file, for programs of the site.
//!
//! The file is written in a new private directory, and it is renamed when it is complete. So readers
//! see whole credentials, and nobody else can prepare the file. All sessions of a user share one file;
//! it is removed with the last of them. Several users can have one account, and so one path. While
//! one of them has the file, those of the others are not stored, because programs would act for a user
//! with the credentials of another.

use std::collections::HashMap;
use std::fs::{self, DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use base::{Rng, errno_text};

use crate::random::SystemRng;

/// Permissions of the file.
const FILE_MODE: u32 = 0o600;
/// Permissions of the directory in which it is written.
const DIRECTORY_MODE: u32 = 0o700;
/// Random bytes in the name of that directory.
const RANDOM_BYTES: usize = 16;
/// Maximum wait for the removal of files of ended sessions.
const END_TIME_MAX: Duration = Duration::from_secs(if cfg!(test) { 600 } else { 1 });

/// The use of a file.
#[derive(Debug)]
struct FileUse {
    /// The name of the user in the credentials, such as a subject or a principal.
    owner: String,
    /// Number of sessions.
    sessions: usize,
}

/// The use of each file of one protocol of a server.
#[derive(Debug)]
struct ExportedUses {
    /// The kind of the credentials, for messages.
    what: &'static str,
    /// Locked only by threads that may wait for a disk.
    used: Mutex<HashMap<PathBuf, FileUse>>,
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
pub(crate) struct ExportedFiles {
    uses: Arc<ExportedUses>,
    /// The option with the path, for messages.
    option: &'static str,
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
    fn used(&self) -> MutexGuard<'_, HashMap<PathBuf, FileUse>> {
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
        if let Some(file) = used.get_mut(path).filter(|file| file.sessions > 1) {
            file.sessions -= 1;
            return;
        }
        used.remove(path);
        // The lock is held, so that no new file is removed.
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                let (shown, reason) = (path.display(), errno_text(&error));
                tracing::warn!("{} {shown} is not removed: {reason}; remove it", self.what);
            }
            _ => {}
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
    /// the path, both for messages.
    pub(crate) fn new(what: &'static str, option: &'static str) -> Arc<Self> {
        let uses = Arc::new(ExportedUses { what, used: Mutex::default() });
        Arc::new(Self { uses, option, removal: Mutex::default() })
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
        let directory = ExportDirectory::create(parent).map_err(|error| failed(&error))?;
        let new = directory.0.join("new");
        write(&new)?;
        fs::set_permissions(&new, Permissions::from_mode(FILE_MODE)).map_err(|error| failed(&error))?;
        let mut used = self.uses.used();
        if let Some(file) = used.get(path).filter(|file| file.owner != owner) {
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
        let new_use = || FileUse { owner: owner.to_owned(), sessions: 0 };
        used.entry(path.to_owned()).or_insert_with(new_use).sessions += 1;
        Ok(Some(ExportedFile { path: path.to_owned(), removal }))
    }
}

/// A new directory that nobody else can use. It is removed on drop.
struct ExportDirectory(PathBuf);

impl ExportDirectory {
    fn create(parent: &Path) -> io::Result<Self> {
        let mut random = [0; RANDOM_BYTES];
        SystemRng.fill(&mut random);
        let name = format!(".export-{:032x}", u128::from_ne_bytes(random));
        let path = parent.join(name);
        DirBuilder::new().mode(DIRECTORY_MODE).create(&path)?;
        Ok(Self(path))
    }
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
        ExportedFiles::new("the forwarded ticket", "-exptkn:")
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
        assert!(!path.exists() && files.uses.used().is_empty());
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
        assert!(files.uses.used().is_empty());
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
