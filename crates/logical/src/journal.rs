//! Where this room keeps what must survive the process: small append-only files in a folder of its own.
//!
//! All calls block, so they are made at start and on pool threads only. The folder is a trait so that tests can stop the
//! process, or cut the power, between any two calls.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// A folder of journals.
pub trait JournalFolder: Send + Sync {
    /// Names of all journals.
    fn names(&self) -> io::Result<Vec<String>>;
    /// The content of one.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;
    /// Up to `length` bytes of one from `offset`; fewer at its end.
    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let skipped = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(self.read(name)?.into_iter().skip(skipped).take(length).collect())
    }
    /// A new or emptied journal, whose name survives a loss of power.
    fn create(&self, name: &str) -> io::Result<Box<dyn Journal>>;
    /// Puts `content` in the place of what was there: after a crash it is the one or the other. Open for appending.
    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>>;
    /// Removes one, for good.
    fn remove(&self, name: &str) -> io::Result<()>;
}

/// An open journal.
pub trait Journal: Send {
    /// Appends; survives the process.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// What was appended survives a loss of power.
    fn sync(&mut self) -> io::Result<()>;
}

/// A folder on disk. Made when first needed, for its owner only, and held by one server at a time: another would undo at
/// its start what this one has under way.
pub struct DiskFolder {
    path: PathBuf,
    /// The folder itself, open and locked from when it is there as long as this lives.
    held: Mutex<Option<File>>,
}

/// What a replacement is called until it is complete.
const NEW_SUFFIX: &str = ".new";

impl DiskFolder {
    /// The folder at `path`.
    pub fn new(path: PathBuf) -> Self {
        Self { path, held: Mutex::new(None) }
    }

    fn make(&self) -> io::Result<()> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path)?;
        self.hold()
    }

    /// Locks the folder, which must be there.
    fn hold(&self) -> io::Result<()> {
        let mut held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            return Ok(());
        }
        let folder = File::open(&self.path)?;
        match folder.try_lock() {
            Ok(()) => *held = Some(folder),
            Err(TryLockError::WouldBlock) => {
                let text = format!("another server is using {}; give each its own", self.path.display());
                return Err(io::Error::new(io::ErrorKind::ResourceBusy, text));
            }
            // Not every file system knows locks; then the admin folder's alone keeps others out.
            Err(TryLockError::Error(error)) => {
                tracing::debug!(folder = %self.path.display(), %error, "the folder of a journal cannot be locked");
            }
        }
        Ok(())
    }

    fn open(&self, name: &str) -> io::Result<File> {
        OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(self.path.join(name))
    }

    /// Names in the folder survive a loss of power.
    fn sync_folder(&self) -> io::Result<()> {
        File::open(&self.path)?.sync_all()
    }
}

impl JournalFolder for DiskFolder {
    fn names(&self) -> io::Result<Vec<String>> {
        let entries = match fs::read_dir(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        self.hold()?;
        let mut names = Vec::new();
        for entry in entries {
            if let Ok(name) = entry?.file_name().into_string()
                && !name.ends_with(NEW_SUFFIX)
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        fs::read(self.path.join(name))
    }

    fn read_at(&self, name: &str, offset: u64, length: usize) -> io::Result<Vec<u8>> {
        let file = File::open(self.path.join(name))?;
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
        self.make()?;
        let file = self.open(name)?;
        self.sync_folder()?;
        Ok(Box::new(DiskJournal(file)))
    }

    fn replace(&self, name: &str, content: &[u8]) -> io::Result<Box<dyn Journal>> {
        self.make()?;
        let new = format!("{name}{NEW_SUFFIX}");
        let mut file = self.open(&new)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(self.path.join(new), self.path.join(name))?;
        self.sync_folder()?;
        Ok(Box::new(DiskJournal(file)))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        match fs::remove_file(self.path.join(name)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
            Ok(()) => self.sync_folder(),
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

    #[test]
    fn a_folder_on_disk_keeps_what_is_put_into_it() {
        let path = std::env::temp_dir().join(format!("journal-test-{}", std::process::id()));
        let folder = DiskFolder::new(path.join("deep"));
        assert!(folder.names().unwrap().is_empty());
        let mut one = folder.create("one").unwrap();
        one.append(b"a").unwrap();
        one.append(b"b").unwrap();
        one.sync().unwrap();
        assert_eq!(folder.read("one").unwrap(), b"ab");
        assert_eq!(folder.read_at("one", 1, 5).unwrap(), b"b");
        assert_eq!(folder.read_at("one", 5, 5).unwrap(), b"");
        let mut replaced = folder.replace("one", b"new ").unwrap();
        replaced.append(b"c").unwrap();
        assert_eq!(folder.read("one").unwrap(), b"new c");
        assert_eq!(folder.names().unwrap(), ["one"]);
        folder.remove("one").unwrap();
        folder.remove("one").unwrap();
        assert!(folder.names().unwrap().is_empty());
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn a_folder_is_held_by_one_server_until_it_ends() {
        let path = std::env::temp_dir().join(format!("journal-held-{}", std::process::id()));
        let (first, second) = (DiskFolder::new(path.clone()), DiskFolder::new(path.clone()));
        assert!(second.names().unwrap().is_empty(), "there is nothing to hold yet");
        drop(first.create("one").unwrap());
        let refused = [second.names().map(drop), second.create("two").map(drop)];
        assert!(refused.iter().all(|r| r.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::ResourceBusy)));
        assert_eq!(first.names().unwrap(), ["one"]);
        drop(first);
        assert_eq!(second.names().unwrap(), ["one"]);
        fs::remove_dir_all(path).unwrap();
    }
}
