//! [`KnownKeys`]: the keys of the servers that a user knows.

use super::file::{EntryStatus, PwdEntry, PwdFile};
use super::{FILE_BYTES_MAX, MODULE_SUFFIX};
use crate::secret::Secret;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// The demands on the file.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "replace the keys of servers",
    bytes_max: FILE_BYTES_MAX as u64,
};

/// The file with the keys of known servers.
pub(super) struct KnownKeys(PathBuf);

impl KnownKeys {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns the key of a server, given by host and id; `None` if it is not known.
    pub(super) fn find(&self, server: &str) -> Result<Option<Vec<u8>>, String> {
        let file = self.read()?;
        let entry = file.find(&format!("{server}{MODULE_SUFFIX}"));
        Ok(entry.map(|entry| {
            let [key, ..] = &entry.buffers;
            key.expose().to_vec()
        }))
    }

    fn read(&self) -> Result<PwdFile, String> {
        match self.0.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PwdFile::default()),
            _ => PwdFile::read_with(&self.0, &TRUST),
        }
    }

    /// Adds the key of a server.
    pub(super) fn add(&self, server: &str, key: &[u8], now: SystemTime) -> Result<(), String> {
        let mut file = self.read()?;
        let changed = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let changed = u32::try_from(changed).unwrap_or(u32::MAX);
        let name = format!("{server}{MODULE_SUFFIX}");
        let buffers = [Secret::from(key), Secret::default(), Secret::default(), Secret::default()];
        file.set(PwdEntry { name, status: EntryStatus::ALLOWED, count: 0, changed, buffers });
        let failed = |error: io::Error| format!("{}: {}", self.0.display(), base::errno_text(&error));
        file.write(&self.0, changed).map_err(failed)
    }
}
