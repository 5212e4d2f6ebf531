//! Storage of data that must survive the process: small append-only files in a private directory.
//!
//! All calls block and are made only at start and on pool threads. The directory is behind a trait
//! so that tests can stop the process, or simulate a power failure, between any two calls.

use std::ffi::OsString;
use std::fs::{File, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use storage::PrivateDirectory;

/// A directory of journals.
pub trait JournalDirectory: Send + Sync {
    /// Returns the location for log messages.
    fn location(&self) -> String {
        "memory".to_owned()
    }
    /// Returns the names of all journals.
    fn names(&self) -> io::Result<Vec<String>>;
    /// Returns the content of a journal.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Returns up to `length` bytes of a journal from `offset` on; fewer at its end.
    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(self.read(name)?.into_iter().skip(skipped).take(length).collect())
    }
    /// Creates or truncates a journal. Its name survives a power failure.
    fn create(&self, name: &str) -> io::Result<Box<dyn Journal>>;
    /// Replaces a journal by one with `content` and returns it, open for appending. After a crash
    /// either the old or the new one exists.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>>;
    /// Removes a journal. The removal survives a power failure.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// An open journal.
pub trait Journal: Send {
    /// Appends bytes, which survive the end of the process.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until the appended bytes survive a power failure.
    fn sync(&mut self) -> io::Result<()>;
}

/// A directory on disk that only the user of the server can access. It is created on first use and
/// locked for one server. A second one would at its start undo the operations in progress of the
/// first.
pub struct DiskDirectory {
    path: PathBuf,
    /// The directory, open, verified and locked from its first use on.
    held: Mutex<Option<Arc<PrivateDirectory>>>,
}

impl DiskDirectory {
    /// Returns the directory at `path` without accessing it.
    pub fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::new(None) }
    }

    /// Returns the directory, after opening it with `open` and locking it if that has not happened
    /// yet.
    fn hold(
        &self,
        open: impl FnOnce(&Path) -> io::Result<PrivateDirectory>,
    ) -> io::Result<Arc<PrivateDirectory>> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        // A directory that an administrator removed is created again.
        if let Some(directory) = held.as_ref().filter(|directory| !directory.is_removed()) {
            return Ok(directory.clone());
        }
        let directory = open(&self.path)?;
        match directory.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let text = format!(
                    "another server is using {}; configure a separate directory for each server",
                    self.path.display()
                );
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            // Some file systems do not support locks. Then only the lock of the admin directory
            // excludes other servers.
            Err(TryLockError::Error(error)) => {
                tracing::debug!(directory = %self.path.display(), %error, "cannot lock the directory of a journal");
            }
        }
        Ok(held.insert(Arc::new(directory)).clone())
    }

    fn existing(&self) -> io::Result<Arc<PrivateDirectory>> {
        self.hold(PrivateDirectory::open)
    }

    fn created(&self) -> io::Result<Arc<PrivateDirectory>> {
        self.hold(PrivateDirectory::create)
    }
}

