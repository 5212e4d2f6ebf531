//! [`KeptKeys`]: keys of issuers on disk, so that a restart does not depend on the issuers.

use super::schedule::KEYS_AGE_MAX;
use auth::tokens::JWKS_BYTES_MAX;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use storage::PrivateDirectory;

/// A directory with one file for each issuer.
pub(super) struct KeptKeys(PathBuf);

#[derive(Serialize, Deserialize)]
struct KeptKeySet {
    issuer: String,
    /// Time of the fetch in seconds since 1970.
    fetched: u64,
    /// The key set as the issuer sent it.
    keys: String,
}

impl KeptKeys {
    pub(super) fn new(directory: &Path) -> Self {
        Self(directory.to_owned())
    }

    /// Returns the keys of an issuer and their age, unless they are too old. Blocks.
    pub(super) fn read(&self, issuer: &str, now: SystemTime) -> Option<(Vec<u8>, Duration)> {
        let directory = PrivateDirectory::open(&self.0).ok()?;
        let text = match directory.read(&file_name(issuer)) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => {
                let (directory, error) = (self.0.display(), base::errno_text(&error));
                tracing::warn!("the kept keys of {issuer} in {directory} are not used: {error}");
                return None;
            }
        };
        let kept: KeptKeySet = serde_json::from_slice(&text).ok()?;
        // A clock that was set back makes the keys look new, so these do not count.
        let age = now.duration_since(UNIX_EPOCH + Duration::from_secs(kept.fetched)).ok()?;
        (kept.issuer == issuer && age < KEYS_AGE_MAX).then(|| (kept.keys.into_bytes(), age))
    }

    /// Replaces the keys of an issuer. Blocks.
    pub(super) fn write(&self, issuer: &str, keys: &[u8], now: SystemTime) -> io::Result<()> {
        let keys = String::from_utf8(keys.to_vec()).map_err(io::Error::other)?;
        let fetched = now.duration_since(UNIX_EPOCH).map_err(io::Error::other)?.as_secs();
        let kept = KeptKeySet { issuer: issuer.to_owned(), fetched, keys };
        let directory = PrivateDirectory::create(&self.0)?;
        directory.replace(&file_name(issuer), &serde_json::to_vec(&kept)?).map(drop)
    }
}

/// Returns the name of the file of an issuer. An address can contain `/` and be long.
fn file_name(issuer: &str) -> String {
    let hash = Sha256::digest(issuer.as_bytes());
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{hex}.json")
}

const _: () = assert!(JWKS_BYTES_MAX < 1 << 20, "a kept key set is small");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_kept_for_a_day() {
        let directory = std::env::temp_dir().join(format!("scalla-kept-keys-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        let kept = KeptKeys::new(&directory);
        let start = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let issuer = "https://a/../x";
        assert!(kept.read(issuer, start).is_none());
        kept.write(issuer, b"{}", start).unwrap();
        let second = Duration::from_secs(1);
        assert_eq!(kept.read(issuer, start + second), Some((b"{}".to_vec(), second)));
        assert!(kept.read("https://a", start).is_none());
        assert!(kept.read(issuer, start + KEYS_AGE_MAX).is_none());
        assert!(kept.read(issuer, start - second).is_none(), "the clock was set back");
        kept.write(issuer, b"[]", start).unwrap();
        assert_eq!(kept.read(issuer, start).map(|(keys, _)| keys), Some(b"[]".to_vec()));
        assert!(kept.write(issuer, b"\xff", start).is_err());
        // A file that another user could have written, and one for another issuer.
        let file = directory.join(file_name(issuer));
        std::fs::copy(&file, directory.join(file_name("https://b"))).unwrap();
        assert!(kept.read("https://b", start).is_none());
        std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
        assert!(kept.read(issuer, start).is_none());
        std::fs::remove_dir_all(directory).unwrap();
    }
}
