//! The usage log: the bytes that each space uses, in the file format of XRootD (`oss.usage log`).
//!
//! `DIRECTORY/[INSTANCE/].Usage` has 128 entries of 128 bytes: the name of a space in 64 bytes, padded
//! with NUL, and eight numbers of 64 bits in the byte order of the machine. The first is the usage.
//! The next three are changes by other programs: bytes that they staged, purged, and adjusted by hand.
//! Those programs hold a lock on the file and touch `.Usage.upd`; this server adds their changes to
//! the usage and clears them. The last number is the time at which the entry was created.

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt};
use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Number of entries.
const ENTRIES: usize = 128;
/// Size of an entry in bytes.
const ENTRY_BYTES: usize = 128;
/// Size of the whole file in bytes.
const LOG_BYTES: usize = ENTRIES * ENTRY_BYTES;
/// Size of a name in bytes, with a NUL.
const NAME_BYTES: usize = 64;
/// Number of the number that is the time of creation.
const TIME_NUMBER: usize = 7;
/// Attempts to lock the file while another program holds the lock, and the time between them.
const LOCK_TRIES: u32 = 50;
const LOCK_PAUSE: Duration = Duration::from_millis(20);

/// The usage log of some spaces.
pub(super) struct UsageLog {
    file: File,
    path: PathBuf,
    /// The spaces, and the numbers of their entries.
    entries: Vec<(String, usize)>,
    changes_per_sync: u32,
    /// Number of changes since the last sync.
    unsynced: u32,
    /// The last sync failed.
    has_sync_failed: bool,
}

/// The entry of a space, in bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpaceEntry {
    /// The name of the space.
    pub space: String,
    /// Used by files.
    pub used: i64,
    /// Staged by other programs.
    pub staged: i64,
    /// Purged by other programs.
    pub purged: i64,
    /// Adjusted by hand.
    pub adjusted: i64,
}

/// A lock on the file, held until drop.
struct LogLock<'f>(&'f File);

impl<'f> LogLock<'f> {
    fn new(file: &'f File) -> io::Result<Self> {
        for _ in 0..LOCK_TRIES {
            match rustix::fs::fcntl_lock(file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self(file)),
                Err(Errno::AGAIN | Errno::ACCESS) => std::thread::sleep(LOCK_PAUSE),
                Err(error) => return Err(error.into()),
            }
        }
        Err(io::Error::new(io::ErrorKind::WouldBlock, "another program holds the lock of the file"))
    }
}

impl Drop for LogLock<'_> {
    fn drop(&mut self) {
        let _ = rustix::fs::fcntl_lock(self.0, FlockOperation::Unlock);
    }
}

/// The content of the file.
struct LogContent(Vec<u8>);

impl LogContent {
    fn read(file: &File) -> io::Result<Self> {
        let mut content = vec![0; LOG_BYTES];
        file.read_exact_at(&mut content, 0)?;
        Ok(Self(content))
    }

    fn name(&self, entry: usize) -> &[u8] {
        let start = entry * ENTRY_BYTES;
        let name = self.0.get(start..start + NAME_BYTES).unwrap_or_default();
        name.split(|byte| *byte == 0).next().unwrap_or_default()
    }

    fn at(entry: usize, number: usize) -> usize {
        entry * ENTRY_BYTES + NAME_BYTES + number * 8
    }

    fn number(&self, entry: usize, number: usize) -> i64 {
        let start = Self::at(entry, number);
        let bytes = self.0.get(start..start + 8).and_then(|bytes| bytes.try_into().ok());
        i64::from_ne_bytes(bytes.unwrap_or_default())
    }

    fn set_number(&mut self, entry: usize, number: usize, value: i64) {
        let start = Self::at(entry, number);
        if let Some(bytes) = self.0.get_mut(start..start + 8) {
            bytes.copy_from_slice(&value.to_ne_bytes());
        }
    }

    fn set_name(&mut self, entry: usize, name: &[u8]) {
        let start = entry * ENTRY_BYTES;
        if let Some(bytes) = self.0.get_mut(start..start + name.len()) {
            bytes.copy_from_slice(name);
        }
    }

