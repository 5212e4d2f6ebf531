//! [`KnownKeys`]: the keys of the servers that a user knows.

use super::file::{EntryStatus, PwdEntry, PwdFile};
use super::{FILE_BYTES_MAX, MODULE_SUFFIX, unix_seconds};
use crate::secret::Secret;
use crate::trusted_file::{FileTrust, NO_SHARED_WRITE, TrustedOwner};
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// The demands on the file.
const TRUST: FileTrust = FileTrust {
    owner: TrustedOwner::Own,
    modes: NO_SHARED_WRITE,
    danger: "replace the keys of servers",
    bytes_max: FILE_BYTES_MAX as u64,
};

/// What is known of a server.
pub(super) enum KnownServer {
    /// Its key.
    Key(Vec<u8>),
    /// Its host has had another id, in this entry.
    OtherId(String),
    Nothing,
}

/// The file with the keys of known servers.
pub(super) struct KnownKeys(PathBuf);

impl KnownKeys {
    pub(super) fn new(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// Returns what is known of a server, given by host and id.
    pub(super) fn find(&self, host: &str, id: &str) -> Result<KnownServer, String> {
        let file = self.read()?;
        let host = format!("{host}:");
        if let Some(entry) = file.find(&format!("{host}{id}{MODULE_SUFFIX}")) {
            let [key, ..] = &entry.buffers;
            return Ok(KnownServer::Key(key.expose().to_vec()));
        }
        let other = file.entries().iter().find(|entry| entry.name.starts_with(&host));
        Ok(other.map_or(KnownServer::Nothing, |entry| {
            let name = entry.name.strip_suffix(MODULE_SUFFIX).unwrap_or(&entry.name);
            KnownServer::OtherId(name.to_owned())
        }))
    }

    fn read(&self) -> Result<PwdFile, String> {
        match self.0.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(PwdFile::default()),
            _ => PwdFile::read_with(&self.0, &TRUST),
        }
    }

    /// Adds the key of a server. Returns `false` if there is another key of it: a login at the same
    /// time may have added one.
    pub(super) fn add(&self, server: &str, key: &[u8], now: SystemTime) -> Result<bool, String> {
        let changed = unix_seconds(now);
        let name = format!("{server}{MODULE_SUFFIX}");
        // The file may be a link of its user, which stays.
        let path = std::fs::canonicalize(&self.0).unwrap_or_else(|_| self.0.clone());
        PwdFile::update_with(&path, &TRUST, changed, |file| {
            let mut file = file.unwrap_or_default();
            if let Some(entry) = file.find(&name) {
                let [known, ..] = &entry.buffers;
                let is_same = known.is_equal(key);
                return Ok((file, is_same));
            }
            let buffers = [Secret::from(key), Secret::default(), Secret::default(), Secret::default()];
            file.set(PwdEntry { name, status: EntryStatus::ALLOWED, count: 0, changed, buffers });
            Ok((file, true))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logins_at_the_same_time_lose_and_replace_no_keys() {
        let directory = std::env::temp_dir().join(format!("auth-known-keys-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("dir/keys"), directory.join("link"));
        let add = |path: &Path, server: &str, key: &[u8]| {
            KnownKeys::new(path).add(server, key, SystemTime::UNIX_EPOCH).unwrap()
        };
        let (add, path) = (&add, &file);
        std::thread::scope(|scope| {
            for number in 0..8 {
                scope.spawn(move || assert!(add(path, &format!("host{number}:lab"), b"key")));
            }
        });
        std::os::unix::fs::symlink(&file, &link).unwrap();
        assert!(add(&link, "host8:lab", b"key") && link.is_symlink());
        for number in 0..9 {
            let found = KnownKeys::new(&file).find(&format!("host{number}"), "lab").unwrap();
            assert!(matches!(found, KnownServer::Key(key) if key == b"key"), "{number}");
        }
        assert!(add(&file, "host1:lab", b"key") && !add(&file, "host1:lab", b"other"));
        let found = KnownKeys::new(&file).find("host1", "lab").unwrap();
        assert!(matches!(found, KnownServer::Key(key) if key == b"key"));
        std::fs::remove_dir_all(directory).unwrap();
    }
}