impl JournalDirectory for DiskDirectory {
    fn location(&self) -> String {
        base::shown(self.path.as_os_str().as_encoded_bytes()).to_string()
    }
    fn names(&self) -> io::Result<Vec<String>> {
        match self.existing() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
            directory => Ok(directory?.names()?.into_iter().flat_map(OsString::into_string).collect()),
        }
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        self.existing()?.read(name)
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let file = self.existing()?.open_file(name)?;
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, offset + filled as u64) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn create(&self, name: &str) -> io::Result<Box<dyn Journal>> {
        let directory = self.created()?;
        let file = directory.create_file(name)?;
        directory.sync()?;
        Ok(Box::new(DiskJournal(file)))
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>> {
        Ok(Box::new(DiskJournal(self.created()?.replace(name, content)?)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match self.existing() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            directory => directory?.remove(name),
        }
    }
}

struct DiskJournal(File);

impl Journal for DiskJournal {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_directory_on_disk_stores_journals() {
        let path = std::env::temp_dir().join(format!("journal-test-{}", std::process::id()));
        let directory = DiskDirectory::new(path.join("deep"));
        assert!(directory.names().unwrap().is_empty());
        let mut one = directory.create("one").unwrap();
        one.append(b"a").unwrap();
        one.append(b"b").unwrap();
        one.sync().unwrap();
        assert_eq!(directory.read("one").unwrap(), b"ab");
        assert_eq!(directory.read_at("one", 1, 5).unwrap(), b"b");
        assert_eq!(directory.read_at("one", 5, 5).unwrap(), b"");
        let mut replaced = directory.replace("one", b"new ").unwrap();
        replaced.append(b"c").unwrap();
        assert_eq!(directory.read("one").unwrap(), b"new c");
        assert_eq!(directory.names().unwrap(), ["one"]);
        directory.remove("one").unwrap();
        directory.remove("one").unwrap();
        assert!(directory.names().unwrap().is_empty());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_directory_is_locked_by_one_server_until_it_ends() {
        let path = std::env::temp_dir().join(format!("journal-held-{}", std::process::id()));
        let (first, second) = (DiskDirectory::new(path.clone()), DiskDirectory::new(path.clone()));
        assert!(second.names().unwrap().is_empty(), "there is no directory to lock yet");
        drop(first.create("one").unwrap());
        let refused = [second.names().map(drop), second.create("two").map(drop)];
        assert!(refused.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)));
        assert_eq!(first.names().unwrap(), ["one"]);
        fs::remove_dir_all(&path).unwrap();
        drop(first.create("one").unwrap());
        drop(first);
        assert_eq!(second.names().unwrap(), ["one"]);
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn untrusted_files_are_refused_with_owner_and_remedy() {
        let path = std::env::temp_dir().join(format!("journal-planted-{}", std::process::id()));
        drop(DiskDirectory::new(path.clone()).create("one").unwrap());
        let refused = |what: &str| {
            let error = DiskDirectory::new(path.clone()).read("one").unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
            assert!(error.to_string().contains(what), "{error}");
        };
        // Through the second name, the owner of that name could read or replace what the server
        // writes.
        fs::hard_link(path.join("one"), path.with_extension("link")).unwrap();
        refused("has 2 names");
        fs::remove_file(path.with_extension("link")).unwrap();
        fs::set_permissions(path.join("one"), PermissionsExt::from_mode(0o620)).unwrap();
        refused("can be written by its group (mode 0620); check what it holds, then chmod go-w it");
        fs::rename(path.join("one"), path.join("two")).unwrap();
        symlink("two", path.join("one")).unwrap();
        refused("is a link of");
        fs::remove_file(path.join("one")).unwrap();
        fs::create_dir(path.join("one")).unwrap();
        refused("is not a regular file");
        fs::set_permissions(&path, PermissionsExt::from_mode(0o707)).unwrap();
        refused("can be written by every user");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn links_in_the_place_of_new_journals_are_replaced_not_followed() {
        let path = std::env::temp_dir().join(format!("journal-link-{}", std::process::id()));
        let directory = DiskDirectory::new(path.clone());
        drop(directory.create("first").unwrap());
        fs::write(path.with_extension("victim"), "content").unwrap();
        for name in ["one", "two.new"] {
            symlink(path.with_extension("victim"), path.join(name)).unwrap();
        }
        directory.create("one").unwrap().append(b"x").unwrap();
        directory.replace("two", b"y").unwrap();
        assert_eq!(fs::read(path.with_extension("victim")).unwrap(), b"content");
        assert_eq!(
            (directory.read("one").unwrap(), directory.read("two").unwrap()),
            (b"x".into(), b"y".into())
        );
        fs::remove_file(path.with_extension("victim")).unwrap();
        fs::remove_dir_all(path).unwrap();
    }
}