    /// Adds a change to the usage of an entry, and the changes of other programs. Reports whether the
    /// entry is another one now.
    fn add(&mut self, space: &str, entry: usize, change: i64) -> bool {
        let before = self.number(entry, 0);
        let [staged, purged, adjusted] = [1, 2, 3].map(|number| self.number(entry, number));
        let by_others = staged.saturating_sub(purged).saturating_add(adjusted);
        let usage = before.saturating_add(change).saturating_add(by_others).max(0);
        if usage == before && staged == 0 && purged == 0 && adjusted == 0 {
            return false;
        }
        if by_others != 0 {
            let (from, to) = (before.saturating_add(change), usage);
            tracing::info!(%space, from, to, "the usage of the space was adjusted by other programs");
        }
        self.set_number(entry, 0, usage);
        (1..=3).for_each(|number| self.set_number(entry, number, 0));
        true
    }

    fn write(&self, entry: usize, file: &File) -> io::Result<()> {
        let start = entry * ENTRY_BYTES;
        let bytes = self.0.get(start..start + ENTRY_BYTES).ok_or(io::ErrorKind::InvalidInput)?;
        file.write_all_at(bytes, start as u64)
    }

    /// Returns the entry of a space, or creates it.
    fn entry(&mut self, space: &str, file: &File) -> io::Result<usize> {
        if space.len() >= NAME_BYTES {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the name {space} is too long")));
        }
        if let Some(entry) = (0..ENTRIES).find(|entry| self.name(*entry) == space.as_bytes()) {
            return Ok(entry);
        }
        let Some(entry) = (0..ENTRIES).find(|entry| self.name(*entry).is_empty()) else {
            let text = format!("all {ENTRIES} entries are in use, none is left for the space {space}");
            return Err(io::Error::new(io::ErrorKind::StorageFull, text));
        };
        self.set_name(entry, space.as_bytes());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        self.set_number(entry, TIME_NUMBER, i64::try_from(now.as_secs()).unwrap_or_default());
        self.write(entry, file)?;
        Ok(entry)
    }
}

impl UsageLog {
    /// Opens the log, or creates it, with an entry for each of these spaces. May wait. The error names
    /// the file.
    pub(super) fn open(config: &config::UsageLogConfig, spaces: &[String]) -> io::Result<Self> {
        let mut directory = config.directory.clone();
        if let Some(instance) = &config.instance {
            directory.push(instance);
            match std::fs::DirBuilder::new().mode(0o775).create(&directory) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    let text = format!("oss.usage {}: {error}", directory.display());
                    return Err(io::Error::new(error.kind(), text));
                }
                _ => {}
            }
        }
        let path = directory.join(".Usage");
        let opened = Self::open_at(path.clone(), directory.join(".Usage.upd"), config, spaces);
        opened.map_err(|error| io::Error::new(error.kind(), format!("oss.usage {}: {error}", path.display())))
    }

    fn open_at(
        path: PathBuf,
        marker: PathBuf,
        config: &config::UsageLogConfig,
        spaces: &[String],
    ) -> io::Result<Self> {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let open = |path: &PathBuf| rustix::fs::open(path, flags, Mode::from_raw_mode(0o660));
        // Other programs touch this file after a change.
        drop(open(&marker)?);
        let file = File::from(open(&path)?);
        let lock = LogLock::new(&file)?;
        match file.metadata()? {
            found if !found.is_file() => return Err(io::Error::other("it is not a regular file")),
            found if found.len() == 0 => file.set_len(LOG_BYTES as u64)?,
            found if found.len() != LOG_BYTES as u64 => {
                let text =
                    format!("it has {} bytes and not {LOG_BYTES}, so it is not a usage log", found.len());
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            _ => {}
        }
        let mut content = LogContent::read(&file)?;
        let mut entries = Vec::new();
        for space in spaces {
            entries.push((space.clone(), content.entry(space, &file)?));
        }
        file.sync_all()?;
        drop(lock);
        Ok(Self {
            file,
            path,
            entries,
            changes_per_sync: config.changes_per_sync,
            unsynced: 0,
            has_sync_failed: false,
        })
    }

    /// Returns the path of the file.
    pub(super) fn path(&self) -> &PathBuf {
        &self.path
    }

    /// Adds a change to the usage of each space, and the changes of other programs. Each change that was
    /// written becomes zero, also if a later one fails. Returns the usages, which are never negative.
    /// May wait.
    pub(super) fn apply(&mut self, changes: &mut [i64]) -> io::Result<Vec<u64>> {
        let lock = LogLock::new(&self.file)?;
        let mut content = LogContent::read(&self.file)?;
        let mut usages = Vec::with_capacity(self.entries.len());
        for ((space, entry), change) in self.entries.iter().zip(changes) {
            let is_new = content.add(space, *entry, *change);
            if is_new {
                content.write(*entry, &self.file)?;
                self.unsynced = self.unsynced.saturating_add(1);
            }
            *change = 0;
            usages.push(u64::try_from(content.number(*entry, 0)).unwrap_or_default());
        }
        drop(lock);
        self.sync_changes(File::sync_data);
        Ok(usages)
    }

    /// Returns the entries of all spaces. May wait.
    pub(super) fn read_entries(&self) -> io::Result<Vec<SpaceEntry>> {
        let _lock = LogLock::new(&self.file)?;
        let content = LogContent::read(&self.file)?;
        let entry = |(space, entry): &(String, usize)| SpaceEntry {
            space: space.clone(),
            used: content.number(*entry, 0),
            staged: content.number(*entry, 1),
            purged: content.number(*entry, 2),
            adjusted: content.number(*entry, 3),
        };
        Ok(self.entries.iter().map(entry).collect())
    }

    /// Sets the usage of a space, in place of what is recorded. May wait.
    pub(super) fn set_usage(&mut self, space: &str, bytes: u64) -> io::Result<()> {
        let found = self.entries.iter().find(|(name, _)| name == space);
        let (_, entry) = found.ok_or(io::ErrorKind::NotFound)?;
        let _lock = LogLock::new(&self.file)?;
        let mut content = LogContent::read(&self.file)?;
        content.set_number(*entry, 0, i64::try_from(bytes).unwrap_or(i64::MAX));
        (1..=3).for_each(|number| content.set_number(*entry, number, 0));
        content.write(*entry, &self.file)?;
        self.file.sync_data()
    }

    /// Syncs the file if there were enough changes. A failure is logged once, and the next change tries
    /// again: the changes are in the file already.
    fn sync_changes(&mut self, sync: impl FnOnce(&File) -> io::Result<()>) {
        if self.unsynced == 0 || self.unsynced < self.changes_per_sync {
            return;
        }
        match sync(&self.file) {
            Ok(()) => (self.unsynced, self.has_sync_failed) = (0, false),
            Err(error) => {
                if !self.has_sync_failed {
                    tracing::error!(path = %self.path.display(), %error, "cannot sync the usage log; a power failure may lose changes of the usage");
                }
                self.has_sync_failed = true;
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // a panic is the failure of a test
mod tests {
    use super::*;

    fn log(name: &str, spaces: &[&str]) -> UsageLog {
        let directory = std::env::temp_dir().join(format!("usage-log-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let config = config::UsageLogConfig { directory, instance: None, changes_per_sync: 0 };
        let spaces: Vec<_> = spaces.iter().map(|space| (*space).to_owned()).collect();
        UsageLog::open(&config, &spaces).unwrap()
    }

    #[test]
    fn a_change_that_was_written_is_not_applied_again() {
        let mut log = log("partial", &["a", "b", "c"]);
        let mut changes = [10, 20, -5];
        // The lock of a read-only descriptor fails before anything is written.
        let file = std::mem::replace(&mut log.file, File::open(&log.path).unwrap());
        assert!(log.apply(&mut changes).is_err());
        assert_eq!(changes, [10, 20, -5]);
        log.file = file;
        // There is no such entry, so writing the second change fails.
        let place = std::mem::replace(&mut log.entries[1].1, usize::MAX / ENTRY_BYTES - 1);
        assert!(log.apply(&mut changes).is_err());
        assert_eq!(changes, [0, 20, -5]);
        log.entries[1].1 = place;
        assert_eq!(log.apply(&mut changes).unwrap(), [10, 20, 0]);
        assert_eq!(changes, [0; 3]);
        assert_eq!(log.apply(&mut changes).unwrap(), [10, 20, 0]);
        std::fs::remove_dir_all(log.path.parent().unwrap()).unwrap();
    }

    #[test]
    fn a_failed_sync_is_tried_again() {
        let mut log = log("sync", &["a"]);
        log.unsynced = 1;
        log.sync_changes(|_| Err(Errno::IO.into()));
        assert_eq!((log.unsynced, log.has_sync_failed), (1, true));
        let mut changes = [0];
        log.apply(&mut changes).unwrap();
        assert_eq!((log.unsynced, log.has_sync_failed), (0, false));
        std::fs::remove_dir_all(log.path.parent().unwrap()).unwrap();
    }
}
